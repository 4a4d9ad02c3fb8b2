// File: kernels/common/counting_sort.cuh
//
// A stable counting sort by a small key, on the device alone: counts by chunk, prefix sums over the chunks of
// each bin and over the bins, then each item's place from its chunk's first place and its rank among the
// chunk's earlier items. Places never depend on timing: the only atomics are integer sums.
//   1. CountKernel     one warp per chunk -> prefix[bin, chunk] = items of the bin in the chunk
//   2. ScanChunks      one block per bin  -> prefix[bin, chunk] = items of the bin in earlier chunks;
//   starts[bin] = its items
//   3. (caller)        starts[bin] = items of earlier bins, by BlockScan
//   4. ScatterKernel   one warp per chunk: write(item, place) for every item in a bin, write(item, -1) for
//   the others
// Shared memory: 8 bytes per bin, so at most kMaxSortBins bins.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

inline constexpr int kMaxSortBins = 6144;  // 48 KiB

// Which bin an item belongs to; -1: none.
struct SortKeys {
  const int32_t* keys;
  const int32_t* order;  // item i has key keys[order[i]]; null: keys[i]
  int64_t n;
  int64_t first;  // key of bin 0
  int shift;      // bin = (key - first) >> shift, then & mask
  int64_t mask;   // -1: all bits
  int64_t bins;
  int64_t chunk;  // items of a chunk, a multiple of 32

  int64_t chunks() const { return (n + chunk - 1) / chunk; }
  __device__ __forceinline__ int Bin(int64_t i) const {
    const int64_t key = static_cast<int64_t>(keys[order != nullptr ? order[i] : i]) - first;
    const int64_t bin = (key >> shift) & mask;
    return key >= 0 && bin < bins ? static_cast<int>(bin) : -1;
  }
};

namespace sort_internal {

constexpr int kScanThreads = 256;

// Exclusive sums of f(i), i in [0, n), by one block; store(i, sum) is called for each. Returns the total.
template <int kThreads, class F, class S>
__device__ int64_t BlockScan(int64_t n, int64_t* shared /* [kThreads / 32] */, F&& f, S&& store) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int64_t before = 0;  // of earlier rounds
  for (int64_t base = 0; base < n; base += kThreads) {
    const int64_t i = base + threadIdx.x;
    const int64_t mine = i < n ? f(i) : 0;
    int64_t sum = mine;  // inclusive over the warp
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
      const int64_t below = __shfl_up_sync(0xffffffffu, sum, d);
      if (lane >= d) sum += below;
    }
    if (lane == 31) shared[warp] = sum;
    __syncthreads();
    int64_t of_earlier_warps = 0, total = 0;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w == warp) of_earlier_warps = total;
      total += shared[w];
    }
    if (i < n) store(i, before + of_earlier_warps + sum - mine);
    before += total;
    __syncthreads();
  }
  return before;
}

// All of these are templates only so that several files may include them.
template <class Keys>
__global__ void __launch_bounds__(32) CountKernel(Keys keys, int64_t* prefix) {
  extern __shared__ int64_t bins_memory[];
  int* counts = reinterpret_cast<int*>(bins_memory);
  for (int64_t b = threadIdx.x; b < keys.bins; b += 32) counts[b] = 0;
  __syncwarp();
  const int64_t begin = int64_t{blockIdx.x} * keys.chunk,
                end = begin + keys.chunk < keys.n ? begin + keys.chunk : keys.n;
  for (int64_t i = begin + threadIdx.x; i < end; i += 32) {
    const int bin = keys.Bin(i);
    if (bin >= 0) atomicAdd(&counts[bin], 1);
  }
  __syncwarp();
  for (int64_t b = threadIdx.x; b < keys.bins; b += 32) prefix[b * gridDim.x + blockIdx.x] = counts[b];
}

template <class Keys>
__global__ void __launch_bounds__(kScanThreads)
    ScanChunksKernel(Keys keys, int64_t chunks, int64_t* prefix, int64_t* starts) {
  __shared__ int64_t shared[kScanThreads / 32];
  static_cast<void>(keys);
  int64_t* row = prefix + int64_t{blockIdx.x} * chunks;
  const int64_t total = BlockScan<kScanThreads>(
      chunks, shared, [&](int64_t i) { return row[i]; }, [&](int64_t i, int64_t sum) { row[i] = sum; });
  if (threadIdx.x == 0) starts[blockIdx.x] = total;
}

template <class Keys, class Write>
__global__ void __launch_bounds__(32)
    ScatterKernel(Keys keys, const int64_t* prefix, const int64_t* starts, Write write) {
  extern __shared__ int64_t next[];  // the place of a bin's next item
  const int lane = static_cast<int>(threadIdx.x);
  for (int64_t b = lane; b < keys.bins; b += 32) next[b] = starts[b] + prefix[b * gridDim.x + blockIdx.x];
  __syncwarp();
  const int64_t begin = int64_t{blockIdx.x} * keys.chunk,
                end = begin + keys.chunk < keys.n ? begin + keys.chunk : keys.n;
  for (int64_t base = begin; base < end; base += 32) {
    const int64_t i = base + lane;
    const int bin = i < end ? keys.Bin(i) : -1;
    const unsigned same = __match_any_sync(0xffffffffu, bin);
    const int rank = __popc(same & ((1u << lane) - 1));
    const int64_t first = bin >= 0 ? next[bin] : 0;
    __syncwarp();
    if (bin >= 0 && rank == 0) next[bin] = first + __popc(same);
    __syncwarp();
    if (i < end) write(i, bin >= 0 ? first + rank : int64_t{-1});
  }
}

}  // namespace sort_internal

// Steps 1 and 2. prefix int64 [bins, chunks], starts int64 [bins + 1].
inline cudaError_t CountByBin(const SortKeys& keys, int64_t* prefix, int64_t* starts, cudaStream_t stream) {
  if (keys.bins > kMaxSortBins || keys.bins < 1 || keys.chunk % 32 != 0) return cudaErrorInvalidValue;
  if (keys.n == 0)
    return cudaMemsetAsync(starts, 0, static_cast<size_t>(keys.bins + 1) * sizeof(int64_t), stream);
  const auto chunks = static_cast<unsigned>(keys.chunks());
  sort_internal::CountKernel<<<chunks, 32, static_cast<size_t>(keys.bins) * sizeof(int), stream>>>(keys,
                                                                                                   prefix);
  sort_internal::
      ScanChunksKernel<<<static_cast<unsigned>(keys.bins), sort_internal::kScanThreads, 0, stream>>>(
          keys, chunks, prefix, starts);
  return cudaGetLastError();
}

// Step 4. write(int64 item, int64 place) is a device function object.
template <class Write>
cudaError_t ScatterByBin(const SortKeys& keys, const int64_t* prefix, const int64_t* starts,
                         const Write& write, cudaStream_t stream) {
  if (keys.n == 0) return cudaSuccess;
  sort_internal::ScatterKernel<<<static_cast<unsigned>(keys.chunks()), 32,
                                 static_cast<size_t>(keys.bins) * sizeof(int64_t), stream>>>(keys, prefix,
                                                                                             starts, write);
  return cudaGetLastError();
}

}  // namespace yardmaster
