// File: tools/bench/gpu_bench.cuh
//
// What the stand-alone CUDA benchmarks share: checked calls, device buffers, random data, paired
// timing, and dense cuBLASLt products as the yardstick. No part of the product.
#pragma once

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#define BENCH_CHECK(call)                                                 \
  do {                                                                    \
    const auto bench_status = (call);                                     \
    if (static_cast<int>(bench_status) != 0) {                            \
      std::fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call, \
                   static_cast<int>(bench_status));                       \
      std::exit(1);                                                       \
    }                                                                     \
  } while (0)

namespace yardmaster::bench {

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) : bytes_(bytes) { BENCH_CHECK(cudaMalloc(&data_, bytes)); }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  template <typename T>
  T* As(size_t byte_offset = 0) const {
    return reinterpret_cast<T*>(static_cast<char*>(data_) + byte_offset);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

__host__ __device__ inline uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Standard normal times scale.
__device__ inline float Normal(uint64_t seed, uint64_t index, float scale) {
  const uint64_t bits = Mix(Mix(seed) ^ index);
  const float u = (static_cast<uint32_t>(bits) + 1.0f) * 2.3283064e-10f;
  const float v = static_cast<uint32_t>(bits >> 32) * 2.3283064e-10f;
  return sqrtf(-2.0f * logf(fminf(u, 1.0f))) * cospif(2.0f * v) * scale;
}

template <typename T>
__global__ void FillNormalKernel(T* data, size_t count, uint64_t seed, float scale) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    data[i] = static_cast<T>(Normal(seed, i, scale));
  }
}

template <typename T>
void FillNormal(T* data, size_t count, uint64_t seed, float scale) {
  FillNormalKernel<<<1056, 256>>>(data, count, seed, scale);
  BENCH_CHECK(cudaGetLastError());
}

template <typename T>
__global__ void FillKernel(T* data, size_t count, T value) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x)
    data[i] = value;
}

template <typename T>
void Fill(T* data, size_t count, T value) {
  if (count == 0) return;
  FillKernel<<<1056, 256>>>(data, count, value);
  BENCH_CHECK(cudaGetLastError());
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

struct PairedTime {
  double first_ms, second_ms;  // medians
  double ratio;  // median over the pairs of second / first: above 1, the first is faster
};

// Runs the two in turn `pairs` times, changing the order from pair to pair, after `warm_up` untimed
// runs of each.
inline PairedTime TimePaired(const std::function<void()>& first,
                             const std::function<void()>& second, int pairs, int warm_up) {
  for (int i = 0; i < warm_up; ++i) {
    first();
    second();
  }
  std::vector<cudaEvent_t> events(pairs * 3);
  for (cudaEvent_t& e : events) BENCH_CHECK(cudaEventCreate(&e));
  for (int i = 0; i < pairs; ++i) {
    BENCH_CHECK(cudaEventRecord(events[3 * i]));
    (i % 2 ? second : first)();
    BENCH_CHECK(cudaEventRecord(events[3 * i + 1]));
    (i % 2 ? first : second)();
    BENCH_CHECK(cudaEventRecord(events[3 * i + 2]));
  }
  BENCH_CHECK(cudaDeviceSynchronize());
  std::vector<double> a, b, ratios;
  for (int i = 0; i < pairs; ++i) {
    float one, two;
    BENCH_CHECK(cudaEventElapsedTime(&one, events[3 * i], events[3 * i + 1]));
    BENCH_CHECK(cudaEventElapsedTime(&two, events[3 * i + 1], events[3 * i + 2]));
    if (i % 2) std::swap(one, two);
    a.push_back(one);
    b.push_back(two);
    ratios.push_back(two / one);
  }
  for (cudaEvent_t e : events) cudaEventDestroy(e);
  return {Median(a), Median(b), Median(ratios)};
}

// The end of a row: our time and rate, the yardstick's, the ratio.
inline void PrintPair(const PairedTime& t, double flops) {
  std::printf(" %9.3f %7.0f %9.3f %7.0f %6.3f\n", t.first_ms, flops / t.first_ms / 1e9,
              t.second_ms, flops / t.second_ms / 1e9, t.ratio);
  std::fflush(stdout);
}

// One product through cuBLASLt, its first heuristic choice, fixed by Choose. Column-major: D = op(A)
// op(B) + beta D.
class LtProduct {
 public:
  LtProduct(cublasLtHandle_t handle, bool transpose_a, bool transpose_b, int64_t m, int64_t n,
            int64_t k, cudaDataType_t type, cudaDataType_t d_type, float beta,
            const DeviceMemory& workspace)
      : handle_(handle), beta_(beta), workspace_(workspace) {
    BENCH_CHECK(cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    Set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    const int64_t a_rows = transpose_a ? k : m, a_columns = transpose_a ? m : k;
    const int64_t b_rows = transpose_b ? n : k, b_columns = transpose_b ? k : n;
    BENCH_CHECK(cublasLtMatrixLayoutCreate(&a_, type, a_rows, a_columns, a_rows));
    BENCH_CHECK(cublasLtMatrixLayoutCreate(&b_, type, b_rows, b_columns, b_rows));
    BENCH_CHECK(cublasLtMatrixLayoutCreate(&d_, d_type, m, n, m));
  }
  ~LtProduct() {
    cublasLtMatrixLayoutDestroy(a_);
    cublasLtMatrixLayoutDestroy(b_);
    cublasLtMatrixLayoutDestroy(d_);
    cublasLtMatmulDescDestroy(desc_);
  }
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  template <class T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    BENCH_CHECK(cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof(value)));
  }
  // Whether cuBLASLt has an algorithm for it as it is set.
  bool Choose() {
    cublasLtMatmulPreference_t preference;
    BENCH_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    const size_t bytes = workspace_.bytes();
    BENCH_CHECK(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)));
    int found = 0;
    status_ = cublasLtMatmulAlgoGetHeuristic(handle_, desc_, a_, b_, d_, d_, preference, 1,
                                             &result_, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    return status_ == CUBLAS_STATUS_SUCCESS && found > 0;
  }
  int status() const { return status_; }

  void Run(const void* a, const void* b, void* d) const {
    const float one = 1.0f;
    BENCH_CHECK(cublasLtMatmul(handle_, desc_, &one, a, a_, b, b_, &beta_, d, d_, d, d_,
                               &result_.algo, workspace_.As<void>(), workspace_.bytes(), nullptr));
  }

 private:
  cublasLtHandle_t handle_;
  float beta_;
  const DeviceMemory& workspace_;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulHeuristicResult_t result_ = {};
};

// The yardstick: BF16 operands.
class DenseGemm : public LtProduct {
 public:
  DenseGemm(cublasLtHandle_t handle, bool transpose_a, bool transpose_b, int64_t m, int64_t n,
            int64_t k, cudaDataType_t d_type, float beta, const DeviceMemory& workspace)
      : LtProduct(handle, transpose_a, transpose_b, m, n, k, CUDA_R_16BF, d_type, beta, workspace) {
    if (Choose()) return;
    std::fprintf(stderr, "cuBLASLt has no algorithm for this shape (%d)\n", status());
    std::exit(1);
  }
};

}  // namespace yardmaster::bench
