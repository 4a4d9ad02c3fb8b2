// File: tools/bench/peers/grouped_gemm_shim.cu
//
// The grouped GEMM with C names, for grouped_gemm_torch.py. Build beside the kernels into one
// shared library:
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -shared -Xcompiler -fPIC -I.
//   -I$CUDA_HOME/include/cccl
//     --expt-relaxed-constexpr -o libgrouped_gemm.so tools/bench/peers/grouped_gemm_shim.cu
//     kernels/grouped_gemm/grouped_gemm_sm90.cu kernels/common/tensor_map.cu
#include "kernels/grouped_gemm/grouped_gemm.h"

extern "C" {

int ym_forward(int64_t rows, int experts, int n, int k, const void* x, const void* w,
               const int64_t* offsets, void* y, void* stream) {
  return yardmaster::GroupedGemmForwardSm90({rows, experts, n, k}, x, w, offsets, y, {},
                                            static_cast<cudaStream_t>(stream));
}

int ym_dgrad(int64_t rows, int experts, int n, int k, const void* dy, const void* w,
             const int64_t* offsets, void* dx, void* stream) {
  return yardmaster::GroupedGemmDgradSm90({rows, experts, n, k}, dy, w, offsets, dx, {},
                                          static_cast<cudaStream_t>(stream));
}

int ym_wgrad_bf16(int64_t rows, int experts, int n, int k, const void* dy, const void* x,
                  const int64_t* offsets, void* dw, void* stream) {
  return yardmaster::GroupedGemmWgradSm90({rows, experts, n, k}, dy, x, offsets, false,
                                          yardmaster::GroupedGemmOutput::kBf16, dw, {},
                                          static_cast<cudaStream_t>(stream));
}
}
