#include "kernels/common/block_reduce.cuh"
#include "kernels/common/float_types.cuh"
#include "kernels/loss/cross_entropy.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 512;

template <class T>
struct alignas(16) Vector {
  static constexpr int kWidth = 16 / sizeof(T);
  T x[kWidth];
};

// f(index, value) over a row by the whole block; 16-byte loads where the row allows them.
template <class T, class F>
__device__ __forceinline__ void ForRow(const T* row, int64_t V, bool vector, F&& f) {
  if (vector) {
    constexpr int kWidth = Vector<T>::kWidth;
    for (int64_t i = int64_t{threadIdx.x} * kWidth; i < V; i += int64_t{kThreads} * kWidth) {
      const Vector<T> piece = *reinterpret_cast<const Vector<T>*>(row + i);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) f(i + j, ToAccum(piece.x[j]));
    }
  } else {
    for (int64_t i = threadIdx.x; i < V; i += kThreads) f(i, ToAccum(row[i]));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    CrossEntropyKernel(T* logits, int64_t V, const int32_t* targets, double host_scale, const double* device_scale,
                       bool gradient, bool vector, double* losses) {
  using A = Accum<T>;
  const A grad_scale = static_cast<A>(device_scale != nullptr ? host_scale * *device_scale : host_scale);
  __shared__ A shared[kThreads / 32];
  const int64_t t = blockIdx.x;
  T* row = logits + t * V;
  const int32_t target = targets[t];
  if (target == -1) {
    if (gradient) {
      for (int64_t i = threadIdx.x; i < V; i += kThreads) row[i] = FromAccum<T>(A{0});
    }
    if (threadIdx.x == 0) losses[t] = 0;
    return;
  }
  A largest = -INFINITY, sum = 0;
  ForRow(row, V, vector, [&](int64_t, A z) {
    if (z > largest) {
      sum *= exp(largest - z);
      largest = z;
    }
    sum += exp(z - largest);
  });
  const A of_row = BlockReduce<kThreads>(largest, shared, MaxOp());
  const A total = BlockReduce<kThreads>(sum == 0 ? A{0} : sum * exp(largest - of_row), shared, SumOp());
  const bool legal = target >= 0 && target < V;
  if (threadIdx.x == 0) {
    losses[t] = legal ? log(static_cast<double>(total)) - (static_cast<double>(ToAccum(row[target])) - static_cast<double>(of_row))
                      : static_cast<double>(NAN);
  }
  if (!gradient) return;
  __syncthreads();  // the target's logit has been read
  const A scale = grad_scale / total;
  if (vector) {
    constexpr int kWidth = Vector<T>::kWidth;
    for (int64_t i = int64_t{threadIdx.x} * kWidth; i < V; i += int64_t{kThreads} * kWidth) {
      Vector<T> piece = *reinterpret_cast<const Vector<T>*>(row + i);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const A p = exp(ToAccum(piece.x[j]) - of_row) * scale;
        piece.x[j] = FromAccum<T>(i + j == target ? p - grad_scale : p);
      }
      *reinterpret_cast<Vector<T>*>(row + i) = piece;
    }
  } else {
    for (int64_t i = threadIdx.x; i < V; i += kThreads) {
      const A p = exp(ToAccum(row[i]) - of_row) * scale;
      row[i] = FromAccum<T>(i == target ? p - grad_scale : p);
    }
  }
}

// One block: loads are parallel, the additions are one thread's, in token order.
__global__ void __launch_bounds__(kThreads)
    AddLossesKernel(const double* losses, const int32_t* targets, int64_t rows, double* loss_sum, int64_t* valid) {
  __shared__ double staged[kThreads];
  __shared__ bool counts[kThreads];
  double sum = *loss_sum;
  int64_t counted = 0;
  for (int64_t base = 0; base < rows; base += kThreads) {
    const int64_t i = base + threadIdx.x;
    if (i < rows) staged[threadIdx.x] = losses[i], counts[threadIdx.x] = targets[i] != -1;
    __syncthreads();
    if (threadIdx.x == 0) {
      const int n = static_cast<int>(rows - base < kThreads ? rows - base : kThreads);
      for (int j = 0; j < n; ++j) {
        if (counts[j]) sum += staged[j], ++counted;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    *loss_sum = sum;
    if (valid != nullptr) *valid += counted;
  }
}

}  // namespace

cudaError_t CrossEntropyRows(KernelType type, void* logits, int64_t rows, int64_t V, const int32_t* targets,
                             double grad_scale, const double* device_scale, bool gradient, double* losses,
                             cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    const bool vector = V % Vector<T>::kWidth == 0 && reinterpret_cast<uintptr_t>(logits) % 16 == 0;
    CrossEntropyKernel<T><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        static_cast<T*>(logits), V, targets, grad_scale, device_scale, gradient, vector, losses);
    return cudaGetLastError();
  });
}

cudaError_t AddLosses(const double* losses, const int32_t* targets, int64_t rows, double* loss_sum, int64_t* valid,
                      cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  AddLossesKernel<<<1, kThreads, 0, stream>>>(losses, targets, rows, loss_sum, valid);
  return cudaGetLastError();
}

}  // namespace yardmaster
