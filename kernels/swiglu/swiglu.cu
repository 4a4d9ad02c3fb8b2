#include "kernels/common/block_reduce.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/swiglu/swiglu.h"
#include "kernels/swiglu/swiglu_act.cuh"

namespace yardmaster {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ int64_t UsedRows(const int64_t* num_rows, int64_t R) {
  if (num_rows == nullptr) return R;
  const int64_t n = *num_rows;
  return n < R ? n : R;
}

constexpr int kHeld =
    2;  // packs of gate and up each that a thread has on their way: half a row of 2048 columns

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(const T* gate_up, const Accum<T>* w, const int64_t* num_rows, int64_t R, int64_t F,
                  T* act) {
  using A = Accum<T>;
  const int64_t rows = UsedRows(num_rows, R);
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const A wr = w != nullptr ? w[r] : A{1};
    const T* gate = gate_up + r * 2 * F;
    for (int64_t base = int64_t{threadIdx.x} * kWidth; base < F; base += int64_t{kHeld} * kThreads * kWidth) {
      Pack<T, kWidth> g[kHeld], u[kHeld];
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
        const int64_t f = base + p * kThreads * kWidth;
        if (f >= F) continue;
        g[p] = LoadPack<kWidth>(gate + f);
        u[p] = LoadPack<kWidth>(gate + F + f);
      }
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
        const int64_t f = base + p * kThreads * kWidth;
        if (f >= F) continue;
        A out[kWidth];
#pragma unroll
        for (int j = 0; j < kWidth; ++j) out[j] = SwigluAct(wr, ToAccum(g[p].x[j]), ToAccum(u[p].x[j]));
        StoreRounded<kWidth>(act + r * F + f, out);
      }
    }
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    BackwardKernel(const T* dact, const T* gate_up, const Accum<T>* w, const int64_t* num_rows, int64_t R,
                   int64_t F, T* dgate_up, Accum<T>* dw, T* act) {
  using A = Accum<T>;
  __shared__ A shared[kThreads / 32];
  const int64_t rows = UsedRows(num_rows, R);
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const A wr = w != nullptr ? w[r] : A{1};
    const T* gate = gate_up + r * 2 * F;
    T* dgate = dgate_up + r * 2 * F;
    A sum = 0;
    for (int64_t f = int64_t{threadIdx.x} * kWidth; f < F; f += int64_t{kThreads} * kWidth) {
      A g[kWidth], u[kWidth], d[kWidth], a[kWidth];
      LoadAccum<kWidth>(gate + f, g);
      LoadAccum<kWidth>(gate + F + f, u);
      LoadAccum<kWidth>(dact + r * F + f, d);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        a[j] = SwigluAct(wr, g[j], u[j]);
        const A s = Sigmoid(g[j]), silu = g[j] * s;
        sum += d[j] * silu * u[j];
        const A dgate_j = d[j] * wr * u[j] * (s * (A{1} + g[j] * (A{1} - s)));
        u[j] = d[j] * wr * silu;
        g[j] = dgate_j;
      }
      if (act != nullptr) StoreRounded<kWidth>(act + r * F + f, a);
      StoreRounded<kWidth>(dgate + f, g);
      StoreRounded<kWidth>(dgate + F + f, u);
    }
    if (dw == nullptr) continue;
    sum = BlockReduce<kThreads>(sum, shared, SumOp());
    if (threadIdx.x == 0) dw[r] = sum;
  }
}

}  // namespace

cudaError_t SwigluForwardRows(KernelType type, const void* gate_up, const void* w, const int64_t* num_rows,
                              int64_t R, int64_t F, void* act, cudaStream_t stream) {
  if (R == 0 || F == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    return DispatchWidth<T>(PacksFit(kPackWidth<T>, {gate_up, act}, {F}), [&]<int kWidth>() {
      ForwardKernel<T, kWidth><<<GridFor(R), kThreads, 0, stream>>>(static_cast<const T*>(gate_up),
                                                                    static_cast<const Accum<T>*>(w), num_rows,
                                                                    R, F, static_cast<T*>(act));
      return cudaGetLastError();
    });
  });
}

cudaError_t SwigluBackwardRows(KernelType type, const void* dact, const void* gate_up, const void* w,
                               const int64_t* num_rows, int64_t R, int64_t F, void* dgate_up, void* dw,
                               void* act, cudaStream_t stream) {
  if (R == 0 || F == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    return DispatchWidth<T>(PacksFit(kPackWidth<T>, {dact, gate_up, dgate_up, act}, {F}), [&]<int kWidth>() {
      BackwardKernel<T, kWidth><<<GridFor(R), kThreads, 0, stream>>>(
          static_cast<const T*>(dact), static_cast<const T*>(gate_up), static_cast<const Accum<T>*>(w),
          num_rows, R, F, static_cast<T*>(dgate_up), static_cast<Accum<T>*>(dw), static_cast<T*>(act));
      return cudaGetLastError();
    });
  });
}

}  // namespace yardmaster
