// File: kernels/grouped_gemm/grouped_gemm.h
//
// One GEMM per expert over ragged rows, in one launch, with the row counts in device memory only.
// Expert l owns rows [offsets[l], offsets[l + 1]) of x_RK, dy_RN and y_RN; the rows of one expert
// follow those of the one before, without padding.
//
//   forward  y_RN    = x_RK  w_LNK[l]^T
//   dgrad    dx_RK   = dy_RN w_LNK[l]
//   wgrad    dw_LNK  = dy_RN^T x_RK + beta * dw_LNK
//
// BF16 operands, row-major and dense; FP32 accumulation. offsets: int64[L + 1] on the device,
// ascending from 0; values beyond R are read as R. Rows at and beyond offsets[L] are neither read
// nor written. An expert without rows costs nothing in forward and dgrad; its weight gradient is
// beta * dw, written as zeros for beta 0.
//
// Every function queues work on `stream` of the current device and returns. Nothing is allocated,
// nothing waits; the launches can be captured in a graph. The result is the same, bit for bit,
// every time. Errors: cudaErrorInvalidValue (a pointer not 16-byte aligned, N or K not a multiple
// of 8, a size out of range), cudaErrorNotSupported (an architecture or driver without the
// instructions), or what the launch returned.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

struct GroupedGemmShape {
  int64_t rows = 0;  // R: allocated rows, at least offsets[L]; under 2^31
  int experts = 0;   // L: 1 to kGroupedGemmMaxExperts
  int n = 0;         // N
  int k = 0;         // K
};

inline constexpr int kGroupedGemmMaxExperts = 512;

enum class GroupedGemmOutput { kBf16, kFp32 };

struct GroupedGemmOptions {
  int free_sms = 0;  // multiprocessors left to other kernels (communication)
  // wgrad in FP32 with beta 0, where GroupedGemmWgradSquares(n, k) > 0: F64 [L, N / 128, that], the
  // sums of squares of 16 rows by 256 columns each of dw's chunks of 128 rows. Added in FP32 up to
  // 128 of them, then in FP64; the same bits whatever the row counts of other experts.
  double* squares = nullptr;
};

// Sums of squares that the weight gradient gives for 128 rows of a matrix [N, K]; 0: none.
constexpr int GroupedGemmWgradSquares(int64_t n, int64_t k) {
  return n % 128 == 0 && k % 256 == 0 ? static_cast<int>(k / 256 * 8) : 0;
}

cudaError_t GroupedGemmForwardSm90(const GroupedGemmShape& shape, const void* x_RK,
                                   const void* w_LNK, const int64_t* offsets, void* y_RN,
                                   const GroupedGemmOptions& options, cudaStream_t stream);

cudaError_t GroupedGemmDgradSm90(const GroupedGemmShape& shape, const void* dy_RN,
                                 const void* w_LNK, const int64_t* offsets, void* dx_RK,
                                 const GroupedGemmOptions& options, cudaStream_t stream);

// `accumulate` false is beta 0, true is beta 1. With BF16 output and beta 1 the product is rounded,
// then added and rounded.
cudaError_t GroupedGemmWgradSm90(const GroupedGemmShape& shape, const void* dy_RN, const void* x_RK,
                                 const int64_t* offsets, bool accumulate, GroupedGemmOutput output,
                                 void* dw_LNK, const GroupedGemmOptions& options,
                                 cudaStream_t stream);

}  // namespace yardmaster
