// File: tools/bench/lt_stand_in.cuh
//
// A stand-in for cuBLASLt's grouped matmul, for programs that are not linked with the library: the
// functions that kernels/grouped_gemm/sm100_cublaslt.cuh calls, by what NVIDIA documents of them.
// It multiplies with one thread for each output, on any GPU, and refuses what the documentation
// forbids: sizes of attributes on the host; alignment, and shapes that do not fit, on the device
// (LtStandInErrors). Needs cublasLt.h of cuBLAS 13.3 or later. No part of the product, and no
// statement about the library itself.
#pragma once

#include <cublasLt.h>

#include <cstring>

#include "tools/bench/fp8_data.cuh"

namespace yardmaster::bench {

struct StandInLayout {
  cudaDataType type;
  int groups;
  const int64_t *rows, *columns, *ld;
  bool wide_sizes = false, wide_ld = false;
};

struct StandInMatmul {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  int32_t a_mode = 0, b_mode = 0;
  const uint8_t *const *a_scales = nullptr, *const *b_scales = nullptr;
};

struct StandInPreference {
  int averages = 0;
};

__device__ unsigned long long lt_stand_in_errors = 0;

inline unsigned long long LtStandInErrors() {
  unsigned long long errors = 0;
  BENCH_CHECK(cudaMemcpyFromSymbol(&errors, lt_stand_in_errors, sizeof(errors)));
  return errors;
}

// Of 128 x 4 scales; `length` is the contraction's.
__device__ inline double TileScale(const uint8_t* tiles, int64_t outer, int64_t k, int64_t length) {
  const int64_t run = k / 32, tile = outer / 128 * ((length + 127) / 128) + run / 4;
  return ldexp(1.0, tiles[tile * 512 + outer % 32 * 16 + outer % 128 / 32 * 4 + run % 4] - 127);
}

struct StandInOperand {
  const void* const* data;
  const int64_t *rows, *columns, *ld;
  const uint8_t* const* scales;  // null: BF16
  bool k_first;                  // the contraction lies along its rows, contiguous

  __device__ double At(int g, int64_t outer, int64_t k) const {
    const int64_t at = k_first ? k + outer * ld[g] : outer + k * ld[g];
    if (scales == nullptr)
      return static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(data[g])[at]));
    return CodeValue(static_cast<const uint8_t*>(data[g])[at]) *
           TileScale(scales[g], outer, k, Length(g));
  }
  __device__ int64_t Length(int g) const { return k_first ? rows[g] : columns[g]; }
  __device__ int64_t Outer(int g) const { return k_first ? columns[g] : rows[g]; }
};

__device__ inline bool Is16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class T>
__global__ void StandInKernel(StandInOperand a, StandInOperand b, const void* const* c,
                              const int64_t* c_ld, void* const* d, const int64_t* d_rows,
                              const int64_t* d_columns, const int64_t* d_ld, float beta) {
  const int g = blockIdx.y;
  const int64_t m = d_rows[g], n = d_columns[g], length = a.Length(g);
  const int64_t element = a.scales == nullptr ? 2 : 1;
  const bool fits = a.Outer(g) == m && b.Outer(g) == n && b.Length(g) == length;
  const bool aligned =
      Is16(a.data[g]) && Is16(b.data[g]) && Is16(d[g]) && (beta == 0 || Is16(c[g])) &&
      (a.scales == nullptr || (Is16(a.scales[g]) && Is16(b.scales[g]))) &&
      a.ld[g] * element % 16 == 0 && b.ld[g] * element % 16 == 0 && d_ld[g] * sizeof(T) % 16 == 0 &&
      m * sizeof(T) % 16 == 0 && (a.scales == nullptr || length % 32 == 0);
  if (!fits || !aligned || a.ld[g] < a.rows[g] || b.ld[g] < b.rows[g] || d_ld[g] < m) {
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(&lt_stand_in_errors, 1ull);
    return;
  }
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < m * n;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t row = i % m, column = i / m;
    double sum = 0;
    for (int64_t k = 0; k < length; ++k) sum += a.At(g, row, k) * b.At(g, column, k);
    if (beta != 0)
      sum += beta * static_cast<double>(
                        static_cast<float>(static_cast<const T*>(c[g])[row + column * c_ld[g]]));
    static_cast<T*>(d[g])[row + column * d_ld[g]] = static_cast<T>(static_cast<float>(sum));
  }
}

inline bool Host16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace yardmaster::bench

namespace bench = yardmaster::bench;

inline bench::StandInLayout* StandIn(cublasLtMatrixLayout_t l) {
  return reinterpret_cast<bench::StandInLayout*>(l);
}
inline bench::StandInMatmul* StandIn(cublasLtMatmulDesc_t m) {
  return reinterpret_cast<bench::StandInMatmul*>(m);
}

extern "C" {

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* m, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *m = reinterpret_cast<cublasLtMatmulDesc_t>(new bench::StandInMatmul);
  return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS
                                                              : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t m) {
  delete StandIn(m);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t m,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  const auto set = [&](auto* member) {
    if (bytes != sizeof(*member)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(member, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(&StandIn(m)->a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(&StandIn(m)->b);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return set(&StandIn(m)->a_mode);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return set(&StandIn(m)->b_mode);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(&StandIn(m)->a_scales);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(&StandIn(m)->b_scales);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtGroupedMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                                 int groups, const void* rows, const void* columns,
                                                 const void* ld) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new bench::StandInLayout{
      type, groups, static_cast<const int64_t*>(rows), static_cast<const int64_t*>(columns),
      static_cast<const int64_t*>(ld)});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete StandIn(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, size_t bytes) {
  int32_t width = -1;
  if (bytes != sizeof(width)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&width, value, bytes);
  if (width != CUBLASLT_INTEGER_WIDTH_64) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (name == CUBLASLT_GROUPED_MATRIX_LAYOUT_ROWS_COLS_ARRAY_INTEGER_WIDTH)
    StandIn(layout)->wide_sizes = true;
  else if (name == CUBLASLT_GROUPED_MATRIX_LAYOUT_LD_ARRAY_INTEGER_WIDTH)
    StandIn(layout)->wide_ld = true;
  else
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = reinterpret_cast<cublasLtMatmulPreference_t>(new bench::StandInPreference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete reinterpret_cast<bench::StandInPreference*>(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void* value, size_t bytes) {
  int64_t number = 0;  // all four are 8 bytes in cuBLAS 13.10
  if (bytes != sizeof(number)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&number, value, bytes);
  ++reinterpret_cast<bench::StandInPreference*>(p)->averages;
  return number > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t m,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t*, int* found) {
  const bool mx = StandIn(m)->a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 &&
                  StandIn(m)->b_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
  const cudaDataType in = mx ? CUDA_R_8F_E4M3 : CUDA_R_16BF, out = StandIn(d)->type;
  *found = StandIn(a)->type == in && StandIn(b)->type == in && StandIn(c)->type == out &&
           (out == CUDA_R_16BF || out == CUDA_R_32F) &&
           (!mx || (StandIn(m)->a == CUBLAS_OP_T && StandIn(m)->b == CUBLAS_OP_N));
  for (cublasLtMatrixLayout_t l : {a, b, c, d})
    if (!StandIn(l)->wide_sizes || !StandIn(l)->wide_ld || StandIn(l)->groups != StandIn(a)->groups)
      return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t m, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*,
                              void* workspace, size_t, cudaStream_t stream) {
  const bool mx = StandIn(m)->a_mode != 0;
  for (const void* p :
       {a, b, c, static_cast<const void*>(d), static_cast<const void*>(StandIn(m)->a_scales),
        static_cast<const void*>(StandIn(m)->b_scales)})
    if (!bench::Host16(p)) return CUBLAS_STATUS_INVALID_VALUE;
  if (reinterpret_cast<uintptr_t>(workspace) % 256 || *static_cast<const float*>(alpha) != 1.0f)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto operand = [&](const void* data, cublasLtMatrixLayout_t layout,
                           const uint8_t* const* scales, bool k_first) {
    return bench::StandInOperand{static_cast<const void* const*>(data),
                                 StandIn(layout)->rows,
                                 StandIn(layout)->columns,
                                 StandIn(layout)->ld,
                                 mx ? scales : nullptr,
                                 k_first};
  };
  const auto launch = [&](auto kernel) {
    kernel<<<dim3(256, StandIn(d_layout)->groups), 256, 0, stream>>>(
        operand(a, a_layout, StandIn(m)->a_scales, StandIn(m)->a == CUBLAS_OP_T),
        operand(b, b_layout, StandIn(m)->b_scales, StandIn(m)->b == CUBLAS_OP_N),
        static_cast<const void* const*>(c), StandIn(c_layout)->ld, static_cast<void* const*>(d),
        StandIn(d_layout)->rows, StandIn(d_layout)->columns, StandIn(d_layout)->ld,
        *static_cast<const float*>(beta));
  };
  if (StandIn(d_layout)->type == CUDA_R_32F)
    launch(bench::StandInKernel<float>);
  else
    launch(bench::StandInKernel<__nv_bfloat16>);
  return cudaGetLastError() == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
