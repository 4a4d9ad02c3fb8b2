// File: kernels/grouped_gemm_fp8/grouped_gemm_fp8.h
//
// Products of block-scaled E4M3 matrices (src/ops/quantize.h, fp8_block), one per group of ragged
// rows, in one launch, with the row counts in device memory only. Group l owns rows [offsets[l],
// offsets[l + 1]).
//
//   rows   y_RN   = x_RK w_LNK[l]^T (+ c_RN)      also the input gradient, with w's transposed copy
//   wgrad  dw_LNK = dy_RN^T x_RK + beta * dw_LNK  from the transposed copies of dy and x
//
// Codes are bytes, the contraction last. Scales FP32: x, dy one for 128 of the contraction, w one
// for 128 x 128; those of a last block that is not full belong to what there is of it. The products
// of 128 are summed in the tensor core, then multiplied by both scales and added in FP32. BF16 y,
// rounded once.
//
// offsets: int64[L + 1] on the device, ascending from 0; values beyond R are read as R. Null: one
// group of all rows. Codes of rows at and beyond offsets[L] are not read, y's not written; their
// scales may be read and do not matter. A group without rows costs nothing in `rows`; its weight
// gradient is beta * dw, written as zeros for beta 0.
//
// Every function queues work on `stream` of the current device and returns. Nothing is allocated,
// nothing waits; the launches can be captured in a graph. The result is the same, bit for bit,
// every time. Errors: cudaErrorInvalidValue (a pointer not 16-byte aligned, N or K not a multiple
// of 16, a size or an option out of range), cudaErrorNotSupported (not compute capability 9.0), or what the
// launch returned.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

inline constexpr int kGroupedGemmFp8MaxGroups = 512;

struct Fp8Options {
  int free_sms = 0;  // multiprocessors left to other kernels (communication)
  // Form of the weight gradient's kernel: 2 or 3 consumer warpgroups; 0: by rows and beta.
  int wgrad_warpgroups = 0;
};

struct Fp8RowsArgs {
  int64_t rows = 0;                 // R: allocated rows, at least offsets[L]; under 2^31
  int groups = 1;                   // L: 1 to kGroupedGemmFp8MaxGroups
  int n = 0, k = 0;                 // multiples of 16
  const uint8_t* x = nullptr;       // [R, K]
  const float* x_scales = nullptr;  // [ceil(K/128), R rounded up to 4]
  const uint8_t* w = nullptr;       // [L, N, K]
  const float* w_scales = nullptr;  // [L, ceil(N/128), ceil(K/128)]
  const int64_t* offsets = nullptr;
  void* y = nullptr;  // BF16 [R, N], ld a multiple of 8
  int64_t y_ld = 0;
  const void* c = nullptr;  // BF16 [R, N] or null; may be y
  int64_t c_ld = 0;         // even
};
cudaError_t GroupedGemmFp8RowsSm90(const Fp8RowsArgs& args, const Fp8Options& options,
                                   cudaStream_t stream);

// In the row space of the transposed copies group l begins at the sum over earlier groups of their
// rows rounded up to 128; pad rows within a group are zeros. `accumulate` false is beta 0, true is
// beta 1.
struct Fp8WgradArgs {
  int64_t rows = 0;    // R
  int64_t padded = 0;  // P: a multiple of 128 that holds all groups; under 2^31
  int groups = 1;
  int n = 0, k = 0;
  const uint8_t* dy = nullptr;       // [N, P]
  const float* dy_scales = nullptr;  // [P/128, N rounded up to 4]
  const uint8_t* x = nullptr;        // [K, P]
  const float* x_scales = nullptr;   // [P/128, K rounded up to 4]
  const int64_t* offsets = nullptr;
  bool accumulate = false;
  float* dw = nullptr;  // [L, N, K]
  // With beta 0, where GroupedGemmFp8WgradSquares(n, k) > 0: F64 [L, N / 128, that], the sums of
  // squares of 16 rows by 128 columns each of dw's chunks of 128 rows. Added in FP32 up to 64 of
  // them, then in FP64; the same bits whatever the row counts of other groups.
  double* squares = nullptr;
};

// Sums of squares that the weight gradient gives for 128 rows of a matrix [N, K]; 0: none.
constexpr int GroupedGemmFp8WgradSquares(int64_t n, int64_t k) {
  return n % 128 == 0 && k % 128 == 0 ? static_cast<int>(k / 128 * 8) : 0;
}
cudaError_t GroupedGemmFp8WgradSm90(const Fp8WgradArgs& args, const Fp8Options& options,
                                    cudaStream_t stream);

}  // namespace yardmaster
