#include "kernels/grouped_gemm/grouped_gemm_mxfp8_sm100_cublaslt.h"

#include "kernels/grouped_gemm/sm100_cublaslt.cuh"

namespace yardmaster {

#if YM_HAVE_LT_GROUPED

namespace {

// One block, a thread per group: the blocks of 128 rows of the groups before it are a running sum.
template <class Problem>
__global__ void __launch_bounds__(kGroupedGemmMaxExperts)
    FillArraysKernel(lt::Arrays out, Problem problem, const int64_t* offsets, int64_t rows,
                     int groups) {
  __shared__ int64_t ends[kGroupedGemmMaxExperts];
  const int l = static_cast<int>(threadIdx.x);
  int64_t begin = 0, end = 0;
  if (l < groups) {
    begin = offsets == nullptr ? 0 : offsets[l] < rows ? offsets[l] : rows;
    end = offsets != nullptr && offsets[l + 1] < rows ? offsets[l + 1] : rows;
  }
  const int64_t blocks = Blocks128(end - begin);
  ends[l] = blocks;
  __syncthreads();
  for (int step = 1; step < static_cast<int>(blockDim.x); step *= 2) {
    const int64_t other = l >= step ? ends[l - step] : 0;
    __syncthreads();
    ends[l] += other;
    __syncthreads();
  }
  if (l >= groups) return;
  const Mxfp8Group g = GroupOf(problem, {l, begin, end - begin, ends[l] - blocks});
  out.a[l] = g.a, out.b[l] = g.b, out.c[l] = g.c, out.d[l] = g.d;
  out.a_scales[l] = g.a_scales, out.b_scales[l] = g.b_scales;
  out.a_rows[l] = g.a_rows, out.a_columns[l] = g.a_columns, out.a_ld[l] = g.a_ld;
  out.b_rows[l] = g.b_rows, out.b_columns[l] = g.b_columns, out.b_ld[l] = g.b_ld;
  out.d_rows[l] = g.d_rows, out.d_columns[l] = g.d_columns, out.d_ld[l] = g.d_ld;
  out.c_ld[l] = g.c_ld;
}

bool Aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
bool Aligned(const Mxfp8Matrix& m) { return Aligned(m.codes) && Aligned(m.tiles); }

bool TakesSizes(int64_t rows, int groups, int64_t n, int64_t k) {
  return rows >= 0 && groups >= 1 && groups <= kGroupedGemmMaxExperts && n > 0 && k > 0 &&
         n % 32 == 0 && k % 32 == 0;
}

template <class Problem>
cublasStatus_t Multiply(const GroupedGemmLtResources& r, const Problem& problem,
                        const lt::Problem& described, int64_t rows, const int64_t* offsets,
                        cudaStream_t stream) {
  const lt::Arrays arrays = lt::Split(r.arrays, described.groups);
  const int threads = (described.groups + 31) / 32 * 32;
  FillArraysKernel<<<1, threads, 0, stream>>>(arrays, problem, offsets, rows, described.groups);
  if (cudaGetLastError() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  return lt::Run(r, described, arrays, stream);
}

}  // namespace

cublasStatus_t GroupedGemmMxfp8RowsLt(const GroupedGemmLtResources& resources,
                                      const Mxfp8Rows& problem, int64_t rows,
                                      const int64_t* offsets, int groups, float beta,
                                      cudaStream_t stream) {
  if (!GroupedGemmLtUsable()) return CUBLAS_STATUS_NOT_SUPPORTED;
  Mxfp8Rows p = problem;
  if (p.c == nullptr) p.c = p.y, p.c_ld = p.y_ld;
  if (!TakesSizes(rows, groups, p.n, p.k) || !Aligned(p.x) || !Aligned(p.w) || !Aligned(p.y) ||
      !Aligned(p.c) || p.y_ld % 8 || p.c_ld % 8)
    return CUBLAS_STATUS_INVALID_VALUE;
  return Multiply(resources, p,
                  {.in = CUDA_R_8F_E4M3,
                   .out = CUDA_R_16BF,
                   .trans_a = CUBLAS_OP_T,
                   .groups = groups,
                   .dense = false,
                   .c_is_d = p.c == p.y && p.c_ld == p.y_ld,
                   .mx = true,
                   .beta = beta,
                   .rows = p.n,
                   .columns = rows / groups,
                   .contraction = p.k},
                  rows, offsets, stream);
}

cublasStatus_t GroupedGemmMxfp8WeightLt(const GroupedGemmLtResources& resources,
                                        const Mxfp8Weight& p, int64_t rows, const int64_t* offsets,
                                        int groups, float beta, cudaStream_t stream) {
  if (!GroupedGemmLtUsable()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!TakesSizes(rows, groups, p.n, p.k) || !Aligned(p.x) || !Aligned(p.dy) || !Aligned(p.dw) ||
      p.padded % 128)
    return CUBLAS_STATUS_INVALID_VALUE;
  YM_LT_TRY(Multiply(resources, p,
                     {.in = CUDA_R_8F_E4M3,
                      .out = CUDA_R_32F,
                      .trans_a = CUBLAS_OP_T,
                      .groups = groups,
                      .dense = false,
                      .mx = true,
                      .beta = beta,
                      .rows = p.k,
                      .columns = p.n,
                      .contraction = Blocks128(rows / groups) * 128},
                     rows, offsets, stream));
  if (beta == 0) {
    lt::ZeroEmptyKernel<<<dim3(64, groups), 256, 0, stream>>>(offsets, rows, p.n * p.k,
                                                              reinterpret_cast<uint32_t*>(p.dw));
    if (cudaGetLastError() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

#else  // these headers know no grouped matmul

cublasStatus_t GroupedGemmMxfp8RowsLt(const GroupedGemmLtResources&, const Mxfp8Rows&, int64_t,
                                      const int64_t*, int, float, cudaStream_t) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t GroupedGemmMxfp8WeightLt(const GroupedGemmLtResources&, const Mxfp8Weight&, int64_t,
                                        const int64_t*, int, float, cudaStream_t) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

#endif

}  // namespace yardmaster
