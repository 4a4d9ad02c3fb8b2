// File: tools/bench_ops/bench_op.h
//
// What `yardmaster bench OP` needs to know of an op: its tensors, its calls over them, and the fewest bytes
// and operations that each must take. One declaration serves three ends: small random sizes against the cpu
// device in double, large sizes against the clock, and the dry device, which says how much workspace they
// need.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/device/arena.h"
#include "src/device/device.h"

namespace yardmaster {

struct BenchSizes {
  int64_t B = 2, S = 4096;  // samples and their tokens; T = B S
  int64_t hidden = 7168;    // D
  int64_t experts = 32, top_k = 8, groups = 8, topk_groups = 4;
  int64_t ffn = 2048;   // F, of an expert
  int64_t heads = 128;  // of multi-head latent attention: keys of nope + rope, values of v
  int64_t nope = 128, rope = 64, v = 128;
  int64_t gqa_heads = 32, gqa_groups = 4, gqa_width = 128;
  int64_t vocab = 129280;
  int64_t spare_rows = 4096;  // of a window, beyond the routed rows
  uint64_t seed = 1;
  int64_t T() const { return B * S; }
  int64_t routed() const { return T() * top_k; }
  int64_t window() const { return routed() + spare_rows; }  // R
};
// DeepSeek-V3 at full width with 32 experts, as on one GPU; attention with grouped queries: Qwen3-30B-A3B.
BenchSizes ProxySizes(int64_t tokens);
// Small ones, odd and even, that the cpu device computes in a moment.
BenchSizes RandomSizes(uint64_t seed);

// kWork: BF16 or F32 as asked, kAccum: F32 beside BF16; both F64 in the reference. The others are what they say.
enum class BenchType : uint8_t { kWork, kAccum, kI32, kI64, kBF16, kF32, kF64, kU8 };

struct BenchBuffer {
  std::string name;
  Shape shape;
  BenchType type = BenchType::kWork;
  double scale = 0;                 // of standard normal values; 0 and no values: an output, poisoned
  std::vector<double> values = {};  // instead of random ones; of kU8: bytes
  int64_t used = -1;                // entries of the first axis that the op may touch; -1: all
  // How values are read for a comparison where bytes are not numbers.
  std::function<std::vector<double>(const void*)> decode = {};
};

// The tensors of one execution, by name.
class BenchRun {
 public:
  BenchRun(const Stream& stream, Arena& work, std::map<std::string, Tensor> tensors)
      : stream_(stream), work_(work), tensors_(std::move(tensors)) {}
  Tensor operator[](const std::string& name) const {
    const auto at = tensors_.find(name);
    YM_CHECK(at != tensors_.end(), "a benched op has no tensor ", name);
    return at->second;
  }
  const Stream& stream() const { return stream_; }
  Arena& work() const { return work_; }

 private:
  Stream stream_;
  Arena& work_;
  std::map<std::string, Tensor> tensors_;
};

// A tensor that must be read or written: this part of its used entries. Twice for one that is read and
// written.
struct BenchMove {
  std::string buffer;
  double share = 1;
};

struct BenchCall {
  std::string name;  // forward, backward, ...
  std::function<void(const BenchRun&)> run;
  std::vector<std::string> outputs;  // compared with the reference; integers must be equal
  std::vector<BenchMove> moves;
  double flops = 0;              // 0: bound by memory; else compared with a large product
  double tolerance_bf16 = 1e-2;  // relative L2: operands and outputs rounded to 8 bits; typically 4e-3
  double tolerance_f32 = 1e-5;   // other orders of sums than the reference, which is in double
};

// Calls run in order, each on what those before it left.
struct BenchOp {
  std::string sizes;  // for the report
  std::vector<BenchBuffer> buffers;
  std::vector<BenchCall> calls;
};

struct BenchOpEntry {
  std::string name, summary;
  BenchOp (*make)(const BenchSizes& sizes);
};
// Every op, in the order of a step. Declared in tools/bench_ops/ops/.
const std::vector<BenchOpEntry>& BenchOps();

}  // namespace yardmaster
