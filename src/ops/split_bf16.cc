#include "src/ops/split_bf16.h"

#include "src/ops/cpu/split_bf16_cpu.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/split_bf16_cuda.h"
#endif

namespace yardmaster {
namespace {

constexpr size_t kMost = 4;

}  // namespace

void SplitBf16(const Stream& stream, const Tensor& x, const std::vector<SplitOutput>& outputs) {
  const OpArgs check(stream, "SplitBf16");
  check.Rank("x", x, 2);
  check.Strided("x", x, DType::kF32, x.shape());
  YM_CHECK_LE(outputs.size(), kMost);
  for (const auto& [y, term] : outputs) {
    check.Strided("y", y, DType::kBF16, x.shape());
    YM_CHECK(0 <= term && term < 3, "SplitBf16: term ", term);
  }
  if (stream.dry() || x.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::SplitBf16(x, outputs);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::SplitBf16(stream, x, outputs);
#endif
  check.NoImplementation();
}

void AddTerms(const Stream& stream, const std::vector<Tensor>& terms, double beta, const Tensor& y) {
  const OpArgs check(stream, "AddTerms");
  check.Rank("y", y, 2);
  check.Strided("y", y, DType::kF32, y.shape());
  YM_CHECK(!terms.empty() && terms.size() <= kMost, "AddTerms of ", terms.size());
  for (const Tensor& term : terms) check.Strided("term", term, DType::kF32, y.shape());
  if (stream.dry() || y.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::AddTerms(terms, beta, y);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::AddTerms(stream, terms, beta, y);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
