#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/hash.h"
#include "src/checkpoint/layout.h"
#include "src/checkpoint/load.h"
#include "src/checkpoint/manifest.h"
#include "src/checkpoint/save.h"
#include "src/tensor/safetensors.h"
#include "tests/catch.h"
#include "tests/checkpoint/state_fixture.h"

namespace yardmaster {
namespace {

using namespace testing;

TEST_CASE("what one, two and four ranks save, any other number loads, bit for bit") {
  for (const int from : {1, 2, 4}) {
    const TempDir dir;
    const SaveResult saved = SaveState(dir.path(), 7, 1, from);
    REQUIRE(saved.ok);
    CHECK(saved.path == dir / "step_00000007");
    CHECK(saved.warnings.empty());
    for (const int to : {1, 2, 3, 4, 8}) {
      INFO(from << " -> " << to);
      CHECK(LoadedWrong(saved.path, 1, to) == 0);
      CHECK(LoadedWrong(saved.path, 2, to) > 0);
    }
  }
}

TEST_CASE("four to one to two: resharding through a save loses nothing") {
  const TempDir dir;
  REQUIRE(SaveState(dir.path(), 1, 5, 4).ok);
  RankState one(0, 1);
  HostDevice device;
  SingleProcess alone;
  LoadCheckpoint(dir / "step_00000001", one.tensors, device, alone);
  REQUIRE(SaveCheckpoint({dir.path()}, ContentsOf(one, 2), device, alone).ok);
  CHECK(LoadedWrong(dir / "step_00000002", 5, 2) == 0);
}

TEST_CASE("a checkpoint is safetensors files and a manifest; a replica is written once") {
  const TempDir dir;
  const SaveResult saved = SaveState(dir.path(), 7, 1, 2);
  REQUIRE(saved.ok);
  CHECK(ListDirectory(dir.path()) == std::vector<std::string>{"LATEST", "step_00000007"});
  CHECK(ReadFile(dir / "LATEST") == "step_00000007\n");
  CHECK(ListDirectory(saved.path) == std::vector<std::string>{"config.yaml", "manifest.json",
                                                              "shard_00000.safetensors",
                                                              "shard_00001.safetensors", "trainer.json"});
  const SafetensorsFile first(JoinPath(saved.path, ShardFileName(0))),
      second(JoinPath(saved.path, ShardFileName(1)));
  CHECK(first.Has("dense"));
  CHECK_FALSE(second.Has("dense"));
  CHECK(first.Get("layers.0.experts").shape() == Shape{4, 3, 4});
  CHECK(second.metadata().at("boxes").find(R"("columns":{"begin":[0,6],"shape":[4,12]})") !=
        std::string::npos);
  CHECK(second.metadata().at("step") == "7");

  const Manifest manifest = OpenManifest(saved.path);
  CHECK(manifest.step == 7);
  CHECK(manifest.world == 2);
  CHECK(manifest.text == std::vector<std::string>{"config.yaml", "trainer.json"});
  Sha256 sha;
  sha.Update("run:\n  dir: x\n");
  CHECK(manifest.config_sha256 == sha.HexDigest());
  CHECK(manifest.tensors.at("layers.0.experts").parts.size() == 2);
  CHECK(manifest.tensors.at("layers.0.experts").shape == Shape{8, 3, 4});
  CHECK(manifest.tensors.at("dense").parts.size() == 1);
  CHECK(manifest.tensors.at("dense").parts[0].chunk_crc32c.size() == 4);  // 120 bytes in chunks of 32
  uint64_t bytes = FileSize(JoinPath(saved.path, kManifestName));
  for (const auto& [name, file] : manifest.files) {
    VerifyFile(saved.path, name, file);
    bytes += file.bytes;
  }
  CHECK(saved.bytes == bytes);
}

TEST_CASE("texts come back on every rank, any bytes") {
  const TempDir dir;
  RankState state(0, 1);
  HostDevice device;
  SingleProcess alone;
  CheckpointContents contents = ContentsOf(state, 3);
  contents.text["raw"] = std::string("\xff\0\n\x80", 4);
  contents.text["empty"] = "";
  REQUIRE(SaveCheckpoint({dir.path()}, contents, device, alone).ok);
  ThreadWorld world(2);
  world.Run([&](Agreement& agreement) {
    if (LoadCheckpointText(dir / "step_00000003", agreement) != contents.text)
      throw std::runtime_error("texts differ");
  });
  WriteFileAtomically(dir / "step_00000003/trainer.json", "{\"step\":4}");
  const std::string text = ErrorText([&] { LoadCheckpointText(dir / "step_00000003", alone); });
  CHECK(Contains(text, "trainer.json"));
  CHECK(Contains(text, "crc32c"));
}

TEST_CASE("the same step can be saved again; the new state replaces the old") {
  const TempDir dir;
  REQUIRE(SaveState(dir.path(), 5, 1).ok);
  REQUIRE(SaveState(dir.path(), 5, 2).ok);
  CHECK(LoadedWrong(dir / "step_00000005", 2) == 0);
  CHECK(ListDirectory(dir.path()) == std::vector<std::string>{"LATEST", "step_00000005"});
}

TEST_CASE("a load that does not fit is refused, and says what it is about") {
  const TempDir dir;
  REQUIRE(SaveState(dir.path(), 1, 1, 2).ok);
  const std::string path = dir / "step_00000001";
  HostDevice device;
  SingleProcess alone;
  const auto load = [&](const std::string& name, DType dtype, const Shape& shape) {
    const HostTensor memory(dtype, shape);
    return ErrorText([&] {
      LoadCheckpoint(path, {{name, memory.view(), ShardSpec::Replicated(shape)}}, device, alone);
    });
  };
  CHECK(load("dense", DType::kF32, {6, 5}).empty());
  std::string text = load("dens", DType::kF32, {6, 5});
  CHECK(Contains(text, "tensor 'dens' is not in the checkpoint"));
  CHECK(Contains(text, "there is 'dense'"));
  text = load("dense", DType::kBF16, {6, 5});
  CHECK(Contains(text, "has dtype F32 in the checkpoint, BF16 here"));
  CHECK(Contains(text, path));
  text = load("dense", DType::kF32, {5, 6});
  CHECK(Contains(text, "has shape [6, 5] in the checkpoint, [5, 6] here"));

  const HostTensor memory(DType::kF32, {6, 5});
  const LoadReport report =
      LoadCheckpoint(path, {{"dense", memory.view(), ShardSpec::Replicated({6, 5})}}, device, alone);
  CHECK(report.unused ==
        std::vector<std::string>{"adamw.m/dense", "columns", "last_stage", "layers.0.experts", "scalar"});
  CHECK(report.bytes == 120);
  // With two ranks only what neither asks for is unused.
  ThreadWorld world(2);
  world.Run([&](Agreement& agreement) {
    RankState state(agreement.rank(), 2);
    std::vector<StateTensor> wanted;
    for (const StateTensor& t : state.tensors)
      if (t.name == (agreement.rank() == 0 ? "dense" : "last_stage")) wanted.push_back(t);
    const LoadReport both = LoadCheckpoint(path, wanted, device, agreement);
    if (both.unused != std::vector<std::string>{"adamw.m/dense", "columns", "layers.0.experts", "scalar"})
      throw std::runtime_error("unused differs");
  });
}

TEST_CASE("only the chunks that a box needs are read") {
  const TempDir dir;
  REQUIRE(SaveState(dir.path(), 1, 1).ok);
  HostDevice device;
  SingleProcess alone;
  const HostTensor rows(DType::kF64, {2, 2});
  const StateTensor part = {
      "adamw.m/dense", rows.view(), {{13, 2}, {{4, 0}, {2, 2}}}};  // bytes 64 to 96 of 208
  CHECK(LoadCheckpoint(dir / "step_00000001", {part}, device, alone).bytes == 32);
}

TEST_CASE("a flipped bit in any byte of a shard never reaches the weights unnoticed") {
  const TempDir dir;
  REQUIRE(SaveState(dir.path(), 1, 1).ok);
  const std::string shard = dir / "step_00000001/shard_00000.safetensors";
  const std::string good = ReadFile(shard);
  const SafetensorsFile* header = nullptr;
  uint64_t data_begin = good.size();
  {
    const SafetensorsFile file(shard);
    header = &file;
    for (const std::string& name : header->names())
      data_begin = std::min(data_begin, header->Describe(name).offset);
  }
  for (size_t i = 0; i < good.size(); i += i < data_begin ? 5 : 1) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    FileWriter writer(shard);
    writer.Write(bad);
    writer.Close(false);
    const std::string found = ErrorText([&] { Find(dir.path()); });  // the only checkpoint
    REQUIRE(Contains(found, "shard_00000.safetensors"));
    int64_t wrong = 0;
    const std::string loaded = ErrorText([&] { wrong = LoadedWrong(dir / "step_00000001", 1); });
    INFO("byte " << i << ": " << loaded);
    if (i >= data_begin) REQUIRE(Contains(loaded, "crc32c"));
    REQUIRE(wrong == 0);  // a flip in the header's metadata may load, but then rightly
  }
}

void CheckRefusedSave(const std::function<void(int rank, CheckpointContents*)>& change,
                      const std::string& reason) {
  const TempDir dir;
  ThreadWorld world(2);
  std::vector<std::string> texts(2);
  world.Run([&](Agreement& agreement) {
    RankState state(agreement.rank(), 2);
    CheckpointContents contents = ContentsOf(state, 4);
    change(agreement.rank(), &contents);
    HostDevice device;
    texts[static_cast<size_t>(agreement.rank())] =
        ErrorText([&] { SaveCheckpoint({dir.path()}, contents, device, agreement); });
  });
  INFO(texts[0] << " should have: " << reason);
  CHECK(Contains(texts[0], reason));
  CHECK(texts[0] == texts[1]);
  CHECK(ListDirectory(dir.path()).empty());
}

StateTensor* Named(CheckpointContents* contents, const std::string& name) {
  for (StateTensor& t : contents->tensors)
    if (t.name == name) return &t;
  return nullptr;
}

TEST_CASE(
    "tensors that do not tile their global shapes are refused on all ranks before anything is written") {
  CheckRefusedSave(
      [](int rank, CheckpointContents* c) {
        if (rank == 1) c->step = 5;
      },
      "rank 1 saves step 5");
  CheckRefusedSave(
      [](int rank, CheckpointContents* c) {
        if (rank == 1) Named(c, "layers.0.experts")->spec.box.begin[0] = 3;
      },
      "tensor 'layers.0.experts': rank 0 has [0:4, 0:3, 0:4] and rank 1 has [3:7, 0:3, 0:4], which overlap");
  CheckRefusedSave(
      [](int rank, CheckpointContents* c) {
        if (rank == 1) Named(c, "layers.0.experts")->spec.box.begin[0] = 5;
      },
      "lies outside");
  CheckRefusedSave(
      [](int rank, CheckpointContents* c) {  // both hold the first half, as renumbered experts would
        if (rank == 1) Named(c, "layers.0.experts")->spec.box.begin[0] = 0;
      },
      "hold 48 of the 96 elements");
  CheckRefusedSave(
      [](int, CheckpointContents* c) {
        StateTensor* t = Named(c, "columns");
        t->spec.global_shape = {4, 13};
      },
      "hold 48 of the 52 elements");
  CheckRefusedSave(
      [](int rank, CheckpointContents* c) {
        StateTensor* t = Named(c, "dense");
        if (rank == 1) t->tensor = Tensor(t->tensor.data(), DType::kI32, t->tensor.shape());
      },
      "rank 1 has I32 [6, 5], rank 0 has F32 [6, 5]");
  CheckRefusedSave(
      [](int rank, CheckpointContents* c) {
        if (rank != 0) return;
        StateTensor half = *Named(c, "columns");
        half.spec.box.begin[1] = 6;
        c->tensors.push_back(half);
      },
      "rank 0 holds two boxes of it");
}

TEST_CASE("options and texts that make no sense are refused") {
  const TempDir dir;
  RankState state(0, 1);
  HostDevice device;
  SingleProcess alone;
  for (const int64_t keep : {1, -1}) {
    const std::string text = ErrorText(
        [&] {
          SaveCheckpoint({dir.path(), keep}, ContentsOf(state, 1), device, alone);
        },
        ExitCode::kConfig);
    CHECK(Contains(text, "checkpoint.keep_latest"));
  }
  CheckpointContents contents = ContentsOf(state, 1);
  contents.text["../x"] = "";
  CHECK_THROWS_AS(SaveCheckpoint({dir.path()}, contents, device, alone), Error);
}

}  // namespace
}  // namespace yardmaster
