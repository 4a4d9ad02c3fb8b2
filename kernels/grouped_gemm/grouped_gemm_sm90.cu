// File: kernels/grouped_gemm/grouped_gemm_sm90.cu
//
// Launchers of the Hopper grouped GEMM. The kernel and its description: sm90_kernel.cuh.
#include "kernels/common/cluster_launch.h"
#include "kernels/common/tensor_map.h"
#include "kernels/grouped_gemm/grouped_gemm.h"
#include "kernels/grouped_gemm/sm90_kernel.cuh"
#include "kernels/grouped_gemm/sm90_launch.h"

namespace yardmaster {

namespace sm90 {

namespace {

bool Aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

bool Valid(const GemmProblem& p) {
  const GroupedGemmShape& s = p.shape;
  return s.rows >= 0 && s.rows < (int64_t{1} << 31) - 2 * kTileM && s.experts >= 1 &&
         s.experts <= kGroupedGemmMaxExperts && s.n > 0 && s.k > 0 && s.n % 8 == 0 &&
         s.k % 8 == 0 && Aligned16(p.a) && Aligned16(p.b) && Aligned16(p.d) && p.offsets != nullptr &&
         (p.squares == nullptr ||
          (p.op == GemmOp::kWgrad && p.output == GroupedGemmOutput::kFp32 && !p.accumulate &&
           GroupedGemmWgradSquares(s.n, s.k) > 0));
}

struct Maps {
  CUtensorMap a, b, d;
  CUtensorMap zeros;  // wgrad: read outside its extent of eight elements, from column 64 on
};

cudaError_t EncodeMaps(const GemmProblem& p, Maps* maps) {
  constexpr CUtensorMapDataType kBf16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const GroupedGemmShape& s = p.shape;
  TensorMapDesc a, b, d;
  const TensorMapDesc zeros = DenseMap(p.a, kBf16, 2, 1, 1, 8, 64, 64);
  switch (p.op) {
    case GemmOp::kForward:
      a = DenseMap(p.a, kBf16, 2, s.experts, s.n, s.k, kTileK, 64);
      b = RaggedRowsMap(p.b, kBf16, 2, s.rows, s.k, kTileK, 64);
      d = RaggedRowsMap(p.d, kBf16, 2, s.rows, s.n, 64, 64);
      break;
    case GemmOp::kDgrad:
      a = DenseMap(p.a, kBf16, 2, s.experts, s.n, s.k, 64, kTileK);
      b = RaggedRowsMap(p.b, kBf16, 2, s.rows, s.n, kTileK, 64);
      d = RaggedRowsMap(p.d, kBf16, 2, s.rows, s.k, 64, 64);
      break;
    case GemmOp::kWgrad: {
      a = RaggedRowsMap(p.a, kBf16, 2, s.rows, s.n, 64, kTileK);
      b = RaggedRowsMap(p.b, kBf16, 2, s.rows, s.k, 64, kTileK);
      const bool fp32 = p.output == GroupedGemmOutput::kFp32;
      const CUtensorMapDataType type = fp32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : kBf16;
      const int bytes = fp32 ? 4 : 2;
      d = DenseMap(p.d, type, bytes, s.experts, s.n, s.k, 128 / bytes, 16);
      break;
    }
  }
  if (const cudaError_t error = EncodeTensorMap(a, &maps->a); error != cudaSuccess) return error;
  if (const cudaError_t error = EncodeTensorMap(b, &maps->b); error != cudaSuccess) return error;
  if (const cudaError_t error = EncodeTensorMap(zeros, &maps->zeros); error != cudaSuccess)
    return error;
  return EncodeTensorMap(d, &maps->d);
}

template <GemmOp kOp, bool kFp32, bool kSquares = false>
cudaError_t Launch(const Maps& maps, const GemmParams& params, const GemmConfig& config,
                   cudaStream_t stream) {
  return LaunchClusters(GroupedGemmKernel<kOp, kFp32, kSquares>,
                        {config.clusters, kCluster, kThreads, kSharedMemoryBytes}, stream, maps.a,
                        maps.b, maps.d, maps.zeros, params);
}

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

}  // namespace

cudaError_t LaunchGemm(const GemmProblem& problem, const GemmConfig& config, cudaStream_t stream) {
  if (!Valid(problem) || config.clusters < 1 || config.clusters > kMaxClusters)
    return cudaErrorInvalidValue;
  const GroupedGemmShape& s = problem.shape;
  if (s.rows == 0 && (problem.op != GemmOp::kWgrad || problem.accumulate)) return cudaSuccess;
  Maps maps;
  if (const cudaError_t error = EncodeMaps(problem, &maps); error != cudaSuccess) return error;
  const bool wgrad = problem.op == GemmOp::kWgrad;
  GemmParams params = {};
  params.offsets = problem.offsets;
  params.rows = static_cast<int>(s.rows);
  params.m_extent = problem.op == GemmOp::kDgrad ? s.k : s.n;
  params.fixed_k_blocks = CeilDiv(problem.op == GemmOp::kForward ? s.k : s.n, kTileK);
  params.accumulate = problem.accumulate;
  params.store_pause = config.store_pause;
  params.schedule.experts = s.experts;
  params.schedule.m_groups = CeilDiv(CeilDiv(params.m_extent, kTileM), kCluster);
  params.schedule.ragged_n = !wgrad;
  params.schedule.n_extent = s.k;
  params.schedule.skip_empty = !wgrad || problem.accumulate;
  params.schedule.group = config.group;
  params.schedule.tile_cost = config.tile_cost;
  params.schedule.cost_shift = CostShift(s.rows);
  switch (problem.op) {
    case GemmOp::kForward:
      return Launch<GemmOp::kForward, false>(maps, params, config, stream);
    case GemmOp::kDgrad:
      return Launch<GemmOp::kDgrad, false>(maps, params, config, stream);
    case GemmOp::kWgrad:
      if (problem.squares != nullptr) {
        params.squares = {problem.squares, s.n / SquaresOut::kChunkRows, s.k / kTileN};
        return Launch<GemmOp::kWgrad, true, true>(maps, params, config, stream);
      }
      return problem.output == GroupedGemmOutput::kFp32
                 ? Launch<GemmOp::kWgrad, true>(maps, params, config, stream)
                 : Launch<GemmOp::kWgrad, false>(maps, params, config, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace sm90

namespace {

cudaError_t Run(const sm90::GemmProblem& problem, const GroupedGemmOptions& options,
                cudaStream_t stream) {
  int sm_count = 0;
  if (const cudaError_t error = sm90::HopperMultiprocessors(&sm_count); error != cudaSuccess)
    return error;
  const bool fp32 = problem.output == GroupedGemmOutput::kFp32;
  return sm90::LaunchGemm(problem, sm90::SelectConfig(problem.op, fp32, sm_count, options.free_sms),
                          stream);
}

}  // namespace

cudaError_t GroupedGemmForwardSm90(const GroupedGemmShape& shape, const void* x_RK,
                                   const void* w_LNK, const int64_t* offsets, void* y_RN,
                                   const GroupedGemmOptions& options, cudaStream_t stream) {
  return Run({sm90::GemmOp::kForward, shape, w_LNK, x_RK, y_RN, offsets}, options, stream);
}

cudaError_t GroupedGemmDgradSm90(const GroupedGemmShape& shape, const void* dy_RN,
                                 const void* w_LNK, const int64_t* offsets, void* dx_RK,
                                 const GroupedGemmOptions& options, cudaStream_t stream) {
  return Run({sm90::GemmOp::kDgrad, shape, w_LNK, dy_RN, dx_RK, offsets}, options, stream);
}

cudaError_t GroupedGemmWgradSm90(const GroupedGemmShape& shape, const void* dy_RN, const void* x_RK,
                                 const int64_t* offsets, bool accumulate, GroupedGemmOutput output,
                                 void* dw_LNK, const GroupedGemmOptions& options,
                                 cudaStream_t stream) {
  return Run({sm90::GemmOp::kWgrad, shape, dy_RN, x_RK, dw_LNK, offsets, output, accumulate,
              options.squares},
             options, stream);
}

}  // namespace yardmaster
