#include "src/ops/adamw.h"

#include "src/ops/cpu/adamw_cpu.h"
#include "src/ops/op_args.h"
#include "src/ops/step_control.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/adamw_cuda.h"
#endif

namespace yardmaster {

void AdamWMulti(const Stream& stream, const std::vector<AdamWTensor>& tensors, const AdamWHyper& hyper, const Tensor& state) {
  const OpArgs check(stream, "AdamWMulti");
  check.Contiguous("state", state, DType::kU8, {static_cast<int64_t>(sizeof(StepState))});
  double bytes = 0;
  for (const AdamWTensor& t : tensors) {
    const DType type = check.ComputeType("master", t.master);
    const Shape& shape = t.master.shape();
    check.Contiguous("master", t.master, type, shape);
    check.Contiguous("grad", t.grad, check.ComputeType("grad", t.grad), shape);
    check.Contiguous("m", t.m, t.m.dtype(), shape);
    check.Contiguous("v", t.v, t.m.dtype(), shape);
    YM_CHECK(t.m.dtype() == DType::kBF16 || t.m.dtype() == DType::kF32 || t.m.dtype() == DType::kF64,
             "AdamWMulti: moments are ", DTypeName(t.m.dtype()));
    if (t.weight.defined()) check.Contiguous("weight", t.weight, t.weight.dtype(), shape);
    const bool copy = t.weight.defined() && t.weight.data() != t.master.data();
    YM_CHECK(!t.copies.defined() || (!copy && type == DType::kF32), "8-bit copies are of F32 masters alone");
    bytes += static_cast<double>(2 * (t.master.bytes() + t.m.bytes() + t.v.bytes()) + t.grad.bytes() +
                                 (copy ? t.weight.bytes() : 0));
    if (t.copies.defined()) bytes += static_cast<double>(t.copies.rows.codes.bytes() + t.copies.cols.codes.bytes());
  }
  check.Cost(0, bytes);
  if (stream.dry()) return;
  if (stream.kind() == DeviceKind::kCpu) {
    cpu::AdamWMulti(stream, tensors, hyper, state);
    for (const AdamWTensor& t : tensors) {
      if (t.copies.defined()) QuantizeWeights(stream, t.copies, t.master);
    }
    return;
  }
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::AdamWMulti(stream, tensors, hyper, state);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
