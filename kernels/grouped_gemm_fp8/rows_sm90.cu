// File: kernels/grouped_gemm_fp8/rows_sm90.cu
//
// Launcher of the FP8 product over ragged rows. The kernel and its description:
// sm90_fp8_rows.cuh.
#include "kernels/grouped_gemm_fp8/sm90_fp8_host.cuh"
#include "kernels/grouped_gemm_fp8/sm90_fp8_launch.h"
#include "kernels/grouped_gemm_fp8/sm90_fp8_rows.cuh"

namespace yardmaster {

namespace sm90fp8 {

namespace {

bool Valid(const Fp8RowsArgs& a) {
  const int64_t tiles = (a.rows / kTileRows + a.groups) * CeilDiv(a.n, kClusterColumns);
  return tiles < int64_t{1} << 30 && a.rows >= 0 && a.rows < (int64_t{1} << 31) - 2 * kTileRows &&
         a.groups >= 1 && a.groups <= kGroupedGemmFp8MaxGroups &&
         (a.groups == 1 || a.offsets != nullptr) && a.n > 0 && a.k > 0 && a.n % 16 == 0 &&
         a.k % 16 == 0 && a.y_ld >= a.n && a.y_ld % 8 == 0 && Aligned16(a.x) &&
         Aligned16(a.x_scales) && Aligned16(a.w) && Aligned16(a.y) &&
         (a.c == nullptr ||
          (a.c_ld >= a.n && a.c_ld % 2 == 0 && reinterpret_cast<uintptr_t>(a.c) % 4 == 0));
}

cudaError_t EncodeMaps(const Fp8RowsArgs& a, RowsMaps* maps) {
  constexpr CUtensorMapDataType kCode = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  const TensorMapDesc x =
      RaggedRowsMap(a.x, kCode, 1, a.rows, a.k, kTileK, RowsBlock<false>::kBoxRows);
  const TensorMapDesc w = DenseMap(a.w, kCode, 1, a.groups, a.n, a.k, kTileK, kTileColumns);
  if (const cudaError_t error = EncodeTensorMap(x, &maps->x); error != cudaSuccess) return error;
  if (const cudaError_t error = EncodeTensorMap(w, &maps->w); error != cudaSuccess) return error;
  const TensorMapDesc scales = ScalesMap(a.x_scales, CeilDiv(a.k, kTileK), a.rows, kRowScaleBox);
  return EncodeTensorMap(scales, &maps->x_scales);
}

}  // namespace

cudaError_t LaunchRows(const Fp8RowsArgs& args, const Config& config, cudaStream_t stream) {
  if (!Valid(args)) return cudaErrorInvalidValue;
  if (args.rows == 0) return cudaSuccess;
  RowsMaps maps = {};
  if (const cudaError_t error = EncodeMaps(args, &maps); error != cudaSuccess) return error;
  RowsParams params = {};
  params.offsets = {args.offsets, args.groups, static_cast<int>(args.rows)};
  params.columns = args.n;
  params.k_blocks = CeilDiv(args.k, kTileK);
  params.w_scales = args.w_scales;
  params.y = {static_cast<__nv_bfloat16*>(args.y), args.y_ld};
  // Only read.
  params.c = {static_cast<__nv_bfloat16*>(const_cast<void*>(args.c)), args.c_ld};
  params.group = config.group;
  return LaunchKernel(args.c == nullptr ? RowsKernel<false> : RowsKernel<true>,
                      kThreads<kRowsWarpgroups>, RowsBlock<false>::kSharedBytes,
                      maps, params, config, stream);
}

}  // namespace sm90fp8

cudaError_t GroupedGemmFp8RowsSm90(const Fp8RowsArgs& args, const Fp8Options& options,
                                   cudaStream_t stream) {
  sm90fp8::Config config;
  if (const cudaError_t error = sm90fp8::ConfigOfDevice(options, &config); error != cudaSuccess)
    return error;
  return sm90fp8::LaunchRows(args, config, stream);
}

}  // namespace yardmaster
