// File: kernels/grouped_gemm/grouped_gemm_mxfp8_sm100_cublaslt.h
//
// Grouped products of MXFP8 operands on Blackwell (sm_100): cuBLASLt's grouped matmul with E4M3
// codes and E8M0 scales of 32 (VEC32_UE8M0), FP32 accumulation. Headers before cuBLAS 13.3 lack it,
// and so may the library that runs: the functions then answer CUBLAS_STATUS_NOT_SUPPORTED, having
// enqueued nothing but the arrays.
//
// NOT RUN by the library: compiled against cuBLAS 13.10's headers, whose library took the
// descriptors; what it is told of every group is checked on the cpu (mxfp8_groups.h), and the whole
// way to its call on an H200 with a stand-in for it (tools/bench/lt_grouped_check.cu). No Blackwell
// GPU has executed it.
//
// mxfp8_groups.h says what is multiplied. offsets: int64[L + 1] on the device, ascending from 0,
// values beyond R read as R; null: one group of all R rows. Rows at and beyond offsets[L] are
// neither read nor written. A group without rows costs nothing in `rows`; its weight gradient is
// beta * dw, zeros for beta 0. Nothing is allocated on the device and nothing waits. Which algorithm
// the library takes may depend on R and L, through the mean number of rows.
#pragma once

#include "kernels/grouped_gemm/grouped_gemm_sm100_cublaslt.h"
#include "kernels/grouped_gemm/mxfp8_groups.h"

namespace yardmaster {

// resources.arrays as for the products in BF16: GroupedGemmLtArrayBytes(groups). c null: y itself;
// read for beta other than 0 alone.
cublasStatus_t GroupedGemmMxfp8RowsLt(const GroupedGemmLtResources& resources, const Mxfp8Rows& problem,
                                      int64_t rows, const int64_t* offsets, int groups, float beta,
                                      cudaStream_t stream);

cublasStatus_t GroupedGemmMxfp8WeightLt(const GroupedGemmLtResources& resources, const Mxfp8Weight& problem,
                                        int64_t rows, const int64_t* offsets, int groups, float beta,
                                        cudaStream_t stream);

}  // namespace yardmaster
