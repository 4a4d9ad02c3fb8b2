#include "kernels/grouped_gemm/grouped_gemm_sm100_cublaslt.h"

#include "kernels/grouped_gemm/sm100_cublaslt.cuh"

namespace yardmaster {

#if YM_HAVE_LT_GROUPED

namespace {

// cuBLASLt is column-major: a row-major [rows, columns] matrix is its [columns, rows].
//   forward  y_RN^T [N, r]  = op_T(w [K, N]) x^T [K, r]
//   dgrad    dx_RK^T [K, r] = w [K, N] dy^T [N, r]
//   wgrad    dw^T [K, N]    = x^T [K, r] op_T(dy^T [N, r])
enum class Op { kForward, kDgrad, kWgrad };

struct Operands {
  const char* w_or_x;  // A: w_LNK, w_LNK, x_RK
  const char* rows_b;  // B: x_RK, dy_RN, dy_RN
  char* d;
  int64_t d_element;  // bytes
};

__global__ void FillArraysKernel(Op op, lt::Arrays out, Operands in, const int64_t* offsets,
                                 int64_t rows, int experts, int64_t n, int64_t k) {
  const int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e >= experts) return;
  const int64_t begin = offsets[e] < rows ? offsets[e] : rows;
  const int64_t end = offsets[e + 1] < rows ? offsets[e + 1] : rows;
  const int64_t count = end - begin;
  const int64_t weight = int64_t{e} * n * k;
  if (op == Op::kWgrad) {
    out.a[e] = in.w_or_x + 2 * begin * k;
    out.b[e] = in.rows_b + 2 * begin * n;
    out.d[e] = in.d + in.d_element * weight;
    out.a_rows[e] = k, out.a_columns[e] = count;
    out.b_rows[e] = n, out.b_columns[e] = count;
    out.d_rows[e] = k, out.d_columns[e] = n;
  } else {
    const int64_t in_width = op == Op::kForward ? k : n, out_width = op == Op::kForward ? n : k;
    out.a[e] = in.w_or_x + 2 * weight;
    out.b[e] = in.rows_b + 2 * begin * in_width;
    out.d[e] = in.d + in.d_element * begin * out_width;
    out.a_rows[e] = k, out.a_columns[e] = n;
    out.b_rows[e] = in_width, out.b_columns[e] = count;
    out.d_rows[e] = out_width, out.d_columns[e] = count;
  }
}

cublasStatus_t RunLt(const GroupedGemmLtResources& r, Op op, const GroupedGemmShape& s,
                     const Operands& operands, const int64_t* offsets, cudaDataType d_type,
                     float beta, cudaStream_t stream) {
  if (!GroupedGemmLtUsable()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (s.rows < 0 || s.experts < 1 || s.experts > kGroupedGemmMaxExperts || s.n < 1 || s.k < 1 ||
      s.n % 8 || s.k % 8)
    return CUBLAS_STATUS_INVALID_VALUE;
  const lt::Arrays arrays = lt::Split(r.arrays, s.experts);
  FillArraysKernel<<<(s.experts + 127) / 128, 128, 0, stream>>>(op, arrays, operands, offsets,
                                                                s.rows, s.experts, s.n, s.k);
  if (cudaGetLastError() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  const int64_t mean = s.rows / s.experts;
  return lt::Run(r,
                 {.out = d_type,
                  .trans_a = op == Op::kForward ? CUBLAS_OP_T : CUBLAS_OP_N,
                  .trans_b = op == Op::kWgrad ? CUBLAS_OP_T : CUBLAS_OP_N,
                  .groups = s.experts,
                  .beta = beta,
                  .rows = op == Op::kForward ? s.n : s.k,
                  .columns = op == Op::kWgrad ? s.n : mean,
                  .contraction = op == Op::kForward ? s.k : op == Op::kDgrad ? s.n : mean},
                 arrays, stream);
}

const char* Bytes(const void* p) { return static_cast<const char*>(p); }

}  // namespace

bool GroupedGemmLtUsable() { return cublasLtGetVersion() >= lt::kFirstVersion; }

size_t GroupedGemmLtArrayBytes(int experts) {
  return sizeof(int64_t) * lt::kParts * static_cast<size_t>(lt::PartEntries(experts));
}

cublasStatus_t GroupedGemmForwardLt(const GroupedGemmLtResources& resources,
                                    const GroupedGemmShape& shape, const void* x_RK,
                                    const void* w_LNK, const int64_t* offsets, void* y_RN,
                                    cudaStream_t stream) {
  return RunLt(resources, Op::kForward, shape,
               {Bytes(w_LNK), Bytes(x_RK), static_cast<char*>(y_RN), 2}, offsets, CUDA_R_16BF, 0.0f,
               stream);
}

cublasStatus_t GroupedGemmDgradLt(const GroupedGemmLtResources& resources,
                                  const GroupedGemmShape& shape, const void* dy_RN,
                                  const void* w_LNK, const int64_t* offsets, void* dx_RK,
                                  cudaStream_t stream) {
  return RunLt(resources, Op::kDgrad, shape,
               {Bytes(w_LNK), Bytes(dy_RN), static_cast<char*>(dx_RK), 2}, offsets, CUDA_R_16BF,
               0.0f, stream);
}

cublasStatus_t GroupedGemmWgradLt(const GroupedGemmLtResources& resources,
                                  const GroupedGemmShape& shape, const void* dy_RN,
                                  const void* x_RK, const int64_t* offsets, bool accumulate,
                                  GroupedGemmOutput output, void* dw_LNK, cudaStream_t stream) {
  const bool fp32 = output == GroupedGemmOutput::kFp32;
  YM_LT_TRY(RunLt(resources, Op::kWgrad, shape,
                  {Bytes(x_RK), Bytes(dy_RN), static_cast<char*>(dw_LNK), fp32 ? 4 : 2}, offsets,
                  fp32 ? CUDA_R_32F : CUDA_R_16BF, accumulate ? 1.0f : 0.0f, stream));
  if (!accumulate) {
    const int64_t words = int64_t{shape.n} * shape.k / (fp32 ? 1 : 2);
    lt::ZeroEmptyKernel<<<dim3(64, shape.experts), 256, 0, stream>>>(
        offsets, shape.rows, words, static_cast<uint32_t*>(dw_LNK));
    if (cudaGetLastError() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

#else  // these headers know no grouped matmul

bool GroupedGemmLtUsable() { return false; }

size_t GroupedGemmLtArrayBytes(int) { return 0; }

cublasStatus_t GroupedGemmForwardLt(const GroupedGemmLtResources&, const GroupedGemmShape&,
                                    const void*, const void*, const int64_t*, void*, cudaStream_t) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t GroupedGemmDgradLt(const GroupedGemmLtResources&, const GroupedGemmShape&,
                                  const void*, const void*, const int64_t*, void*, cudaStream_t) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t GroupedGemmWgradLt(const GroupedGemmLtResources&, const GroupedGemmShape&,
                                  const void*, const void*, const int64_t*, bool, GroupedGemmOutput,
                                  void*, cudaStream_t) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

#endif

}  // namespace yardmaster
