// File: kernels/grouped_gemm/sm100_cublaslt.cuh
//
// What the grouped matmuls of cuBLASLt share, BF16 (grouped_gemm_sm100_cublaslt.cu) and MXFP8
// (grouped_gemm_mxfp8_sm100_cublaslt.cu): the arrays that the library reads on the device, its
// descriptors, and the call. For these two files alone, and behind YM_HAVE_LT_GROUPED.
//
// What the library asks for (cuBLAS 13.10's cublasLt.h, NVIDIA's documentation of cublasLtMatmul,
// "grouped matrices", and its samples): compute capability 10.x; column-major; operands, leading
// dimensions and arrays of pointers 16-byte aligned; one alpha and beta on the host for all groups;
// C may be D. Shapes lie on the device, so that it checks little: what breaks these rules is
// undefined.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/grouped_gemm/grouped_gemm_sm100_cublaslt.h"

// cuBLAS 13.3, the first whose grouped matmul takes MXFP8 and gives a group of contraction length 0
// its zeros; 13.2 declares it too.
#define YM_HAVE_LT_GROUPED (CUBLAS_VERSION >= 130300)

#define YM_LT_TRY(call)                                                                       \
  do {                                                                                        \
    if (const cublasStatus_t status = (call); status != CUBLAS_STATUS_SUCCESS) return status; \
  } while (false)

namespace yardmaster::lt {

// One entry per group of everything that cuBLASLt reads on the device.
struct Arrays {
  const void **a, **b, **c;
  void** d;
  const void **a_scales, **b_scales;
  int64_t *a_rows, *a_columns, *a_ld, *b_rows, *b_columns, *b_ld, *d_rows, *d_columns, *d_ld, *c_ld;
};

inline constexpr int kParts = 16;

// Every array begins at a multiple of 16 bytes.
inline int64_t PartEntries(int groups) { return (int64_t{groups} + 1) / 2 * 2; }

inline Arrays Split(void* memory, int groups) {
  auto* const base = static_cast<int64_t*>(memory);
  const auto part = [&](int i) { return base + i * PartEntries(groups); };
  const auto pointers = [&](int i) { return reinterpret_cast<const void**>(part(i)); };
  return {pointers(0), pointers(1), pointers(2), reinterpret_cast<void**>(part(3)),
          pointers(4), pointers(5), part(6),     part(7),
          part(8),     part(9),     part(10),    part(11),
          part(12),    part(13),    part(14),    part(15)};
}

#if YM_HAVE_LT_GROUPED

inline constexpr size_t kFirstVersion = 130300;

// A product of column-major matrices, group by group: D = op(A) op(B) + beta C.
struct Problem {
  cudaDataType in = CUDA_R_16BF, out = CUDA_R_16BF;
  cublasOperation_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
  int groups = 0;
  bool dense = true;  // leading dimensions are the numbers of rows; the arrays of them are not read
  bool c_is_d = true;
  bool mx = false;  // A and B in E4M3 with E8M0 scales of 32, which the arrays of scales point to
  float beta = 0;
  // Averages over the groups, for the choice of an algorithm: of D, and of the contraction.
  int64_t rows = 0, columns = 0, contraction = 0;
};

// The library's descriptors, destroyed on every way out.
struct Descriptors {
  cublasLtMatmulDesc_t matmul = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  ~Descriptors() {
    if (preference) cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t layout : {a, b, c, d})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    if (matmul) cublasLtMatmulDescDestroy(matmul);
  }
};

template <class T>
cublasStatus_t Set(cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t name, T value) {
  return cublasLtMatmulDescSetAttribute(matmul, name, &value, sizeof(value));
}

inline cublasStatus_t MakeLayout(cublasLtMatrixLayout_t* layout, cudaDataType type, int groups,
                                 const int64_t* rows, const int64_t* columns, const int64_t* ld) {
  YM_LT_TRY(cublasLtGroupedMatrixLayoutCreate(layout, type, groups, rows, columns, ld));
  const int32_t wide = CUBLASLT_INTEGER_WIDTH_64;
  YM_LT_TRY(cublasLtMatrixLayoutSetAttribute(
      *layout, CUBLASLT_GROUPED_MATRIX_LAYOUT_ROWS_COLS_ARRAY_INTEGER_WIDTH, &wide, sizeof(wide)));
  return cublasLtMatrixLayoutSetAttribute(
      *layout, CUBLASLT_GROUPED_MATRIX_LAYOUT_LD_ARRAY_INTEGER_WIDTH, &wide, sizeof(wide));
}

// 64 bits wide, whatever cublasLt.h says: cuBLAS 13.10 refuses 32 bits as an invalid value.
inline cublasStatus_t Prefer(cublasLtMatmulPreference_t preference,
                             cublasLtMatmulPreferenceAttributes_t name, int64_t average) {
  const int64_t value = average < 1 ? 1 : average;
  return cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof(value));
}

inline cublasStatus_t Describe(const Problem& p, const Arrays& arrays, size_t workspace_bytes,
                               Descriptors& desc) {
  YM_LT_TRY(cublasLtMatmulDescCreate(&desc.matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  YM_LT_TRY(Set(desc.matmul, CUBLASLT_MATMUL_DESC_TRANSA, p.trans_a));
  YM_LT_TRY(Set(desc.matmul, CUBLASLT_MATMUL_DESC_TRANSB, p.trans_b));
  if (p.mx) {
    const int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    YM_LT_TRY(Set(desc.matmul, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode));
    YM_LT_TRY(Set(desc.matmul, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode));
    YM_LT_TRY(Set(desc.matmul, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, arrays.a_scales));
    YM_LT_TRY(Set(desc.matmul, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, arrays.b_scales));
  }
  const auto ld = [&](const int64_t* given, const int64_t* rows) { return p.dense ? rows : given; };
  YM_LT_TRY(MakeLayout(&desc.a, p.in, p.groups, arrays.a_rows, arrays.a_columns,
                       ld(arrays.a_ld, arrays.a_rows)));
  YM_LT_TRY(MakeLayout(&desc.b, p.in, p.groups, arrays.b_rows, arrays.b_columns,
                       ld(arrays.b_ld, arrays.b_rows)));
  YM_LT_TRY(MakeLayout(&desc.d, p.out, p.groups, arrays.d_rows, arrays.d_columns,
                       ld(arrays.d_ld, arrays.d_rows)));
  if (!p.c_is_d) {
    YM_LT_TRY(
        MakeLayout(&desc.c, p.out, p.groups, arrays.d_rows, arrays.d_columns, arrays.c_ld));
  }
  YM_LT_TRY(cublasLtMatmulPreferenceCreate(&desc.preference));
  YM_LT_TRY(cublasLtMatmulPreferenceSetAttribute(desc.preference,
                                                 CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &workspace_bytes, sizeof(workspace_bytes)));
  YM_LT_TRY(Prefer(desc.preference, CUBLASLT_MATMUL_PREF_GROUPED_AVERAGE_REDUCTION_DIM,
                   p.contraction));
  YM_LT_TRY(Prefer(desc.preference, CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_ROWS, p.rows));
  return Prefer(desc.preference, CUBLASLT_MATMUL_PREF_GROUPED_DESC_D_AVERAGE_COLS, p.columns);
}

// The arrays are written by work that `stream` was given before. CUBLAS_STATUS_NOT_SUPPORTED: the
// library has no algorithm, nothing was enqueued.
inline cublasStatus_t Run(const GroupedGemmLtResources& r, const Problem& p, const Arrays& arrays,
                          cudaStream_t stream) {
  Descriptors desc;
  YM_LT_TRY(Describe(p, arrays, r.workspace_bytes, desc));
  const cublasLtMatrixLayout_t c = p.c_is_d ? desc.d : desc.c;
  // The host knows the mean count only, and the choice depends on nothing else: the same every
  // time.
  cublasLtMatmulHeuristicResult_t choice = {};
  int found = 0;
  YM_LT_TRY(cublasLtMatmulAlgoGetHeuristic(r.handle, desc.matmul, desc.a, desc.b, c, desc.d,
                                           desc.preference, 1, &choice, &found));
  if (found == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  const float alpha = 1.0f;
  const void* const c_array = p.c_is_d ? static_cast<const void*>(arrays.d) : arrays.c;
  return cublasLtMatmul(r.handle, desc.matmul, &alpha, arrays.a, desc.a, arrays.b, desc.b, &p.beta,
                        c_array, c, arrays.d, desc.d, &choice.algo, r.workspace, r.workspace_bytes,
                        stream);
}

// wgrad, beta 0: whatever the library does with a contraction of length 0, these are zeros. A
// matrix is `words` 4-byte words.
static __global__ void ZeroEmptyKernel(const int64_t* offsets, int64_t rows, int64_t words,
                                       uint32_t* d) {
  const int e = blockIdx.y;
  const int64_t begin = offsets == nullptr ? 0 : offsets[e] < rows ? offsets[e] : rows;
  const int64_t end = offsets != nullptr && offsets[e + 1] < rows ? offsets[e + 1] : rows;
  if (begin != end) return;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < words;
       i += int64_t{gridDim.x} * blockDim.x)
    d[e * words + i] = 0;
}

#endif

}  // namespace yardmaster::lt
