#include "src/checkpoint/load.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "src/base/check.h"
#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/hash.h"
#include "src/base/strings.h"
#include "src/checkpoint/cover.h"
#include "src/checkpoint/manifest.h"
#include "src/checkpoint/outcome.h"
#include "src/tensor/safetensors.h"

namespace yardmaster {
namespace {

using Json = nlohmann::json;

// Where element `at` (global indices) lies in the row-major memory of a box.
int64_t ElementOffset(const Box& box, const std::vector<int64_t>& at) {
  int64_t offset = 0;
  for (size_t i = 0; i < at.size(); ++i) offset = offset * box.extent[i] + (at[i] - box.begin[i]);
  return offset;
}

// Calls run(offset in `from`, offset in `to`, elements) for the longest runs of `common` that are contiguous
// in both.
template <class F>
void ForEachRun(const Box& common, const Box& from, const Box& to, F&& run) {
  const size_t rank = common.begin.size();
  // The axes after `inner` are whole in all three, so that a run may span them.
  size_t inner = rank;
  int64_t length = 1;
  while (inner > 0) {
    --inner;
    length *= common.extent[inner];
    if (common.extent[inner] != from.extent[inner] || common.extent[inner] != to.extent[inner]) break;
  }
  std::vector<int64_t> at = common.begin;
  for (;;) {
    run(ElementOffset(from, at), ElementOffset(to, at), length);
    size_t axis = inner;
    while (axis > 0 && ++at[axis - 1] == common.begin[axis - 1] + common.extent[axis - 1]) {
      at[axis - 1] = common.begin[axis - 1];
      --axis;
    }
    if (axis == 0) return;
  }
}

// In what a tensor of the checkpoint is not the one that is asked for, in words; "": in nothing.
std::string Difference(const ManifestTensor& stored, const StateTensor& t) {
  if (stored.dtype != t.tensor.dtype())
    return StrCat("has dtype ", DTypeName(stored.dtype), " in the checkpoint, ", DTypeName(t.tensor.dtype()), " here");
  if (!(stored.shape == t.spec.global_shape))
    return StrCat("has shape ", stored.shape, " in the checkpoint, ", t.spec.global_shape, " here");
  return "";
}

class Loader {
 public:
  Loader(const std::string& path, Device& device)
      : path_(path), device_(device), manifest_(OpenManifest(path)) {}

  void Load(const StateTensor& t) {
    YM_CHECK(t.tensor.shape().vector() == t.spec.box.extent, "tensor ", t.name, ": ", t.tensor.shape(),
             " but the box ", BoxText(t.spec.box));
    YM_CHECK(t.tensor.contiguous(), "tensor ", t.name, " is strided");
    asked_.insert(t.name);
    if (t.spec.global_shape.elements() == 0) return;
    const auto it = manifest_.tensors.find(t.name);
    if (it == manifest_.tensors.end()) FailMissing(t.name);
    const ManifestTensor& stored = it->second;
    if (const std::string why = Difference(stored, t); !why.empty()) Fail(t.name, why);
    if (t.spec.box.elements() == 0) return;
    YM_CHECK(t.tensor.data() != nullptr, "tensor ", t.name, " has no memory");
    int64_t filled = 0;
    for (const TensorPart& part : stored.parts) {
      const Box common = Intersect(part.box, t.spec.box);
      if (common.elements() == 0) continue;
      CopyPart(t, stored, part, common);
      filled += common.elements();
    }
    // The parts tile the tensor (manifest.h), so that only a box outside of it is not filled.
    YM_CHECK_EQ(filled, t.spec.box.elements(), "elements of tensor ", t.name, " box ", BoxText(t.spec.box));
  }

  uint64_t bytes() const { return bytes_; }
  std::vector<std::string> Unused() const {
    std::vector<std::string> out;
    for (const auto& [name, tensor] : manifest_.tensors)
      if (!asked_.count(name)) out.push_back(name);
    return out;
  }

 private:
  [[noreturn]] void Fail(const std::string& tensor, const std::string& what, const std::string& hint = "") {
    throw CheckpointError(StrCat("tensor '", tensor, "' ", what), path_, hint);
  }
  [[noreturn]] void FailMissing(const std::string& tensor) {
    std::vector<std::string> names;
    for (const auto& [name, t] : manifest_.tensors) names.push_back(name);
    const std::string near = NearestName(tensor, names);
    Fail(tensor, "is not in the checkpoint", near.empty() ? "" : StrCat("there is '", near, "'"));
  }

  // The file's own header must say what the manifest says.
  const SafetensorsFile& Open(const std::string& tensor, const ManifestTensor& stored,
                              const TensorPart& part) {
    auto& file = files_[part.file];
    if (!file) file = std::make_unique<SafetensorsFile>(JoinPath(path_, part.file));
    const SafetensorsFile::Entry& entry = file->Describe(tensor);
    if (entry.dtype != DTypeName(stored.dtype) || entry.shape != part.box.extent ||
        entry.offset != part.offset || entry.bytes != part.bytes) {
      Fail(tensor, StrCat("in ", part.file, " has ", entry.dtype, " ", Shape(entry.shape), " at ",
                          entry.offset, ", the manifest says ", DTypeName(stored.dtype), " ",
                          Shape(part.box.extent), " at ", part.offset));
    }
    return *file;
  }

  void CheckChunks(const std::string& tensor, const TensorPart& part, const std::byte* data, uint64_t begin,
                   uint64_t end) {
    const uint64_t chunk = manifest_.chunk_bytes;
    for (uint64_t c = begin / chunk; c * chunk < end; ++c) {
      const uint64_t bytes = std::min(chunk, part.bytes - c * chunk);
      const uint32_t crc = Crc32c(data + c * chunk, bytes);
      if (crc != part.chunk_crc32c[c])
        Fail(
            tensor,
            StrFormat("in %s has crc32c %08x at bytes %llu to %llu of the file, the manifest says %08x",
                      part.file.c_str(), crc, static_cast<unsigned long long>(part.offset + c * chunk),
                      static_cast<unsigned long long>(part.offset + c * chunk + bytes), part.chunk_crc32c[c]),
            "the file is damaged; an older checkpoint may be chosen with checkpoint.resume");
      bytes_ += bytes;
    }
  }

  void CopyPart(const StateTensor& t, const ManifestTensor& stored, const TensorPart& part,
                const Box& common) {
    const std::byte* data = Open(t.name, stored, part).Bytes(t.name);
    const int64_t size = DTypeBytes(stored.dtype);
    std::vector<int64_t> last = common.begin;
    for (size_t i = 0; i < last.size(); ++i) last[i] += common.extent[i] - 1;
    CheckChunks(t.name, part, data, static_cast<uint64_t>(ElementOffset(part.box, common.begin) * size),
                static_cast<uint64_t>((ElementOffset(part.box, last) + 1) * size));
    char* to = static_cast<char*>(t.tensor.data());
    ForEachRun(common, part.box, t.spec.box, [&](int64_t source, int64_t target, int64_t n) {
      device_.CopyFromHost(to + target * size, data + source * size, static_cast<size_t>(n * size));
    });
  }

  std::string path_;
  Device& device_;
  Manifest manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  std::set<std::string> asked_;
  uint64_t bytes_ = 0;
};

}  // namespace

LoadReport LoadCheckpoint(const std::string& checkpoint_path, const std::vector<StateTensor>& tensors,
                          Device& device, Agreement& world) {
  LoadReport report;
  std::vector<std::string> unused;
  ThrowIfFailed(AttemptOnAll(world, [&] {
    Loader loader(checkpoint_path, device);
    for (const StateTensor& t : tensors) loader.Load(t);
    report.bytes = loader.bytes();
    unused = loader.Unused();
  }));
  // Unused is what every rank left: rank 0 counts who left what.
  const std::vector<std::string> all = world.Gather(Json(unused).dump());
  std::map<std::string, int> ranks;
  for (const std::string& text : all)
    for (const std::string name : Json::parse(text)) ++ranks[name];
  std::vector<std::string> by_all;
  for (const auto& [name, count] : ranks)
    if (count == world.size()) by_all.push_back(name);
  for (const std::string name : Json::parse(world.Broadcast(Json(by_all).dump())))
    report.unused.push_back(name);
  return report;
}

std::string CheckpointMismatch(const std::string& checkpoint_path, const std::vector<StateTensor>& tensors) {
  const Manifest manifest = OpenManifest(checkpoint_path);
  for (const StateTensor& t : tensors) {
    if (t.spec.global_shape.elements() == 0) continue;
    const auto it = manifest.tensors.find(t.name);
    const std::string why = it == manifest.tensors.end() ? "is not in the checkpoint" : Difference(it->second, t);
    if (!why.empty()) return StrCat("tensor '", t.name, "' ", why);
  }
  return "";
}

std::map<std::string, std::string> LoadCheckpointText(const std::string& checkpoint_path, Agreement& world) {
  Json texts = Json::array();
  ThrowIfFailed(AttemptOnFirst(world, [&] {
    const Manifest manifest = OpenManifest(checkpoint_path);
    for (const std::string& name : manifest.text) {
      VerifyFile(checkpoint_path, name, manifest.files.at(name));
      texts.push_back(name);
    }
  }));
  std::map<std::string, std::string> out;
  for (const std::string name : Json::parse(world.Broadcast(texts.dump()))) {
    // Texts may hold any bytes, which JSON may not: each is sent by itself.
    std::string text;
    ThrowIfFailed(AttemptOnFirst(world, [&] { text = ReadFile(JoinPath(checkpoint_path, name)); }));
    out[name] = world.Broadcast(text);
  }
  return out;
}

}  // namespace yardmaster
