// File: src/ops/cuda/blas_lt.h
//
// cuBLASLt for everything dense: one algorithm per problem, the first that the library's heuristics name for it, asked
// once and kept, so that the same shapes run the same code in every step and in every run of the same build and GPU.
// Split-K algorithms add in the compute type, in order. BF16 accumulates in FP32; FP32 never uses TF32.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>
#include <memory>
#include <string>

#include "src/ops/cuda/cuda_stream.h"

namespace yardmaster::cuda {

// D[b] = alpha op(A[b]) op(B[b]) + beta C[b] for `batch` matrices, row-major; strides in elements, 0: the same matrix.
struct MatmulShape {
  DType type = DType::kBF16;      // of A and B
  DType out = DType::kBF16;       // of C and D; `type`, or F32 with BF16 operands
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0, ldd = 0;
  bool trans_a = false, trans_b = false;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0, stride_d = 0;
  auto operator<=>(const MatmulShape&) const = default;
};

class BlasLt {
 public:
  explicit BlasLt(CudaDevice& device);
  BlasLt(const BlasLt&) = delete;
  BlasLt& operator=(const BlasLt&) = delete;
  ~BlasLt();

  // m, n, k and batch not 0. `c` may be `d`; it is not read for beta 0.
  void Run(cudaStream_t stream, const char* op, const MatmulShape& shape, const void* a, const void* b, const void* c, void* d,
           double alpha, double beta);
  // A line per problem: the shape and the algorithm taken for it.
  std::string Table() const;

 private:
  struct Key {
    MatmulShape shape;
    int align_a = 0, align_b = 0, align_c = 0, align_d = 0;  // bytes, at most 256
    auto operator<=>(const Key&) const = default;
  };
  struct Plan;
  Plan& PlanFor(const Key& key, const char* op);
  void Check(cublasStatus_t status, const char* op, const char* call) const;

  CudaDevice& device_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

// The device's; Run on `stream` with contiguous checks left to the caller.
inline BlasLt& BlasLtOf(const Stream& stream) { return CudaDeviceOf(stream).Extension<BlasLt>(); }

}  // namespace yardmaster::cuda
