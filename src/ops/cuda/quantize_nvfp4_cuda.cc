#include "src/ops/cuda/quantize_nvfp4_cuda.h"

#include "kernels/quantize/nvfp4.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {

void AbsMax(const Stream& stream, const Tensor& x, const Tensor& out) {
  YM_CUDA_CHECK(stream, "AbsMax",
                AbsMaxOfMatrix(KernelTypeOf(x.dtype()), x.data(), x.dim(0), x.dim(1), x.ld(), out.as<float>(),
                               CudaStream(stream)));
}

void QuantizeNvfp4(const Stream& stream, const Nvfp4Args& g) {
  YM_CHECK(reinterpret_cast<uintptr_t>(g.x.data()) % 16 == 0 && g.x.ld() * DTypeBytes(g.x.dtype()) % 16 == 0,
           "rows of x, ", g.x.ld(), " apart, are not 16-byte aligned");
  YM_CUDA_CHECK(stream, "QuantizeNvfp4",
                QuantizeNvfp4Rows(KernelTypeOf(g.x.dtype()), g.x.data(), g.x.dim(0), g.x.dim(1), g.x.ld(),
                                  g.amax.as<float>(), g.codes.as<uint8_t>(), g.scales.as<uint8_t>(),
                                  CudaStream(stream)));
}

void DequantizeNvfp4(const Stream& stream, const Nvfp4Args& g, const Tensor& out) {
  YM_CUDA_CHECK(
      stream, "DequantizeNvfp4",
      DequantizeNvfp4Rows(KernelTypeOf(out.dtype()), g.codes.as<uint8_t>(), g.scales.as<uint8_t>(),
                          g.amax.as<float>(), out.dim(0), out.dim(1), out.data(), CudaStream(stream)));
}

}  // namespace yardmaster::cuda
