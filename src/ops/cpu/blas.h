// File: src/ops/cpu/blas.h
//
// cblas for float and double, row-major, 64-bit sizes in, in the calling thread. Leading dimensions
// in elements.
#pragma once

#include <cblas.h>

#include <cstdint>
#include <limits>

#include "src/base/check.h"

namespace yardmaster::cpu {

// A matrix: row r begins at data + r * ld.
template <class T>
struct Mat {
  T* data;
  int64_t ld;
};

inline int BlasInt(int64_t n) {  // the interface of the distributions' OpenBLAS is 32-bit
  YM_CHECK(n >= 0 && n <= std::numeric_limits<int>::max(), "a GEMM dimension of ", n,
           " is beyond cblas's int");
  return static_cast<int>(n);
}

// D[M, N] = alpha * op(A) op(B) + beta * D. M, N, K may be 0. One thread (PrepareOpenBlas): the
// same shapes give the same bits.
template <class T>
void BlasGemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, T alpha, Mat<const T> a,
              Mat<const T> b, T beta, Mat<T> d) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j)
        d.data[i * d.ld + j] = beta == T{0} ? T{0} : beta * d.data[i * d.ld + j];
    }
    return;
  }
  const CBLAS_TRANSPOSE ta = trans_a ? CblasTrans : CblasNoTrans,
                        tb = trans_b ? CblasTrans : CblasNoTrans;
  const int mi = BlasInt(m), ni = BlasInt(n), ki = BlasInt(k);
  const int lda = BlasInt(a.ld), ldb = BlasInt(b.ld), ldd = BlasInt(d.ld);
  if constexpr (sizeof(T) == sizeof(float)) {
    cblas_sgemm(CblasRowMajor, ta, tb, mi, ni, ki, alpha, a.data, lda, b.data, ldb, beta, d.data,
                ldd);
  } else {
    cblas_dgemm(CblasRowMajor, ta, tb, mi, ni, ki, alpha, a.data, lda, b.data, ldb, beta, d.data,
                ldd);
  }
}

}  // namespace yardmaster::cpu
