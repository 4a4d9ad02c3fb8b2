#include "tools/commands/bench_grouped_gemm.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/error.h"
#include "src/base/philox.h"
#include "src/base/strings.h"
#include "src/device/arena.h"
#include "src/device/cuda/make_cuda_device.h"
#include "src/ops/gemm.h"
#include "src/ops/grouped_gemm.h"
#include "src/ops/scaled_gemm.h"
#include "tools/commands/routing_counts.h"

#if YM_HAVE_CUDA
#include "src/device/cuda/cuda_device.h"
#endif

namespace yardmaster {

namespace {

constexpr const char* kUsage = "yardmaster bench grouped-gemm --help";

// Weight gradients of quantised operands are FP32.
bool Runs(const BenchGroupedGemmOptions& o, const std::string& op) {
  return o.precision == "bf16" || op.find("bf16") == std::string::npos;
}

void Validate(const BenchGroupedGemmOptions& o) {
  if (o.rows < 1 || o.experts < 1 || o.n < 1 || o.k < 1)
    throw ConfigError("--rows, --experts, --n and --k must be at least 1", "", kUsage);
  if (o.pairs < 7)
    throw ConfigError("--pairs must be at least 7, so that their median means something", "",
                      kUsage);
  if (o.precision != "bf16" && o.precision != "fp8_block")
    throw ConfigError("unknown precision '" + o.precision + "'", "", "one of bf16, fp8_block");
  if (o.precision == "fp8_block" && (o.n % 16 != 0 || o.k % 16 != 0))
    throw ConfigError("--n and --k must be multiples of 16 with --precision fp8_block", "", kUsage);
  for (const std::string& op : o.ops) {
    const auto& known = BenchGroupedGemmOps();
    if (std::find(known.begin(), known.end(), op) == known.end())
      throw ConfigError("unknown op '" + op + "'", "", "one of " + StrJoin(known, ", "));
    if (!Runs(o, op))
      throw ConfigError(op + " has no fp8_block version: its weight gradients are FP32", "",
                        kUsage);
  }
}

double Tflops(const BenchGroupedGemmOptions& o, double ms) {
  return 2e-9 * static_cast<double>(o.rows) * static_cast<double>(o.n) * static_cast<double>(o.k) /
         ms;
}

#if YM_HAVE_CUDA

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

using Call = std::function<void()>;

class Bench {
 public:
  explicit Bench(const BenchGroupedGemmOptions& options)
      : options_(options),
        device_(MakeCudaDevice({})),
        cuda_(static_cast<CudaDevice&>(*device_)),
        stream_(device_.get()),
        arena_("benchmark", device_.get()),
        counts_(RoutingCounts(options.routing, options.experts, options.rows)) {
    const int64_t R = options_.rows, L = options_.experts, N = options_.n, K = options_.k;
    const auto allocate = [&] {
      x_RK_ = arena_.Allocate("x", DType::kBF16, {R, K});
      dy_RN_ = arena_.Allocate("dy", DType::kBF16, {R, N});
      y_RN_ = arena_.Allocate("y", DType::kBF16, {R, N});
      dx_RK_ = arena_.Allocate("dx", DType::kBF16, {R, K});
      w_LNK_ = arena_.Allocate("w", DType::kBF16, {L, N, K});
      dw_LNK_ = arena_.Allocate("dw", DType::kF32, {L, N, K});
      dense_dw_NK_ = arena_.Allocate("dense dw", DType::kF32, {N, K});
      offsets_ = arena_.Allocate("offsets", DType::kI64, {L + 1});
      if (options_.precision == "bf16") return;
      const int64_t P = PaddedRows(R, L);
      x_rows_ = AllocateQuantized({R, K}), x_cols_ = AllocateQuantized({K, P});
      dy_rows_ = AllocateQuantized({R, N}), dy_cols_ = AllocateQuantized({N, P});
      w_rows_ = AllocateQuantized({L, N, K}), w_cols_ = AllocateQuantized({L, K, N});
    };
    allocate();  // measures
    const size_t bytes = arena_.high_water();
    arena_.Release(0);
    arena_.Commit(bytes);
    allocate();
    FillNormal(x_RK_, 1, 1.0);
    FillNormal(dy_RN_, 2, 1.0);
    FillNormal(w_LNK_, 3, 0.02);
    std::vector<int64_t> offsets = {0};
    for (int64_t count : counts_) offsets.push_back(offsets.back() + count);
    device_->CopyFromHost(offsets_.data(), offsets.data(), offsets.size() * sizeof(int64_t));
    if (options_.precision == "bf16") return;
    QuantizeRows(stream_, {kFormat, x_RK_, offsets_, x_rows_, x_cols_});
    QuantizeRows(stream_, {kFormat, dy_RN_, offsets_, dy_rows_, dy_cols_});
    QuantizeWeights(stream_, {kFormat, w_LNK_, w_rows_, w_cols_});
  }

  std::string description() const { return device_->description(); }
  const std::vector<int64_t>& counts() const { return counts_; }

  BenchGroupedGemmResult Measure(const std::string& op) {
    BenchGroupedGemmResult result;
    result.op = op;
    const Call ours =
        options_.precision == "bf16" ? Grouped(op, GroupedGemmMode::kAuto) : Scaled(op);
    Compare(ours, Dense(op), &result.ms, &result.dense_ms, &result.dense_ratio);
    if (options_.loop) {
      double again = 0;
      Compare(ours, Grouped(op, GroupedGemmMode::kLoop), &again, &result.loop_ms,
              &result.loop_ratio);
    }
    return result;
  }

 private:
  static constexpr QuantFormat kFormat{QuantKind::kFp8Block, true};

  Quantized AllocateQuantized(const Shape& codes) {
    const Shape scales = codes.rank() == 3 ? WeightScaleShape(kFormat, codes[0], codes[1], codes[2])
                                           : ScaleShape(kFormat, codes[0], codes[1]);
    return {arena_.Allocate("codes", DType::kU8, codes),
            arena_.Allocate("scales", DType::kF32, scales)};
  }

  // A block of random values, again and again: its odd length keeps rows from being alike.
  void FillNormal(const Tensor& t, uint64_t seed, double scale) {
    constexpr int64_t kBlock = 1'000'003;
    std::vector<BFloat16> block(static_cast<size_t>(kBlock));
    for (size_t i = 0; i < block.size(); ++i)
      block[i] = BFloat16(static_cast<float>(PhiloxNormal(seed, StreamOf("bench"), i) * scale));
    for (int64_t at = 0; at < t.elements(); at += kBlock) {
      const int64_t count = std::min(kBlock, t.elements() - at);
      device_->CopyFromHost(t.as<BFloat16>() + at, block.data(),
                            static_cast<size_t>(count) * sizeof(BFloat16));
    }
  }

  static double Beta(const std::string& op) { return op.ends_with("beta1") ? 1.0 : 0.0; }
  static DType GradientType(const std::string& op) {
    return op.find("fp32") != std::string::npos ? DType::kF32 : DType::kBF16;
  }

  Call Grouped(const std::string& op, GroupedGemmMode mode) {
    if (op == "forward")
      return [=, this] { GroupedGemmForward(stream_, x_RK_, w_LNK_, offsets_, y_RN_, mode); };
    if (op == "dgrad") {
      return
          [=, this] { GroupedGemmBackwardInput(stream_, dy_RN_, w_LNK_, offsets_, dx_RK_, mode); };
    }
    const Tensor dw(dw_LNK_.data(), GradientType(op), dw_LNK_.shape());
    const double beta = Beta(op);
    return
        [=, this] { GroupedGemmBackwardWeight(stream_, dy_RN_, x_RK_, offsets_, beta, dw, mode); };
  }

  Call Scaled(const std::string& op) {
    if (op.starts_with("wgrad")) {
      return [=, this] {
        ScaledGemmWeight(stream_,
                         {.format = kFormat,
                          .rows = options_.rows,
                          .dy = dy_cols_,
                          .x = x_cols_,
                          .offsets = offsets_,
                          .dw = dw_LNK_,
                          .beta = Beta(op)},
                         arena_);
      };
    }
    const bool forward = op == "forward";
    return [=, this] {
      ScaledGemm(stream_,
                 {.format = kFormat,
                  .x = forward ? x_rows_ : dy_rows_,
                  .w = forward ? w_rows_ : w_cols_,
                  .offsets = offsets_,
                  .y = forward ? y_RN_ : dx_RK_},
                 arena_);
    };
  }

  Call Dense(const std::string& op) {
    GemmArgs args;
    if (op == "forward") {
      args = {.a = x_RK_, .b = w_LNK_.At(0), .d = y_RN_, .trans_b = true};
    } else if (op == "dgrad") {
      args = {.a = dy_RN_, .b = w_LNK_.At(0), .d = dx_RK_};
    } else {
      const Tensor dw(dense_dw_NK_.data(), GradientType(op), dense_dw_NK_.shape());
      args = {.a = dy_RN_, .b = x_RK_, .d = dw, .trans_a = true, .beta = Beta(op)};
    }
    return [=, this] { Gemm(stream_, args); };
  }

  double Elapsed(const Call& call) {
    const cudaStream_t stream = cuda_.compute_stream();
    Check(cudaEventRecord(begin_.get(), stream));
    call();
    Check(cudaEventRecord(end_.get(), stream));
    Check(cudaEventSynchronize(end_.get()));
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()));
    return static_cast<double>(ms);
  }

  void Compare(const Call& ours, const Call& other, double* ms, double* other_ms, double* ratio) {
    // Right before the pairs: a first call that loads kernels leaves the card idle, and a rested
    // card runs faster.
    for (int i = 0; i < 2; ++i) ours(), other();
    for (double spent = 0; spent < 1000 * options_.heat_seconds;) {
      spent += Elapsed([&] {
        for (int i = 0; i < 5; ++i) ours(), other();
      });
    }
    std::vector<double> a, b, ratios;
    for (int i = 0; i < options_.pairs; ++i) {
      const bool first = i % 2 == 0;
      const double one = Elapsed(first ? ours : other), two = Elapsed(first ? other : ours);
      a.push_back(first ? one : two);
      b.push_back(first ? two : one);
      ratios.push_back(b.back() / a.back());
    }
    *ms = Median(a);
    *other_ms = Median(b);
    *ratio = Median(ratios);
  }

  CudaEvent MakeEvent() {
    CudaEvent event;
    Check(cudaEventCreate(event.address()));
    return event;
  }
  void Check(cudaError_t result) const { cuda_.Check(result, "bench grouped-gemm", "event"); }

  const BenchGroupedGemmOptions& options_;
  std::unique_ptr<Device> device_;
  CudaDevice& cuda_;
  Stream stream_;
  Arena arena_;
  std::vector<int64_t> counts_;
  CudaEvent begin_ = MakeEvent(), end_ = MakeEvent();
  Tensor x_RK_, dy_RN_, y_RN_, dx_RK_, w_LNK_, dw_LNK_, dense_dw_NK_, offsets_;
  Quantized x_rows_, x_cols_, dy_rows_, dy_cols_, w_rows_, w_cols_;  // fp8_block
};

#endif

}  // namespace

const std::vector<std::string>& BenchGroupedGemmOps() {
  static const std::vector<std::string> ops = {"forward",          "dgrad",
                                               "wgrad-fp32-beta1", "wgrad-fp32-beta0",
                                               "wgrad-bf16-beta1", "wgrad-bf16-beta0"};
  return ops;
}

std::string BenchGroupedGemmText(const BenchGroupedGemmOptions& o, const std::string& device,
                                 const std::vector<int64_t>& counts,
                                 const std::vector<BenchGroupedGemmResult>& results) {
  if (o.json) {
    nlohmann::ordered_json out = {{"device", device},
                                  {"rows", o.rows},
                                  {"experts", o.experts},
                                  {"n", o.n},
                                  {"k", o.k},
                                  {"routing", o.routing},
                                  {"precision", o.precision},
                                  {"pairs", o.pairs},
                                  {"counts", counts},
                                  {"results", nlohmann::json::array()}};
    for (const BenchGroupedGemmResult& r : results) {
      nlohmann::ordered_json line = {{"op", r.op},
                                     {"ms", r.ms},
                                     {"tflops", Tflops(o, r.ms)},
                                     {"dense_ms", r.dense_ms},
                                     {"dense_ratio", r.dense_ratio}};
      if (o.loop) line.update({{"loop_ms", r.loop_ms}, {"loop_ratio", r.loop_ratio}});
      out["results"].push_back(line);
    }
    return out.dump(2) + "\n";
  }
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  std::string text =
      StrCat(device, "\n", o.rows, " rows, ", o.experts, " experts (", *least, " to ", *most,
             " rows each, ", o.routing, "), N ", o.n, ", K ", o.k, ", ", o.precision, "; ", o.pairs,
             " pairs\nTFLOP/s: 2 rows N K / time. ratio: median of its time / our time.\n");
  char line[160];
  std::snprintf(line, sizeof(line), "%-18s %9s %8s %10s %7s", "op", "ms", "TFLOP/s", "dense ms",
                "ratio");
  text += line;
  if (o.loop) text += "    loop ms   ratio";
  text += "\n";
  for (const BenchGroupedGemmResult& r : results) {
    std::snprintf(line, sizeof(line), "%-18s %9.3f %8.0f %10.3f %7.3f", r.op.c_str(), r.ms,
                  Tflops(o, r.ms), r.dense_ms, r.dense_ratio);
    text += line;
    if (o.loop) {
      std::snprintf(line, sizeof(line), " %10.3f %7.3f", r.loop_ms, r.loop_ratio);
      text += line;
    }
    text += "\n";
  }
  return text;
}

int RunBenchGroupedGemm(const BenchGroupedGemmOptions& options) {
  Validate(options);
  RoutingCounts(options.routing, options.experts, options.rows);  // throws here, GPU or not
  const CudaStatus status = CudaAvailability();
  if (status.usable == 0) throw ConfigError("bench grouped-gemm needs a GPU: " + status.reason);
#if YM_HAVE_CUDA
  Bench bench(options);
  std::vector<BenchGroupedGemmResult> results;
  for (const std::string& op : options.ops.empty() ? BenchGroupedGemmOps() : options.ops) {
    if (Runs(options, op)) results.push_back(bench.Measure(op));
  }
  std::fputs(BenchGroupedGemmText(options, bench.description(), bench.counts(), results).c_str(),
             stdout);
#endif
  return 0;
}

}  // namespace yardmaster
