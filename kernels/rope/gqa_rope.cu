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
    return DispatchWidth<T>(PacksFit(kPackWidth<T>, {g.q, g.k}, {g.head / 2}), [&]<int kWidth>() {
      RotateKernel<T, kWidth><<<GridFor(g.tokens), kThreads, 0, stream>>>(g);
      return cudaGetLastError();
    });
  });
}

}  // namespace yardmaster
