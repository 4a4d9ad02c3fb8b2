#include "kernels/common/counting_sort.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/common/scale_rows.h"
#include "kernels/embedding/embedding.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 128;

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    RowsKernel(const int32_t* ids, int64_t n_T, int64_t D, const T* table, T* x) {
  for (int64_t t = blockIdx.x; t < n_T; t += gridDim.x) {
    const T* from = table + int64_t{ids[t]} * D;
    for (int64_t d = int64_t{threadIdx.x} * kWidth; d < D; d += int64_t{kThreads} * kWidth)
      StorePack<kWidth>(x + t * D + d, LoadPack<kWidth>(from + d));
  }
}

__global__ void __launch_bounds__(kThreads) StartsKernel(int64_t* starts, int64_t bins) {
  __shared__ int64_t shared[kThreads / 32];
  sort_internal::BlockScan<kThreads>(
      bins, shared, [&](int64_t b) { return starts[b]; },
      [&](int64_t b, int64_t first) { starts[b] = first; });
}

struct WriteOrder {
  const int32_t* from;  // null: items are tokens
  int32_t* to;
  __device__ __forceinline__ void operator()(int64_t item, int64_t place) const {
    if (place >= 0) to[place] = from != nullptr ? from[item] : static_cast<int32_t>(item);
  }
};

// Block (place, slice of columns): does nothing unless a run of equal ids begins at the place.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    AddRunsKernel(const int32_t* ids, const int32_t* order, int64_t n_T, int64_t D, const T* dx,
                  Accum<T>* dtable) {
  using A = Accum<T>;
  const int64_t begin = blockIdx.x, d = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kWidth;
  const int32_t id = ids[order[begin]];
  if ((begin > 0 && ids[order[begin - 1]] == id) || d >= D) return;
  A* row = dtable + int64_t{id} * D + d;
  A sum[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sum[j] = row[j];
  constexpr int kAtOnce = 4;  // rows whose loads are in flight together; they are added in order
  bool goes_on = true;
  for (int64_t i = begin; goes_on; i += kAtOnce) {
    int64_t t[kAtOnce];
    A x[kAtOnce][kWidth];
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) t[q] = i + q < n_T ? order[i + q] : -1;
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) {
      if (t[q] >= 0 && ids[t[q]] != id) t[q] = -1;
    }
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) {
      if (t[q] >= 0) LoadAccum<kWidth>(dx + t[q] * D + d, x[q]);
    }
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) {
      if (t[q] < 0) continue;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum[j] += x[q][j];
    }
    goes_on = t[kAtOnce - 1] >= 0;
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) row[j] = sum[j];
}

}  // namespace

cudaError_t EmbeddingRows(KernelType type, const int32_t* ids, int64_t n_T, int64_t D, const void* table,
                          void* x, cudaStream_t stream) {
  if (n_T == 0 || D == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    return DispatchWidth<T>(PacksFit(kPackWidth<T>, {table, x}, {D}), [&]<int kWidth>() {
      RowsKernel<T, kWidth><<<GridFor(n_T), kThreads, 0, stream>>>(ids, n_T, D, static_cast<const T*>(table),
                                                                   static_cast<T*>(x));
      return cudaGetLastError();
    });
  });
}

cudaError_t EmbeddingGradient(KernelType type, const int32_t* ids, int64_t n_T, int64_t V, int64_t D,
                              const void* dx, double beta, void* dtable, const EmbeddingSortScratch& scratch,
                              cudaStream_t stream) {
  if (V == 0 || D == 0) return cudaSuccess;
  const KernelType accum = type == KernelType::kBf16 ? KernelType::kF32 : type;
  if (beta != 1) {
    const cudaError_t result = ScaleRows(accum, dtable, D, dtable, D, V, D, beta, stream);
    if (result != cudaSuccess) return result;
  }
  if (n_T == 0) return cudaSuccess;
  const int32_t* order = nullptr;
  for (int pass = 0; pass < scratch.passes; ++pass) {
    const SortKeys keys{.keys = ids,
                        .order = order,
                        .n = n_T,
                        .first = 0,
                        .shift = pass * scratch.bits,
                        .mask = (int64_t{1} << scratch.bits) - 1,
                        .bins = int64_t{1} << scratch.bits,
                        .chunk = scratch.chunk};
    cudaError_t result = CountByBin(keys, scratch.prefix, scratch.starts, stream);
    if (result != cudaSuccess) return result;
    StartsKernel<<<1, kThreads, 0, stream>>>(scratch.starts, keys.bins);
    int32_t* to = scratch.order + pass % 2 * n_T;
    result = ScatterByBin(keys, scratch.prefix, scratch.starts, WriteOrder{order, to}, stream);
    if (result != cudaSuccess) return result;
    order = to;
  }
  return DispatchKernelType(type, [&]<class T>() {
    return DispatchWidth<T>(PacksFit(kPackWidth<T>, {dx, dtable}, {D}), [&]<int kWidth>() {
      const int64_t slices = (D + int64_t{kThreads} * kWidth - 1) / (int64_t{kThreads} * kWidth);
      AddRunsKernel<T, kWidth>
          <<<dim3(static_cast<unsigned>(n_T), static_cast<unsigned>(slices)), kThreads, 0, stream>>>(
              ids, order, n_T, D, static_cast<const T*>(dx), static_cast<Accum<T>*>(dtable));
      return cudaGetLastError();
    });
  });
}

}  // namespace yardmaster
