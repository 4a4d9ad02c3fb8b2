// File: kernels/grouped_gemm_fp8/wgrad_sm90.cu
//
// Kernel and launcher of the FP8 weight gradient; its description: sm90_fp8_wgrad.cuh.
#include "kernels/grouped_gemm_fp8/sm90_fp8_host.cuh"
#include "kernels/grouped_gemm_fp8/sm90_fp8_launch.h"
#include "kernels/grouped_gemm_fp8/sm90_fp8_wgrad.cuh"

namespace yardmaster {

namespace sm90fp8 {

namespace {

template <int kGroups, bool kSquares>
__global__ void __launch_bounds__(kThreads<kGroups>, 1)
    WgradKernel(const __grid_constant__ WgradMaps maps,
                const __grid_constant__ WgradParams params) {
  extern __shared__ __align__(1024) uint8_t shared[];
  RunBlock(WgradBlock<kGroups, kSquares>(params, shared), maps);
}

bool Valid(const Fp8WgradArgs& a) {
  return a.rows >= 0 && a.padded >= 0 && a.padded < (int64_t{1} << 31) - 2 * kTileRows &&
         a.padded % kTileK == 0 && a.groups >= 1 && a.groups <= kGroupedGemmFp8MaxGroups &&
         (a.groups == 1 || a.offsets != nullptr) && a.rows <= a.padded && a.n > 0 && a.k > 0 &&
         a.n % 16 == 0 && a.k % 16 == 0 && Aligned16(a.dy) && Aligned16(a.dy_scales) &&
         Aligned16(a.x) && Aligned16(a.x_scales) && Aligned16(a.dw) &&
         (a.squares == nullptr || (!a.accumulate && GroupedGemmFp8WgradSquares(a.n, a.k) > 0));
}

cudaError_t EncodeMaps(const Fp8WgradArgs& a, int box_rows, WgradMaps* maps) {
  constexpr CUtensorMapDataType kCode = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  // Without rows nothing is read, but a map has an extent.
  const int64_t padded = a.padded > 0 ? a.padded : kTileK;
  const struct {
    TensorMapDesc desc;
    CUtensorMap* map;
  } all[] = {
      {DenseMap(a.dy, kCode, 1, 1, a.n, padded, kTileK, box_rows), &maps->dy},
      {DenseMap(a.x, kCode, 1, 1, a.k, padded, kTileK, kTileColumns), &maps->x},
      {ScalesMap(a.dy_scales, padded / kTileK, a.n, box_rows), &maps->dy_scales},
      {ScalesMap(a.x_scales, padded / kTileK, a.k, kTileColumns), &maps->x_scales},
      {DenseMap(a.dw, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, a.groups, a.n, a.k, 32, 16), &maps->dw},
  };
  for (const auto& [desc, map] : all) {
    if (const cudaError_t error = EncodeTensorMap(desc, map); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <int kGroups, bool kSquares>
cudaError_t Launch(const Fp8WgradArgs& args, const Config& config, cudaStream_t stream) {
  WgradMaps maps = {};
  using Block = WgradBlock<kGroups, kSquares>;
  if (const cudaError_t error = EncodeMaps(args, Block::kBoxRows, &maps);
      error != cudaSuccess) return error;
  WgradParams params = {};
  params.offsets = {args.offsets, args.groups, static_cast<int>(args.rows)};
  params.columns = args.k;
  params.accumulate = args.accumulate;
  // The BF16 kernel's names: its N tiles are our rows; the M tiles, of 128, our columns.
  params.schedule.experts = args.groups;
  params.schedule.m_groups = CeilDiv(args.k, kClusterColumns);
  params.schedule.ragged_n = false;
  params.schedule.n_extent = args.n;
  params.schedule.skip_empty = args.accumulate;
  params.schedule.group = config.group;
  params.schedule.tile_cost = config.tile_cost;
  params.schedule.cost_shift = sm90::CostShift(args.padded);
  params.squares = {args.squares, args.n / sm90::SquaresOut::kChunkRows, args.k / kTileColumns};
  return LaunchKernel(WgradKernel<kGroups, kSquares>, kThreads<kGroups>, Block::kSharedBytes, maps,
                      params, config, stream);
}

template <int kGroups>
cudaError_t LaunchForm(const Fp8WgradArgs& args, const Config& config, cudaStream_t stream) {
  return args.squares != nullptr ? Launch<kGroups, true>(args, config, stream)
                                 : Launch<kGroups, false>(args, config, stream);
}

}  // namespace

cudaError_t LaunchWgrad(const Fp8WgradArgs& args, const Config& config, cudaStream_t stream) {
  if (!Valid(args)) return cudaErrorInvalidValue;
  if (args.rows == 0 && args.accumulate) return cudaSuccess;
  switch (config.wgrad_warpgroups) {
    case 2: return LaunchForm<2>(args, config, stream);
    case 3: return LaunchForm<3>(args, config, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace sm90fp8

cudaError_t GroupedGemmFp8WgradSm90(const Fp8WgradArgs& args, const Fp8Options& options,
                                    cudaStream_t stream) {
  sm90fp8::Config config;
  if (const cudaError_t error = sm90fp8::ConfigOfDevice(options, &config); error != cudaSuccess)
    return error;
  sm90fp8::ChooseWgrad(args.padded, args.groups, args.k, args.accumulate,
                       options.wgrad_warpgroups, &config);
  return sm90fp8::LaunchWgrad(args, config, stream);
}

}  // namespace yardmaster
