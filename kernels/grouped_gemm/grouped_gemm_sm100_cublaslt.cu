#include "kernels/grouped_gemm/grouped_gemm_sm100_cublaslt.h"

// cuBLAS 13.3, the first whose cublasLt.h declares cublasLtGroupedMatrixLayoutCreate.
#define YM_HAVE_LT_GROUPED (CUBLAS_VERSION >= 130300)

namespace yardmaster {

#if YM_HAVE_LT_GROUPED

namespace {

constexpr size_t kFirstVersion = 130300;

// cuBLASLt is column-major: a row-major [rows, columns] matrix is its [columns, rows].
//   forward  y_RN^T [N, r]  = op_T(w [K, N]) x^T [K, r]
//   dgrad    dx_RK^T [K, r] = w [K, N] dy^T [N, r]
//   wgrad    dw^T [K, N]    = x^T [K, r] op_T(dy^T [N, r])
enum class Op { kForward, kDgrad, kWgrad };

// One entry per expert of everything that cuBLASLt reads on the device.
struct Arrays {
  const void** a;
  const void** b;
  void** d;
  int64_t *a_rows, *a_columns, *b_rows, *b_columns, *d_rows, *d_columns;
};

Arrays Split(void* memory, int experts) {
  auto* const base = static_cast<int64_t*>(memory);
  const auto part = [&](int i) { return base + int64_t{i} * experts; };
  return {reinterpret_cast<const void**>(part(0)),
          reinterpret_cast<const void**>(part(1)),
          reinterpret_cast<void**>(part(2)),
          part(3),
          part(4),
          part(5),
          part(6),
          part(7),
          part(8)};
}

constexpr int kParts = 9;

struct Operands {
  const char* w_or_x;  // A: w_LNK, w_LNK, x_RK
  const char* rows_b;  // B: x_RK, dy_RN, dy_RN
  char* d;
  int64_t d_element;  // bytes
};

__global__ void FillArraysKernel(Op op, Arrays out, Operands in, const int64_t* offsets,
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

// wgrad, beta 0: whatever the library does with a contraction of length 0, these are zeros. n * k
// is a multiple of 64: words fit.
__global__ void ZeroEmptyKernel(const int64_t* offsets, int64_t rows, int64_t words, uint32_t* d) {
  const int e = blockIdx.y;
  const int64_t begin = offsets[e] < rows ? offsets[e] : rows;
  const int64_t end = offsets[e + 1] < rows ? offsets[e + 1] : rows;
  if (begin != end) return;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < words;
       i += int64_t{gridDim.x} * blockDim.x)
    d[e * words + i] = 0;
}

#define YM_LT_TRY(call)                                                                       \
  do {                                                                                        \
    if (const cublasStatus_t status = (call); status != CUBLAS_STATUS_SUCCESS) return status; \
  } while (false)

// The library's descriptors, destroyed on every way out.
struct Descriptors {
  cublasLtMatmulDesc_t matmul = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  ~Descriptors() {
    if (preference) cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t layout : {a, b, d})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    if (matmul) cublasLtMatmulDescDestroy(matmul);
  }
};

cublasStatus_t MakeLayout(cublasLtMatrixLayout_t* layout, cudaDataType type, int experts,
                          const int64_t* rows, const int64_t* columns) {
  // Dense column-major matrices: the leading dimension is the number of rows.
  YM_LT_TRY(cublasLtGroupedMatrixLayoutCreate(layout, type, experts, rows, columns, rows));
  const int32_t wide = CUBLASLT_INTEGER_WIDTH_64;
  YM_LT_TRY(cublasLtMatrixLayoutSetAttribute(
      *layout, CUBLASLT_GROUPED_MATRIX_LAYOUT_ROWS_COLS_ARRAY_INTEGER_WIDTH, &wide, sizeof(wide)));
  return cublasLtMatrixLayoutSetAttribute(
      *layout, CUBLASLT_GROUPED_MATRIX_LAYOUT_LD_ARRAY_INTEGER_WIDTH, &wide, sizeof(wide));
}

cublasStatus_t SetPreference(cublasLtMatmulPreference_t preference,
                             cublasLtMatmulPreferenceAttributes_t name, int64_t value) {
  const auto narrow = static_cast<uint32_t>(value < 1 ? 1 : value);
  return cublasLtMatmulPreferenceSetAttribute(preference, name, &narrow, sizeof(narrow));
}

cublasStatus_t RunLt(const GroupedGemmLtResources& r, Op op, const GroupedGemmShape& s,
                     const Operands& operands, const int64_t* offsets, cudaDataType d_type,
                     float beta, cudaStream_t stream) {
  if (!GroupedGemmLtUsable()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (s.rows < 0 || s.experts < 1 || s.experts > kGroupedGemmMaxExperts || s.n < 1 || s.k < 1 ||
      s.n % 8 || s.k % 8)
    return CUBLAS_STATUS_INVALID_VALUE;
  const Arrays arrays = Split(r.arrays, s.experts);
  FillArraysKernel<<<(s.experts + 127) / 128, 128, 0, stream>>>(op, arrays, operands, offsets,
                                                                s.rows, s.experts, s.n, s.k);
  if (cudaGetLastError() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;

  Descriptors desc;
  const cublasOperation_t ta = op == Op::kForward ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t tb = op == Op::kWgrad ? CUBLAS_OP_T : CUBLAS_OP_N;
  YM_LT_TRY(cublasLtMatmulDescCreate(&desc.matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  YM_LT_TRY(
      cublasLtMatmulDescSetAttribute(desc.matmul, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof(ta)));
  YM_LT_TRY(
      cublasLtMatmulDescSetAttribute(desc.matmul, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof(tb)));
  YM_LT_TRY(MakeLayout(&desc.a, CUDA_R_16BF, s.experts, arrays.a_rows, arrays.a_columns));
  YM_LT_TRY(MakeLayout(&desc.b, CUDA_R_16BF, s.experts, arrays.b_rows, arrays.b_columns));
  YM_LT_TRY(MakeLayout(&desc.d, d_type, s.experts, arrays.d_rows, arrays.d_columns));

  // The host knows the mean count only, and the choice depends on nothing else: the same every
  // time.
  const int64_t mean = s.rows / s.experts;
  YM_LT_TRY(cublasLtMatmulPreferenceCreate(&desc.preference));
  YM_LT_TRY(cublasLtMatmulPreferenceSetAttribute(desc.preference,
                                                 CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &r.workspace_bytes, sizeof(r.workspace_bytes)));
  YM_LT_TRY(SetPreference(desc.preference, CUBLASLT_MATMUL_PREF_GROUPED_AVERAGE_REDUCTION_DIM,
                          op == Op::kForward ? s.k
                          : op == Op::kDgrad ? s.n
                                             : mean));
  YM_LT_TRY(SetPreference(desc.preference, CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_ROWS,
                          op == Op::kForward ? s.n : s.k));
  YM_LT_TRY(SetPreference(desc.preference, CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_COLS,
                          op == Op::kWgrad ? s.n : mean));
  cublasLtMatmulHeuristicResult_t choice = {};
  int found = 0;
  YM_LT_TRY(cublasLtMatmulAlgoGetHeuristic(r.handle, desc.matmul, desc.a, desc.b, desc.d, desc.d,
                                           desc.preference, 1, &choice, &found));
  if (found == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  const float alpha = 1.0f;
  return cublasLtMatmul(r.handle, desc.matmul, &alpha, arrays.a, desc.a, arrays.b, desc.b, &beta,
                        arrays.d, desc.d, arrays.d, desc.d, &choice.algo, r.workspace,
                        r.workspace_bytes, stream);
}

const char* Bytes(const void* p) { return static_cast<const char*>(p); }

}  // namespace

bool GroupedGemmLtUsable() { return cublasLtGetVersion() >= kFirstVersion; }

size_t GroupedGemmLtArrayBytes(int experts) {
  return sizeof(int64_t) * kParts * static_cast<size_t>(experts);
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
    ZeroEmptyKernel<<<dim3(64, shape.experts), 256, 0, stream>>>(offsets, shape.rows, words,
                                                                 static_cast<uint32_t*>(dw_LNK));
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
