#include "src/checkpoint/save.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/hash.h"
#include "src/base/strings.h"
#include "src/checkpoint/layout.h"
#include "src/checkpoint/manifest.h"
#include "src/checkpoint/outcome.h"
#include "src/checkpoint/retention.h"
#include "src/checkpoint/save_plan.h"
#include "src/tensor/safetensors.h"

namespace yardmaster {
namespace {

using Json = nlohmann::json;

// Step 1, on rank 0. Returns the temporary directory.
std::string Prepare(const SaveOptions& options, const CheckpointContents& contents, uint64_t tensor_bytes,
                    std::vector<std::string>* warnings) {
  MakeDirectories(options.dir);
  RemoveLeftovers(options.dir, warnings);
  uint64_t bytes = tensor_bytes + (uint64_t{1} << 20);  // headers and the manifest
  for (const auto& [name, text] : contents.text) bytes += text.size();
  const uint64_t needed = bytes + bytes / 10, free = FreeBytes(options.dir);
  if (free < needed) {
    throw Error(ExitCode::kDiskFull,
                StrCat("the checkpoint needs about ", HumanBytes(static_cast<double>(needed)), ", ",
                       HumanBytes(static_cast<double>(free)), " are free"),
                options.dir, "free space, lower checkpoint.keep_latest, or move run.dir");
  }
  const std::string base = StrCat(kTemporaryPrefix, StepDirectoryName(contents.step), "-", ::getpid());
  std::string path = JoinPath(options.dir, base);
  // A leftover that could not be removed keeps its name.
  for (int i = 1; PathExists(path); ++i) path = JoinPath(options.dir, StrCat(base, ".", i));
  MakeDirectories(path);
  return path;
}

// Step 2. Returns what the manifest must know of this rank's shard, as JSON; "" if this rank writes none.
std::string WriteShard(const std::string& dir, int64_t step, int rank,
                       const std::vector<const StateTensor*>& mine, uint64_t chunk_bytes, Device& device) {
  if (mine.empty()) return "";
  std::vector<SafetensorsSource> sources;
  Json boxes = Json::object();
  for (const StateTensor* t : mine) {
    const char* data = static_cast<const char*>(t->tensor.data());
    sources.push_back({t->name, t->tensor.dtype(), t->tensor.shape(),
                       [data, &device](uint64_t begin, uint64_t bytes, void* out) {
                         device.CopyToHost(out, data + begin, bytes);
                       }});
    if (!(t->spec.box == Box::Whole(t->spec.global_shape)))
      boxes[t->name] = {{"shape", t->spec.global_shape.vector()}, {"begin", t->spec.box.begin}};
  }
  const std::string file = ShardFileName(rank);
  const SafetensorsWritten written = WriteSafetensorsFrom(
      JoinPath(dir, file), sources,
      {{"format", "yardmaster"}, {"step", std::to_string(step)}, {"boxes", boxes.dump()}},
      /*fsync=*/true, chunk_bytes);
  Json parts = Json::array();
  for (const StateTensor* t : mine) {
    parts.push_back(Json::array({t->name, DTypeName(t->tensor.dtype()), t->spec.global_shape.vector(),
                                 t->spec.box.begin, t->spec.box.extent, written.offsets.at(t->name),
                                 t->tensor.bytes(), written.chunk_crc32c.at(t->name)}));
  }
  return Json{{"file", file}, {"bytes", written.file_bytes}, {"crc", written.crc32c}, {"parts", parts}}
      .dump();
}

void AddShard(const std::string& text, Manifest* manifest) {
  if (text.empty()) return;
  const Json json = Json::parse(text);
  const std::string file = json["file"];
  manifest->files[file] = {json["bytes"], json["crc"]};
  for (const Json& p : json["parts"]) {
    ManifestTensor& tensor = manifest->tensors[p[0]];
    YM_CHECK(DTypeFromName(p[1], &tensor.dtype));
    tensor.shape = Shape(p[2].get<std::vector<int64_t>>());
    TensorPart part;
    part.file = file;
    part.box = {p[3].get<std::vector<int64_t>>(), p[4].get<std::vector<int64_t>>()};
    part.offset = p[5];
    part.bytes = p[6];
    part.chunk_crc32c = p[7].get<std::vector<uint32_t>>();
    tensor.parts.push_back(std::move(part));
  }
}

// Step 5: the temporary directory takes the name of the step.
void Publish(const std::string& temporary, const std::string& final_path,
             std::vector<std::string>* warnings) {
  if (!PathExists(final_path)) {
    RenamePath(temporary, final_path);
    return;
  }
  // The step was saved before (a run that went back). The old one stays whole until the new one has its name.
  std::string old = temporary;
  if (!ExchangePaths(temporary, final_path)) {
    old = JoinPath(DirName(final_path), kDeletedPrefix + BaseName(final_path));
    RemoveTree(old);
    RenamePath(final_path, old);
    const Outcome outcome = Attempt([&] { RenamePath(temporary, final_path); });
    if (!outcome.ok()) {
      RenamePath(old, final_path);
      ThrowIfFailed(outcome);
    }
  }
  const Outcome removed = Attempt([&] { RemoveTree(old); });
  if (!removed.ok()) warnings->push_back(StrCat("the replaced checkpoint was not removed: ", removed.text));
}

// Steps 4 to 6, on rank 0. Returns the bytes of all files.
uint64_t Commit(const SaveOptions& options, const CheckpointContents& contents, const std::string& temporary,
                const std::vector<std::string>& shards, const std::string& final_path,
                std::vector<std::string>* warnings) {
  Manifest manifest;
  manifest.step = contents.step;
  manifest.chunk_bytes = options.chunk_bytes;
  manifest.world = static_cast<int>(shards.size());
  for (const std::string& shard : shards) AddShard(shard, &manifest);
  for (const auto& [name, file] : manifest.files) {
    const std::string path = JoinPath(temporary, name);
    if (!PathExists(path) || FileSize(path) != file.bytes)
      throw CheckpointError("rank 0 does not see this file as it was written", path,
                            "run.dir must be on a file system that all ranks share");
  }
  for (const auto& [name, text] : contents.text) {
    FileWriter writer(JoinPath(temporary, name));
    writer.Write(text);
    writer.Close(/*fsync=*/true);
    manifest.files[name] = {text.size(), Crc32c(text.data(), text.size())};
    manifest.text.push_back(name);
    if (name == "config.yaml") {
      Sha256 sha;
      sha.Update(text);
      manifest.config_sha256 = sha.HexDigest();
    }
  }
  uint64_t bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += file.bytes;
  const std::string manifest_text = ManifestToText(manifest);
  FileWriter writer(JoinPath(temporary, kManifestName));
  writer.Write(manifest_text);
  writer.Close(/*fsync=*/true);
  FsyncDirectory(temporary);
  Publish(temporary, final_path, warnings);
  const Outcome outcome = Attempt([&] {
    FsyncDirectory(options.dir);
    WriteFileAtomically(JoinPath(options.dir, kLatestName), BaseName(final_path) + "\n");
  });
  if (!outcome.ok())
    throw Error(outcome.code,
                StrCat(BaseName(final_path),
                       " is complete, but LATEST may still name the one before it: ", outcome.text));
  return bytes + manifest_text.size();
}

void CheckOptions(const SaveOptions& options, const CheckpointContents& contents) {
  if (options.keep_latest < 0 || options.keep_latest == 1)
    throw ConfigError(StrCat("must be 0 (keep all) or at least 2, not ", options.keep_latest),
                      "checkpoint.keep_latest", "with one checkpoint, a damaged one would be the only one");
  YM_CHECK_GE(contents.step, int64_t{0});
  for (const auto& [name, text] : contents.text) {
    YM_CHECK(!name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
                 name != kManifestName && name.compare(0, 6, "shard_") != 0,
             "not a name for a text of a checkpoint: ", name);
  }
}

}  // namespace

SaveResult SaveCheckpoint(const SaveOptions& options, const CheckpointContents& contents, Device& device,
                          Agreement& world) {
  const double start = NowSeconds();
  ThrowIfFailed(AttemptOnAll(world, [&] { CheckOptions(options, contents); }));
  const SavePlan plan = PlanSave(contents.step, contents.tensors, world);
  const bool first = world.rank() == 0;
  SaveResult result;
  result.path = JoinPath(options.dir, StepDirectoryName(contents.step));
  std::string temporary, shard;

  Outcome outcome = AttemptOnFirst(
      world, [&] { temporary = Prepare(options, contents, plan.total_bytes, &result.warnings); });
  if (outcome.ok()) {
    temporary = world.Broadcast(temporary);
    outcome = AttemptOnAll(world, [&] {
      shard = WriteShard(temporary, contents.step, world.rank(), plan.mine, options.chunk_bytes, device);
    });
  }
  if (outcome.ok()) {
    const std::vector<std::string> shards = world.Gather(shard);
    outcome = AttemptOnFirst(world, [&] {
      result.bytes = Commit(options, contents, temporary, shards, result.path, &result.warnings);
    });
  }
  if (outcome.ok()) {
    result.bytes = static_cast<uint64_t>(std::stoull(world.Broadcast(std::to_string(result.bytes))));
    if (first) {
      result.removed =
          RemoveOldCheckpoints(options.dir, contents.step, options.keep_latest, &result.warnings);
    }
  } else if (first) {
    RemoveLeftovers(options.dir, &result.warnings);
  }
  result.ok = outcome.ok();
  result.code = outcome.code;
  result.reason = outcome.text;
  result.seconds = NowSeconds() - start;
  return result;
}

}  // namespace yardmaster
