#include "src/ops/cpu/gemm_cpu.h"

#include <algorithm>

#include "src/device/cpu_parallel.h"
#include "src/ops/cpu/blas.h"

namespace yardmaster::cpu {
namespace {

// Below this many operations (some 20 us of one core) waking another thread gains nothing.
constexpr int64_t kOperationsToSplit = 1 << 20;

// Entries of the longer side per block: a power of two of blocks, at least 64 entries each, and 256
// once there are four blocks, because every block packs the other operand again. A multiple of 16,
// the width of the kernels.
int64_t BlockOf(int64_t length, int64_t operations) {
  if (operations < kOperationsToSplit) return length;
  int64_t blocks = 1;
  while (blocks < 64 && length / (blocks * 2) >= (blocks < 4 ? 64 : 256)) blocks *= 2;
  return ((length + blocks - 1) / blocks + 15) / 16 * 16;
}

template <class T>
void GemmTyped(const Stream& stream, const GemmArgs& g) {
  const int64_t m = g.d.dim(0), n = g.d.dim(1), k = g.a.dim(g.trans_a ? 0 : 1);
  const Mat<const T> a{g.a.as<T>(), g.a.ld()}, b{g.b.as<T>(), g.b.ld()};
  const Mat<T> d{g.d.as<T>(), g.d.ld()};
  const T alpha = static_cast<T>(g.alpha), beta = static_cast<T>(g.beta);
  const bool copy_c = g.beta != 0 && g.c.defined() && g.c.data() != g.d.data();
  const T* c = copy_c ? g.c.as<T>() : nullptr;
  const bool split_rows = m >= n;
  ParallelFor(stream, split_rows ? m : n,
              BlockOf(split_rows ? m : n, 2 * m * n * std::max<int64_t>(k, 1)),
              [&](int64_t begin, int64_t end) {
                const int64_t i0 = split_rows ? begin : 0, i1 = split_rows ? end : m;
                const int64_t j0 = split_rows ? 0 : begin, j1 = split_rows ? n : end;
                if (copy_c) {
                  for (int64_t i = i0; i < i1; ++i) {
                    std::copy(c + i * g.c.ld() + j0, c + i * g.c.ld() + j1, d.data + i * d.ld + j0);
                  }
                }
                BlasGemm<T>(g.trans_a, g.trans_b, i1 - i0, j1 - j0, k, alpha,
                            {a.data + (g.trans_a ? i0 : i0 * a.ld), a.ld},
                            {b.data + (g.trans_b ? j0 * b.ld : j0), b.ld}, beta,
                            {d.data + i0 * d.ld + j0, d.ld});
              });
}

}  // namespace

void Gemm(const Stream& stream, const GemmArgs& args) {
  DispatchFloat(args.a.dtype(), [&]<class T>() { GemmTyped<T>(stream, args); });
}

}  // namespace yardmaster::cpu
