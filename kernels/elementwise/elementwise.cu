#include "kernels/common/pack.cuh"
#include "kernels/elementwise/elementwise.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) FillKernel(char* y, int64_t bytes, uint64_t pattern) {
  const ulonglong2 both{pattern, pattern};
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 16; i < bytes;
       i += int64_t{gridDim.x} * kThreads * 16) {
    if (i + 16 <= bytes && reinterpret_cast<uintptr_t>(y) % 16 == 0) {
      *reinterpret_cast<ulonglong2*>(y + i) = both;
    } else {
      for (int j = 0; j < 16 && i + j < bytes; ++j) y[i + j] = static_cast<char>(pattern >> (j % 8 * 8));
    }
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) AddKernel(const T* a, const T* b, T* y, int64_t n) {
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth; i < n;
       i += int64_t{gridDim.x} * kThreads * kWidth) {
    Accum<T> sum[kWidth], x[kWidth];
    LoadAccum<kWidth>(a + i, sum);
    LoadAccum<kWidth>(b + i, x);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum[j] += x[j];
    StoreRounded<kWidth>(y + i, sum);
  }
}

template <class To, class From>
__device__ __forceinline__ To Convert(From x) {
  return FromAccum<To>(static_cast<Accum<To>>(ToAccum(x)));
}

template <class From, class To, int kWidth>
__global__ void __launch_bounds__(kThreads)
    ConvertKernel(const From* x, int64_t ldx, To* y, int64_t ldy, int64_t rows, int64_t cols) {
  const int64_t packs = cols / kWidth;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows * packs;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t row = i / packs, col = i % packs * kWidth;
    const Pack<From, kWidth> in = LoadPack<kWidth>(x + row * ldx + col);
    Pack<To, kWidth> out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) out.x[j] = Convert<To>(in.x[j]);
    StorePack<kWidth>(y + row * ldy + col, out);
  }
}

unsigned Grid(int64_t items) { return GridFor((items + kThreads - 1) / kThreads); }

}  // namespace

cudaError_t FillPattern(void* y, int64_t n, int element_bytes, uint64_t pattern, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  const int64_t bytes = n * element_bytes;
  switch (element_bytes) {  // to 8 bytes
    case 1:
      pattern = (pattern & 0xFF) * 0x0101010101010101ull;
      break;
    case 2:
      pattern = (pattern & 0xFFFF) * 0x0001000100010001ull;
      break;
    case 4:
      pattern = (pattern & 0xFFFFFFFFull) * 0x0000000100000001ull;
      break;
    case 8:
      break;
    default:
      return cudaErrorInvalidValue;
  }
  if (pattern == 0) return cudaMemsetAsync(y, 0, static_cast<size_t>(bytes), stream);
  FillKernel<<<Grid((bytes + 15) / 16), kThreads, 0, stream>>>(static_cast<char*>(y), bytes, pattern);
  return cudaGetLastError();
}

cudaError_t AddElements(KernelType type, const void* a, const void* b, void* y, int64_t n,
                        cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    return DispatchWidth<T>(PacksFit(kPackWidth<T>, {a, b, y}, {n}), [&]<int kWidth>() {
      AddKernel<T, kWidth><<<Grid(n / kWidth), kThreads, 0, stream>>>(
          static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y), n);
      return cudaGetLastError();
    });
  });
}

cudaError_t ConvertRows(KernelType from, KernelType to, const void* x, int64_t ldx, void* y, int64_t ldy,
                        int64_t rows, int64_t cols, cudaStream_t stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  return DispatchKernelType(from, [&]<class From>() {
    return DispatchKernelType(to, [&]<class To>() {
      using Narrow = std::conditional_t<(sizeof(From) < sizeof(To)), From, To>;
      return DispatchWidth<Narrow>(PacksFit(kPackWidth<Narrow>, {x, y}, {cols, ldx, ldy}), [&]<int kWidth>() {
        ConvertKernel<From, To, kWidth><<<Grid(rows * (cols / kWidth)), kThreads, 0, stream>>>(
            static_cast<const From*>(x), ldx, static_cast<To*>(y), ldy, rows, cols);
        return cudaGetLastError();
      });
    });
  });
}

}  // namespace yardmaster
