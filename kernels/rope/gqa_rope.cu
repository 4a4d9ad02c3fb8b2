#include "kernels/common/pack.cuh"
#include "kernels/rope/gqa_rope.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

template <int kWidth, class T, class A>
__device__ __forceinline__ void RotateHeads(T* x, int heads, int Q, const A* cos_sin, A sign) {
  const int half = Q / 2, packs = half / kWidth;
  for (int i = static_cast<int>(threadIdx.x); i < heads * packs; i += kThreads) {
    const int d = i % packs * kWidth;
    T* low = x + int64_t{i / packs} * Q + d;
    A a[kWidth], b[kWidth];
    LoadAccum<kWidth>(low, a);
    LoadAccum<kWidth>(low + half, b);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const A c = cos_sin != nullptr ? cos_sin[2 * (d + j)] : static_cast<A>(NAN);
      const A s = cos_sin != nullptr ? sign * cos_sin[2 * (d + j) + 1] : static_cast<A>(NAN);
      const A first = a[j] * c - b[j] * s;
      b[j] = a[j] * s + b[j] * c;
      a[j] = first;
    }
    StoreRounded<kWidth>(low, a);
    StoreRounded<kWidth>(low + half, b);
  }
}

constexpr int kBlock = 96, kAtOnce = 3;

// A thread keeps its columns: one division, and the table's values in registers. The rows of kAtOnce heads
// are on their way before the first is turned. For half a head of at most kBlock packs.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock) RotateColumnsKernel(GqaRopeRows g) {
  using A = Accum<T>;
  using P = Pack<T, kWidth>;
  const int half = g.head / 2, packs = half / kWidth, step = kBlock / packs;
  const int first = static_cast<int>(threadIdx.x) / packs,
            d = (static_cast<int>(threadIdx.x) - first * packs) * kWidth;
  if (first >= step) return;
  const int64_t t = blockIdx.x, position = g.positions[t];
  const bool known = position >= 0 && position < g.max_positions;
  const A* row = static_cast<const A*>(g.table) + (known ? position : 0) * g.head + 2 * d;
  const int heads = g.q_heads + g.k_heads;
  T* q = static_cast<T*>(g.q) + t * g.q_heads * g.head + d;
  T* k = static_cast<T*>(g.k) + (t * g.k_heads - g.q_heads) * g.head + d;
  A c[kWidth], s[kWidth];
  for (int base = first; base < heads; base += step * kAtOnce) {
    P low[kAtOnce], high[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int head = base + i * step;
      if (head >= heads) continue;
      const T* from = (head < g.q_heads ? q : k) + int64_t{head} * g.head;
      low[i] = LoadPack<kWidth>(from);
      high[i] = LoadPack<kWidth>(from + half);
    }
    if (base == first) {
#pragma unroll
      for (int j = 0; j < kWidth; j += 2) {
        A cs[4];
        LoadAccum<4>(row + 2 * j, cs);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          c[j + i] = known ? cs[2 * i] : static_cast<A>(NAN);
          s[j + i] = known ? (g.backward ? -cs[2 * i + 1] : cs[2 * i + 1]) : static_cast<A>(NAN);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int head = base + i * step;
      if (head >= heads) continue;
      T* to = (head < g.q_heads ? q : k) + int64_t{head} * g.head;
      A a[kWidth], b[kWidth];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const A x = ToAccum(low[i].x[j]), y = ToAccum(high[i].x[j]);
        a[j] = x * c[j] - y * s[j];
        b[j] = x * s[j] + y * c[j];
      }
      StoreRounded<kWidth>(to, a);
      StoreRounded<kWidth>(to + half, b);
    }
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) RotateKernel(GqaRopeRows g) {
  using A = Accum<T>;
  const A sign = g.backward ? A{-1} : A{1};
  for (int64_t t = blockIdx.x; t < g.tokens; t += gridDim.x) {
    const int64_t position = g.positions[t];
    const bool known = position >= 0 && position < g.max_positions;
    const A* cos_sin = known ? static_cast<const A*>(g.table) + position * g.head : nullptr;
    RotateHeads<kWidth>(static_cast<T*>(g.q) + t * g.q_heads * g.head, g.q_heads, g.head, cos_sin, sign);
    RotateHeads<kWidth>(static_cast<T*>(g.k) + t * g.k_heads * g.head, g.k_heads, g.head, cos_sin, sign);
  }
}

}  // namespace

cudaError_t RotateGqa(KernelType type, const GqaRopeRows& g, cudaStream_t stream) {
  if (g.tokens == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    return DispatchWidth<T>(PacksFit(kPackWidth<T>, {g.q, g.k, g.table}, {g.head / 2}), [&]<int kWidth>() {
      if constexpr (kWidth > 1) {
        if (g.head / 2 / kWidth <= kBlock && g.tokens < int64_t{1} << 31) {
          RotateColumnsKernel<T, kWidth><<<static_cast<unsigned>(g.tokens), kBlock, 0, stream>>>(g);
          return cudaGetLastError();
        }
      }
      RotateKernel<T, kWidth><<<GridFor(g.tokens), kThreads, 0, stream>>>(g);
      return cudaGetLastError();
    });
  });
}

}  // namespace yardmaster
