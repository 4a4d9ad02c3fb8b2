// File: tests/checkpoint/state_fixture.h
//
// A small training state that can be laid out on any number of ranks. The value of an element depends on its
// tensor's name, its global index and a salt only, so that what a rank holds can be checked whatever layout
// wrote it.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "src/base/check.h"
#include "src/base/philox.h"
#include "src/checkpoint/find.h"
#include "src/checkpoint/load.h"
#include "src/checkpoint/save.h"
#include "src/device/device.h"
#include "src/tensor/state.h"
#include "tests/base/temp_dir.h"
#include "tests/base/thread_world.h"

namespace yardmaster::testing {

// Host memory behind the interface of a device.
class HostDevice : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string description() const override { return "host memory for tests"; }
  void* Allocate(size_t bytes) override { return ::operator new(bytes); }
  void Free(void* pointer) noexcept override { ::operator delete(pointer); }
  void CopyToHost(void* host, const void* device, size_t bytes) override {
    YM_CHECK_LE(bytes, max_staging);
    std::memcpy(host, device, bytes);
  }
  void CopyFromHost(void* device, const void* host, size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  size_t max_staging = size_t{1} << 40;
};

// What one rank of `size` holds.
class RankState {
 public:
  RankState(int rank, int size) {
    const auto cut = [&](int64_t n) { return std::pair(n * rank / size, n * (rank + 1) / size); };
    Add("dense", DType::kF32, {6, 5}, Box::Whole({6, 5}));  // a replica on every rank
    Add("scalar", DType::kI64, Shape(), Box::Whole(Shape()));
    const auto [e0, e1] = cut(8);
    Add("layers.0.experts", DType::kBF16, {8, 3, 4}, {{e0, 0, 0}, {e1 - e0, 3, 4}});
    // ZeRO: rows in blocks of 5, so that a rank of many has none.
    const auto [z0, z1] = cut(3);
    const int64_t r0 = std::min<int64_t>(13, z0 * 5), r1 = std::min<int64_t>(13, z1 * 5);
    Add("adamw.m/dense", DType::kF64, {13, 2}, {{r0, 0}, {r1 - r0, 2}});
    const auto [c0, c1] = cut(12);
    Add("columns", DType::kI32, {4, 12}, {{0, c0}, {4, c1 - c0}});
    if (rank == size - 1) Add("last_stage", DType::kU8, {5}, Box::Whole({5}));
    Add("nothing", DType::kF32, {0, 4}, Box::Whole({0, 4}));
  }

  void Fill(uint64_t salt) {
    ForEachByte(salt, [](unsigned char& byte, unsigned char value) { byte = value; });
  }
  // How many bytes are not those of Fill(salt).
  int64_t Wrong(uint64_t salt) {
    int64_t wrong = 0;
    ForEachByte(salt, [&](unsigned char& byte, unsigned char value) { wrong += byte != value; });
    return wrong;
  }
  std::vector<StateTensor> tensors;

 private:
  void Add(const std::string& name, DType dtype, const Shape& shape, const Box& box) {
    memory_.push_back(std::make_unique<HostTensor>(dtype, Shape(box.extent)));
    tensors.push_back({name, memory_.back()->view(), {shape, box}});
  }
  template <class F>
  void ForEachByte(uint64_t salt, F&& f) {
    for (const StateTensor& t : tensors) {
      const Box& box = t.spec.box;
      const int64_t size = DTypeBytes(t.tensor.dtype());
      for (int64_t e = 0; e < box.elements(); ++e) {
        // Local element number -> local indices -> global element number.
        std::vector<int64_t> at(box.extent.size());
        int64_t rest = e, global = 0;
        for (size_t i = at.size(); i-- > 0;)
          at[i] = rest % box.extent[i] + box.begin[i], rest /= box.extent[i];
        for (size_t i = 0; i < at.size(); ++i)
          global = global * t.spec.global_shape[static_cast<int>(i)] + at[i];
        const auto words = Philox4x32(salt, StreamOf(t.name.c_str()), static_cast<uint64_t>(global));
        for (int64_t b = 0; b < size; ++b)
          f(static_cast<unsigned char*>(t.tensor.data())[e * size + b],
            static_cast<unsigned char>(words[static_cast<size_t>(b / 4)] >> 8 * (b % 4)));
      }
    }
  }
  std::vector<std::unique_ptr<HostTensor>> memory_;
};

inline CheckpointContents ContentsOf(const RankState& state, int64_t step) {
  return {step,
          state.tensors,
          {{"config.yaml", "run:\n  dir: x\n"}, {"trainer.json", "{\"step\":" + std::to_string(step) + "}"}}};
}

// Saves the state of `ranks` ranks, filled by the salt, small chunks. Every rank must have the same result.
inline SaveResult SaveState(const std::string& dir, int64_t step, uint64_t salt, int ranks = 1,
                            int64_t keep = 2) {
  std::vector<SaveResult> results(static_cast<size_t>(ranks));
  ThreadWorld world(ranks);
  world.Run([&](Agreement& agreement) {
    RankState state(agreement.rank(), ranks);
    state.Fill(salt);
    HostDevice device;
    device.max_staging = 32;
    results[static_cast<size_t>(agreement.rank())] =
        SaveCheckpoint({dir, keep, /*chunk_bytes=*/32}, ContentsOf(state, step), device, agreement);
  });
  for (const SaveResult& r : results) {
    YM_CHECK(r.ok == results[0].ok && r.reason == results[0].reason && r.code == results[0].code,
             "ranks disagree");
    YM_CHECK_EQ(r.bytes, results[0].bytes);
  }
  return results[0];
}

// Bytes that differ from the salt's, over all ranks, after loading the checkpoint on `ranks` ranks.
inline int64_t LoadedWrong(const std::string& path, uint64_t salt, int ranks = 1) {
  std::vector<int64_t> wrong(static_cast<size_t>(ranks));
  ThreadWorld world(ranks);
  world.Run([&](Agreement& agreement) {
    RankState state(agreement.rank(), ranks);
    state.Fill(salt + 999);
    HostDevice device;
    const LoadReport report = LoadCheckpoint(path, state.tensors, device, agreement);
    YM_CHECK(report.unused.empty());
    wrong[static_cast<size_t>(agreement.rank())] = state.Wrong(salt);
  });
  int64_t total = 0;
  for (const int64_t w : wrong) total += w;
  return total;
}

inline FoundCheckpoint Find(const std::string& dir, const std::string& resume = "auto", bool full = true) {
  SingleProcess alone;
  return FindCheckpoint({dir, ParseResume(resume), full}, alone);
}

// The message of the Error that `body` throws, which must have the code; "" if it throws none.
template <class F>
std::string ErrorText(F&& body, ExitCode code = ExitCode::kCheckpoint) {
  try {
    body();
  } catch (const Error& error) {
    return error.code() == code ? error.what() : "another exit code: " + std::string(error.what());
  }
  return "";
}

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace yardmaster::testing
