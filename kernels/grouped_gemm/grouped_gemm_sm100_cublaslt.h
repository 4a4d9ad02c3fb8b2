// File: kernels/grouped_gemm/grouped_gemm_sm100_cublaslt.h
//
// The grouped GEMM of Blackwell (sm_100): cuBLASLt's grouped matmul, whose shapes and addresses lie
// in device memory as ours do. Headers before cuBLAS 13.3 lack it, and so may the library that
// runs: the functions then answer CUBLAS_STATUS_NOT_SUPPORTED, and the portable kernels run
// instead.
//
// NOT RUN by the library: compiled against cuBLAS 13.10's headers, and checked on an H200 with a
// stand-in for it (tools/bench/lt_grouped_check.cu); no Blackwell GPU has executed it
// (docs/performance.md).
//
// Contract, types and shapes as in grouped_gemm.h; w, x and dy in BF16. `arrays`:
// GroupedGemmLtArrayBytes() of device memory, 16-byte aligned, written by every call and read until
// its work is done. `workspace`: for the library. Nothing is allocated on the device and nothing
// waits.
#pragma once

#include <cublasLt.h>

#include <cstddef>

#include "kernels/grouped_gemm/grouped_gemm.h"

namespace yardmaster {

// Whether this build was compiled with, and now runs with, a cuBLASLt that has grouped matmuls.
bool GroupedGemmLtUsable();

size_t GroupedGemmLtArrayBytes(int experts);

struct GroupedGemmLtResources {
  cublasLtHandle_t handle = nullptr;
  void* arrays = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};

cublasStatus_t GroupedGemmForwardLt(const GroupedGemmLtResources& resources,
                                    const GroupedGemmShape& shape, const void* x_RK,
                                    const void* w_LNK, const int64_t* offsets, void* y_RN,
                                    cudaStream_t stream);

cublasStatus_t GroupedGemmDgradLt(const GroupedGemmLtResources& resources,
                                  const GroupedGemmShape& shape, const void* dy_RN,
                                  const void* w_LNK, const int64_t* offsets, void* dx_RK,
                                  cudaStream_t stream);

cublasStatus_t GroupedGemmWgradLt(const GroupedGemmLtResources& resources,
                                  const GroupedGemmShape& shape, const void* dy_RN,
                                  const void* x_RK, const int64_t* offsets, bool accumulate,
                                  GroupedGemmOutput output, void* dw_LNK, cudaStream_t stream);

}  // namespace yardmaster
