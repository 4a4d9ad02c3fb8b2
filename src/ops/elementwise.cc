#include "src/ops/elementwise.h"

#include "src/ops/cpu/elementwise_cpu.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/elementwise_cuda.h"
#endif

namespace yardmaster {

void Fill(const Stream& stream, double value, const Tensor& y) {
  const OpArgs check(stream, "Fill");
  check.Contiguous("y", y, y.dtype(), y.shape());
  check.Traffic({&y}, {y.elements()});
  if (stream.dry() || y.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::Fill(stream, value, y);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::Fill(stream, value, y);
#endif
  check.NoImplementation();
}

void Add(const Stream& stream, const Tensor& a, const Tensor& b, const Tensor& y) {
  const OpArgs check(stream, "Add");
  const DType type = check.WorkType("a", a);
  check.Contiguous("a", a, type, a.shape());
  check.Contiguous("b", b, type, a.shape());
  check.Contiguous("y", y, type, a.shape());
  check.Traffic({&a, &b, &y}, {y.elements()});
  if (stream.dry() || y.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::Add(stream, a, b, y);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::Add(stream, a, b, y);
#endif
  check.NoImplementation();
}

void Copy(const Stream& stream, const Tensor& x, const Tensor& y) {
  const OpArgs check(stream, "Copy");
  check.Strided("x", x, x.dtype(), x.shape());
  check.Strided("y", y, y.dtype(), x.shape());
  const auto floating = [](const Tensor& t) {
    return t.dtype() == DType::kF32 || t.dtype() == DType::kF64 || t.dtype() == DType::kBF16;
  };
  YM_CHECK(x.dtype() == y.dtype() || (floating(x) && floating(y)), "Copy: no conversion from ", DTypeName(x.dtype()), " to ",
           DTypeName(y.dtype()));
  check.Traffic({&x, &y}, {y.elements()});
  if (stream.dry() || y.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::Copy(stream, x, y);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::Copy(stream, x, y);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
