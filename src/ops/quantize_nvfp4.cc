#include "src/ops/quantize_nvfp4.h"

#include "src/ops/cpu/quantize_nvfp4_cpu.h"
#include "src/ops/quantize_checks.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/quantize_nvfp4_cuda.h"
#endif

namespace yardmaster {
namespace {

void CheckCodes(const Stream& stream, const OpArgs& check, const Nvfp4Args& g, int64_t R, int64_t C) {
  const int64_t unit = stream.target() == DeviceKind::kCuda ? kNvfp4Run : 2;
  YM_CHECK(C % unit == 0, C, " columns, not a multiple of ", unit);
  check.Contiguous("amax", g.amax, DType::kF32, {1});
  check.Contiguous("codes", g.codes, DType::kU8, {R, C / 2});
  check.Contiguous("scales", g.scales, DType::kU8, {R, (C + kNvfp4Run - 1) / kNvfp4Run});
}

}  // namespace

void AbsMax(const Stream& stream, const Tensor& x, const Tensor& out) {
  const OpArgs check(stream, "AbsMax");
  CheckHigh(check, "x", x, 2);
  check.Contiguous("out", out, DType::kF32, {1});
  if (stream.dry()) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::AbsMax(x, out);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::AbsMax(stream, x, out);
#endif
  check.NoImplementation();
}

void QuantizeNvfp4(const Stream& stream, const Nvfp4Args& g) {
  const OpArgs check(stream, "QuantizeNvfp4");
  CheckHigh(check, "x", g.x, 2);
  CheckCodes(stream, check, g, g.x.dim(0), g.x.dim(1));
  if (stream.dry() || g.x.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::QuantizeNvfp4(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::QuantizeNvfp4(stream, g);
#endif
  check.NoImplementation();
}

void DequantizeNvfp4(const Stream& stream, const Nvfp4Args& g, const Tensor& out) {
  const OpArgs check(stream, "DequantizeNvfp4");
  CheckHigh(check, "out", out, 2);
  YM_CHECK(out.contiguous(), "out ", out.shape(), " is strided");
  CheckCodes(stream, check, g, out.dim(0), out.dim(1));
  if (stream.dry() || out.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::DequantizeNvfp4(stream, g, out);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::DequantizeNvfp4(stream, g, out);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
