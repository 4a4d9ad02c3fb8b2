#include "kernels/common/block_reduce.cuh"
#include "kernels/common/copy_async.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/norm/rmsnorm.h"

namespace yardmaster {
namespace {

constexpr int kHeld = 4;  // packs of a row in a thread's registers

// Calls f(pack index or -1 beyond the held ones, column) for the thread's columns.
template <int kThreads, int kWidth, class F>
__device__ __forceinline__ void ForHeld(int64_t D, F&& f) {
#pragma unroll
  for (int p = 0; p < kHeld; ++p) {
    const int64_t d = (int64_t{p} * kThreads + threadIdx.x) * kWidth;
    if (d < D) f(p, d);
  }
}
template <int kThreads, int kWidth, class F>
__device__ __forceinline__ void ForRest(int64_t D, F&& f) {
  for (int64_t d = (int64_t{kHeld} * kThreads + threadIdx.x) * kWidth; d < D; d += int64_t{kThreads} * kWidth)
    f(d);
}

template <class T, int kThreads, int kWidth>
__global__ void __launch_bounds__(kThreads) ForwardKernel(RmsNormForwardRows g) {
  using A = Accum<T>;
  __shared__ A shared[kThreads / 32];
  const T* w = static_cast<const T*>(g.w);
  for (int64_t t = blockIdx.x; t < g.rows; t += gridDim.x) {
    const T* x = static_cast<const T*>(g.x) + t * g.ldx;
    const T* residual = g.residual != nullptr ? static_cast<const T*>(g.residual) + t * g.D : nullptr;
    T* h_out = g.residual != nullptr ? static_cast<T*>(g.h) + t * g.D : nullptr;
    T* y = static_cast<T*>(g.y) + t * g.D;
    // What is normalised is the rounded h, which backward sees too.
    const auto load = [&](int64_t d) {
      Pack<T, kWidth> h = LoadPack<kWidth>(x + d);
      if (residual != nullptr) {
        A r[kWidth];
        LoadAccum<kWidth>(residual + d, r);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) h.x[j] = FromAccum<T>(ToAccum(h.x[j]) + r[j]);
        StorePack<kWidth>(h_out + d, h);
      }
      return h;
    };
    Pack<T, kWidth> held[kHeld];
    A squares = 0;
    const auto add = [&](const Pack<T, kWidth>& h) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) squares += ToAccum(h.x[j]) * ToAccum(h.x[j]);
    };
    ForHeld<kThreads, kWidth>(g.D, [&](int p, int64_t d) { add(held[p] = load(d)); });
    ForRest<kThreads, kWidth>(g.D, [&](int64_t d) { add(load(d)); });
    squares = BlockReduce<kThreads>(squares, shared, SumOp());
    const A scale = static_cast<A>(1 / sqrt(static_cast<double>(squares) / static_cast<double>(g.D) + g.eps));
    if (threadIdx.x == 0) static_cast<A*>(g.rstd)[t] = scale;
    const auto write = [&](const Pack<T, kWidth>& h, int64_t d) {
      A out[kWidth];
      LoadAccum<kWidth>(w + d, out);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out[j] = ToAccum(h.x[j]) * scale * out[j];
      StoreRounded<kWidth>(y + d, out);
    };
    const T* again = residual != nullptr ? h_out : x;
    ForHeld<kThreads, kWidth>(g.D, [&](int p, int64_t d) { write(held[p], d); });
    ForRest<kThreads, kWidth>(g.D, [&](int64_t d) { write(LoadPack<kWidth>(again + d), d); });
  }
}

constexpr int kRows = 3;  // dy, h, dresidual: of a token, in the ring

// A row lies in shared memory, of a block's threads kPacks packs each, what exceeds it is read again. While a row is
// computed the next one is on its way to the ring's other half, and two blocks share a multiprocessor: what bounds the
// kernel is how many loads are in flight.
template <class T, int kThreads, int kPacks, int kWidth>
__global__ void __launch_bounds__(kThreads, 896 / kThreads) BackwardKernel(RmsNormBackwardRows g) {
  using A = Accum<T>;
  using P = Pack<T, kWidth>;
  __shared__ A shared[kThreads / 32];
  extern __shared__ uint4 ring_bytes[];
  const T* w = static_cast<const T*>(g.w);
  const bool with_dw = g.dw != nullptr, with_dh = g.dh != nullptr;
  A* partial = with_dw ? static_cast<A*>(g.partial_dw) + int64_t{blockIdx.x} * g.D : nullptr;
  const auto column = [&](int p) { return (int64_t{p} * kThreads + threadIdx.x) * kWidth; };
  const auto for_rest = [&](auto&& f) {
    for (int64_t d = column(kPacks); d < g.D; d += int64_t{kThreads} * kWidth) f(d);
  };
  int half = 0;
  const auto place = [&](int half, int array, int p) {
    return reinterpret_cast<P*>(ring_bytes) + ((half * kRows + array) * kPacks + p) * kThreads + threadIdx.x;
  };
  const auto read = [&](int array, int p) { return LoadPack<kWidth>(place(half, array, p)->x); };
  const auto fetch = [&](int64_t t, int half) {
    if (t >= g.rows) return;
    const auto copy = [&](P* to, const T* from) {
      if constexpr (sizeof(P) == 16) {
        CopyAsync(to, from);
      } else {
        *to = LoadPack<kWidth>(from);
      }
    };
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= g.D) continue;
      copy(place(half, 0, p), static_cast<const T*>(g.dy) + t * g.D + column(p));
      copy(place(half, 1, p), static_cast<const T*>(g.h) + t * g.ldh + column(p));
      if (g.dresidual != nullptr)
        copy(place(half, 2, p), static_cast<const T*>(g.dresidual) + t * g.D + column(p));
    }
  };
  fetch(blockIdx.x, half);
  CommitCopies();
  P weight[kPacks];
  A held_dw[kPacks][kWidth] = {};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (column(p) < g.D) weight[p] = LoadPack<kWidth>(w + column(p));
  }
  if (with_dw) {
    for_rest([&](int64_t d) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) partial[d + j] = 0;
    });
  }
  for (int64_t t = blockIdx.x; t < g.rows; t += gridDim.x, half ^= 1) {
    const T* dy = static_cast<const T*>(g.dy) + t * g.D;
    const T* h = static_cast<const T*>(g.h) + t * g.ldh;
    const T* dresidual = g.dresidual != nullptr ? static_cast<const T*>(g.dresidual) + t * g.D : nullptr;
    fetch(t + gridDim.x, half ^ 1);
    CommitCopies();
    const A scale = static_cast<const A*>(g.rstd)[t];
    WaitForCopies<1>();
    A sum = 0;
    const auto take = [&](const P& pack_dy, const P& pack_h, const P& pack_w, A* dw) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const A n = ToAccum(pack_h.x[j]) * scale, one = ToAccum(pack_dy.x[j]);
        dw[j] += one * n;
        sum += one * ToAccum(pack_w.x[j]) * n;
      }
    };
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= g.D) continue;
      const P held_dy = read(0, p), held_h = read(1, p);
      take(held_dy, held_h, weight[p], held_dw[p]);
    }
    for_rest([&](int64_t d) {
      A dw[kWidth] = {};
      take(LoadPack<kWidth>(dy + d), LoadPack<kWidth>(h + d), LoadPack<kWidth>(w + d), dw);
      if (!with_dw) return;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) partial[d + j] += dw[j];
    });
    if (!with_dh) continue;
    const A mean = BlockReduce<kThreads>(sum, shared, SumOp()) / static_cast<A>(g.D);
    T* dh = static_cast<T*>(g.dh) + t * g.lddh;
    const auto write = [&](const P& pack_dy, const P& pack_h, const P& pack_w, const P& pack_add, int64_t d) {
      A out[kWidth];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const A n = ToAccum(pack_h.x[j]) * scale;
        out[j] = scale * (ToAccum(pack_dy.x[j]) * ToAccum(pack_w.x[j]) - n * mean);
        if (dresidual != nullptr) out[j] += ToAccum(pack_add.x[j]);
      }
      StoreRounded<kWidth>(dh + d, out);
    };
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= g.D) continue;
      const P held_dy = read(0, p), held_h = read(1, p), held_add = dresidual != nullptr ? read(2, p) : P{};
      write(held_dy, held_h, weight[p], held_add, column(p));
    }
    for_rest([&](int64_t d) {
      const P add = dresidual != nullptr ? LoadPack<kWidth>(dresidual + d) : P{};
      write(LoadPack<kWidth>(dy + d), LoadPack<kWidth>(h + d), LoadPack<kWidth>(w + d), add, d);
    });
  }
  if (!with_dw) return;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (column(p) >= g.D) continue;
    // In accesses of 16 bytes where rows allow it.
    constexpr int kAtOnce = kWidth % kPackWidth<A> == 0 ? kPackWidth<A> : 1;
#pragma unroll
    for (int j = 0; j < kWidth; j += kAtOnce) {
      Pack<A, kAtOnce> sums;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) sums.x[i] = held_dw[p][j + i];
      StorePack<kAtOnce>(partial + column(p) + j, sums);
    }
  }
}

constexpr int kColumns = 32, kGroups = 32;  // of a block that adds partial rows

// dw = beta * dw + sum of the partial rows: each of kGroups threads takes a run of rows, then the runs in
// order.
template <class A>
__global__ void __launch_bounds__(kColumns* kGroups)
    AddPartialsKernel(const A* partials, int64_t n, int64_t D, double beta, A* dw) {
  __shared__ double sums[kGroups][kColumns];
  const int column = static_cast<int>(threadIdx.x) % kColumns,
            group = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t d = int64_t{blockIdx.x} * kColumns + column;
  const int64_t run = (n + kGroups - 1) / kGroups;
  double sum = 0;
  if (d < D) {
    for (int64_t i = group * run; i < n && i < (group + 1) * run; ++i)
      sum += static_cast<double>(partials[i * D + d]);
  }
  sums[group][column] = sum;
  __syncthreads();
  if (group != 0 || d >= D) return;
  double total = beta == 0 ? 0.0 : beta * static_cast<double>(dw[d]);
  for (int i = 0; i < kGroups; ++i) total += sums[i][column];
  dw[d] = static_cast<A>(total);
}

// f.template operator()<kThreads>(): as few threads as hold a row in registers, for short rows.
template <class F>
cudaError_t DispatchThreads(int64_t packs, F&& f) {
  return packs <= 64 * kHeld ? f.template operator()<64>() : f.template operator()<256>();
}
// f.template operator()<kThreads, kPacks>() of backward, which holds a row and a sum.
template <class F>
cudaError_t DispatchBackward(int64_t packs, F&& f) {
  if (packs <= 64) return f.template operator()<64, 1>();
  if (packs <= 256) return f.template operator()<128, 2>();
  return f.template operator()<448, 2>();  // 896 packs: DeepSeek's 7168 in BF16
}

}  // namespace

cudaError_t RmsNormForward(KernelType type, const RmsNormForwardRows& g, cudaStream_t stream) {
  if (g.rows == 0 || g.D == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    const bool fits = PacksFit(kPackWidth<T>, {g.x, g.residual, g.w, g.h, g.y}, {g.D, g.ldx});
    return DispatchWidth<T>(fits, [&]<int kWidth>() {
      return DispatchThreads(g.D / kWidth, [&]<int kThreads>() {
        ForwardKernel<T, kThreads, kWidth><<<GridFor(g.rows), kThreads, 0, stream>>>(g);
        return cudaGetLastError();
      });
    });
  });
}

cudaError_t RmsNormBackward(KernelType type, const RmsNormBackwardRows& g, cudaStream_t stream) {
  if (g.D == 0 || (g.dh == nullptr && g.dw == nullptr)) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    const int64_t blocks = g.rows < g.partials || g.dw == nullptr ? g.rows : g.partials;
    if (g.rows > 0) {
      const bool fits = PacksFit(kPackWidth<T>, {g.dy, g.h, g.w, g.dresidual, g.dh}, {g.D, g.ldh, g.lddh});
      const cudaError_t result = DispatchWidth<T>(fits, [&]<int kWidth>() {
        return DispatchBackward(g.D / kWidth, [&]<int kThreads, int kPacks>() {
          const auto kernel = &BackwardKernel<T, kThreads, kPacks, kWidth>;
          constexpr int kRing = 2 * kRows * kPacks * kThreads * static_cast<int>(sizeof(Pack<T, kWidth>));
          if constexpr (kRing > (48 << 10)) {
            const cudaError_t fits =
                cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kRing);
            if (fits != cudaSuccess) return fits;
          }
          kernel<<<GridFor(blocks), kThreads, kRing, stream>>>(g);
          return cudaGetLastError();
        });
      });
      if (result != cudaSuccess) return result;
    }
    if (g.dw == nullptr) return cudaSuccess;
    using A = Accum<T>;
    AddPartialsKernel<A>
        <<<static_cast<unsigned>((g.D + kColumns - 1) / kColumns), kColumns * kGroups, 0, stream>>>(
            static_cast<const A*>(g.partial_dw), blocks, g.D, g.beta_w, static_cast<A*>(g.dw));
    return cudaGetLastError();
  });
}

}  // namespace yardmaster
