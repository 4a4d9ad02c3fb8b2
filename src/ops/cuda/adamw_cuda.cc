#include "src/ops/cuda/adamw_cuda.h"

#include "kernels/adamw/adamw.h"
#include "kernels/adamw/adamw_quantize.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"
#include "src/ops/cuda/quantize_cuda.h"

namespace yardmaster::cuda {
namespace {

void UpdateAndQuantize(const Stream& stream, const AdamWTensor& t, const AdamWHyper& hyper, const Tensor& state) {
  const bool experts = t.master.shape().rank() == 3;
  const AdamWWeight w = {.master = t.master.as<float>(),
                         .grad = t.grad.as<float>(),
                         .m = t.m.data(),
                         .v = t.v.data(),
                         .L = experts ? t.master.dim(0) : 1,
                         .N = t.master.dim(experts ? 1 : 0),
                         .K = t.master.cols(),
                         .weight_decay = t.weight_decay};
  YM_CUDA_CHECK(stream, "AdamWMulti",
                AdamWQuantize(KernelTypeOf(t.m.dtype()), RuleOf(t.copies.format), w, hyper.beta1, hyper.beta2,
                              hyper.eps, static_cast<const KernelStepState*>(state.data()),
                              CopiesOf(t.copies.rows, t.copies.cols), CudaStream(stream)));
}

}  // namespace

void AdamWMulti(const Stream& stream, const std::vector<AdamWTensor>& tensors, const AdamWHyper& hyper,
                const Tensor& state) {
  AdamWList list;
  DType type = DType::kF32, moments = DType::kF32;  // of the tensors in the list
  const auto launch = [&] {
    if (list.count == 0) return;
    YM_CUDA_CHECK(
        stream, "AdamWMulti",
        AdamWSlices(KernelTypeOf(type), KernelTypeOf(moments), &list, hyper.beta1, hyper.beta2, hyper.eps,
                    static_cast<const KernelStepState*>(state.data()), CudaStream(stream)));
    list.count = 0;
  };
  for (const AdamWTensor& t : tensors) {
    if (t.master.elements() == 0) continue;
    const bool copy = t.weight.defined() && t.weight.data() != t.master.data();
    YM_CHECK(t.grad.dtype() == t.master.dtype() &&
                 (t.m.dtype() == DType::kBF16 || t.m.dtype() == t.master.dtype()),
             "AdamWMulti on cuda: master ", DTypeName(t.master.dtype()), ", gradient ",
             DTypeName(t.grad.dtype()), ", moments ", DTypeName(t.m.dtype()));
    YM_CHECK(!copy || t.weight.dtype() == DType::kBF16, "AdamWMulti on cuda: weights in ",
             DTypeName(t.weight.dtype()));
    if (t.copies.defined()) {
      UpdateAndQuantize(stream, t, hyper, state);
      continue;
    }
    if (list.count == kAdamWTensors || t.master.dtype() != type || t.m.dtype() != moments) launch();
    type = t.master.dtype(), moments = t.m.dtype();
    list.tensors[list.count++] = {.master = t.master.data(),
                                  .weight = copy ? t.weight.data() : nullptr,
                                  .grad = t.grad.data(),
                                  .m = t.m.data(),
                                  .v = t.v.data(),
                                  .n = t.master.elements(),
                                  .weight_decay = t.weight_decay,
                                  .first_block = 0};
  }
  launch();
}

}  // namespace yardmaster::cuda
