#include "src/ops/cpu/grouped_gemm_cpu.h"

#include <algorithm>

#include "src/device/cpu_parallel.h"
#include "src/ops/cpu/blas.h"

namespace yardmaster::cpu {
namespace {

constexpr int64_t kRowBlock = 256;     // of an expert's ragged rows
constexpr int64_t kWeightBlock = 128;  // of the rows of one expert's weight

void CheckOffsets(const int64_t* offsets, int64_t L, int64_t R) {
  YM_CHECK(offsets[0] == 0 && offsets[L] <= R, "offsets from ", offsets[0], " to ", offsets[L],
           " of ", R, " rows");
  for (int64_t l = 0; l < L; ++l) YM_CHECK_LE(offsets[l], offsets[l + 1], "offsets of expert ", l);
}

// f(expert, begin, end) for blocks of at most kRowBlock rows of one expert.
template <class F>
void ForRowBlocks(const Stream& stream, const int64_t* offsets, int64_t L, F&& f) {
  int64_t blocks = 0;
  for (int64_t l = 0; l < L; ++l)
    blocks += (offsets[l + 1] - offsets[l] + kRowBlock - 1) / kRowBlock;
  ParallelFor(stream, blocks, 1, [&](int64_t block, int64_t) {
    int64_t l = 0;
    for (;; ++l) {
      const int64_t of_expert = (offsets[l + 1] - offsets[l] + kRowBlock - 1) / kRowBlock;
      if (block < of_expert) break;
      block -= of_expert;
    }
    const int64_t begin = offsets[l] + block * kRowBlock;
    f(l, begin, std::min(begin + kRowBlock, offsets[l + 1]));
  });
}

}  // namespace

void GroupedGemmForward(const Stream& stream, const Tensor& x_RK, const Tensor& w_LNK,
                        const Tensor& offsets, const Tensor& y_RN) {
  const int64_t L = w_LNK.dim(0), N = w_LNK.dim(1), K = w_LNK.dim(2);
  const int64_t* off = offsets.as<int64_t>();
  CheckOffsets(off, L, x_RK.dim(0));
  DispatchFloat(w_LNK.dtype(), [&]<class T>() {
    const T* x = x_RK.as<T>();
    const T* w = w_LNK.as<T>();
    T* y = y_RN.as<T>();
    ForRowBlocks(stream, off, L, [&](int64_t l, int64_t begin, int64_t end) {
      BlasGemm<T>(false, true, end - begin, N, K, T{1}, {x + begin * K, K}, {w + l * N * K, K},
                  T{0}, {y + begin * N, N});
    });
  });
}

void GroupedGemmBackwardInput(const Stream& stream, const Tensor& dy_RN, const Tensor& w_LNK,
                              const Tensor& offsets, const Tensor& dx_RK) {
  const int64_t L = w_LNK.dim(0), N = w_LNK.dim(1), K = w_LNK.dim(2);
  const int64_t* off = offsets.as<int64_t>();
  CheckOffsets(off, L, dy_RN.dim(0));
  DispatchFloat(w_LNK.dtype(), [&]<class T>() {
    const T* dy = dy_RN.as<T>();
    const T* w = w_LNK.as<T>();
    T* dx = dx_RK.as<T>();
    ForRowBlocks(stream, off, L, [&](int64_t l, int64_t begin, int64_t end) {
      BlasGemm<T>(false, false, end - begin, K, N, T{1}, {dy + begin * N, N}, {w + l * N * K, K},
                  T{0}, {dx + begin * K, K});
    });
  });
}

void GroupedGemmBackwardWeight(const Stream& stream, const Tensor& dy_RN, const Tensor& x_RK,
                               const Tensor& offsets, double beta, const Tensor& dw_LNK) {
  const int64_t L = dw_LNK.dim(0), N = dw_LNK.dim(1), K = dw_LNK.dim(2);
  const int64_t* off = offsets.as<int64_t>();
  CheckOffsets(off, L, x_RK.dim(0));
  DispatchFloat(dw_LNK.dtype(), [&]<class T>() {
    const T* dy = dy_RN.as<T>();
    const T* x = x_RK.as<T>();
    T* dw = dw_LNK.as<T>();
    const int64_t blocks = (N + kWeightBlock - 1) / kWeightBlock;
    ParallelFor(stream, L * blocks, 1, [&](int64_t task, int64_t) {
      const int64_t l = task / blocks, n0 = task % blocks * kWeightBlock,
                    n1 = std::min(n0 + kWeightBlock, N);
      // The rows are the contraction: no rows leave beta * dw, which is zeros for beta == 0.
      BlasGemm<T>(true, false, n1 - n0, K, off[l + 1] - off[l], T{1}, {dy + off[l] * N + n0, N},
                  {x + off[l] * K, K}, static_cast<T>(beta), {dw + (l * N + n0) * K, K});
    });
  });
}

}  // namespace yardmaster::cpu
