// File: kernels/ep/spread_rows.cuh
//
// Each row is read once and written to several places, here or in a peer's memory: the copying half of dispatch. Rows
// are bytes: payload and, in formats that have them, its scales behind it.
//
// to.At(row, k) is the address of copy k of the row, or null, and to.Extra(row, k) writes what goes along with it (router
// weights): both are called by one lane for each k < to.count().
//
// Bulk (Hopper on): a warp keeps a ring of kStages pieces in shared memory. Lane 0 loads a piece, then each lane sends its
// own copies; a stage is loaded again two pieces later, when the copy engine has read it. Few threads keep 200 KB
// in flight for each multiprocessor. Addresses, strides and row lengths must be multiples of 16 bytes.
// Plain: a warp copies a row, four units of a lane at a time.
#pragma once

#include <cstdint>

#include "kernels/ep/bulk_copy.cuh"

namespace yardmaster::ep {

struct RowsIn {
  const char* data;
  int64_t rows;
  int64_t stride;  // bytes from row to row
  int64_t bytes;   // of a row
};

inline constexpr int kSpreadWarps = 8, kSpreadThreads = 32 * kSpreadWarps;
inline constexpr int kSpreadStages = 4, kSpreadPiece = 7168;  // half a row of DeepSeek-V3's 7168 BF16
inline constexpr int kSpreadShared = kSpreadWarps * kSpreadStages * kSpreadPiece;

#if __CUDA_ARCH__ >= 900

template <class To>
__device__ __forceinline__ void SpreadRowsBulk(const RowsIn& in, const To& to, char* shared, uint64_t* barriers) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int pieces = static_cast<int>((in.bytes + kSpreadPiece - 1) / kSpreadPiece);
  const int64_t piece_bytes = (in.bytes / 16 + pieces - 1) / pieces * 16;
  const int64_t step = int64_t{gridDim.x} * kSpreadWarps, first = int64_t{blockIdx.x} * kSpreadWarps + warp;
  const int64_t items = in.rows * pieces, mine = first < items ? (items - first + step - 1) / step : 0;
  const sm90::Shared ring = sm90::SharedAddress(shared) + static_cast<uint32_t>(warp * kSpreadStages * kSpreadPiece);
  const sm90::Shared full = sm90::SharedAddress(barriers + warp * kSpreadStages);
  if (lane == 0) {
    for (int s = 0; s < kSpreadStages; ++s) sm90::BarrierInit(full + 8 * s, 1);
    sm90::FenceBarrierInit();
  }
  __syncwarp();
  const auto begin_of = [&](int64_t item) { return item % pieces * piece_bytes; };
  const auto bytes_of = [&](int64_t begin) {
    return static_cast<uint32_t>(in.bytes - begin < piece_bytes ? in.bytes - begin : piece_bytes);
  };
  const auto load = [&](int64_t j) {
    const int64_t item = first + j * step, begin = begin_of(item);
    const auto stage = static_cast<uint32_t>(j % kSpreadStages);
    sm90::BarrierExpectBytes(full + 8 * stage, bytes_of(begin));
    BulkLoad(ring + stage * kSpreadPiece, in.data + item / pieces * in.stride + begin, bytes_of(begin), full + 8 * stage);
  };
  if (lane == 0) {
    for (int64_t j = 0; j < kSpreadStages - 2 && j < mine; ++j) load(j);
  }
  for (int64_t j = 0; j < mine; ++j) {
    const int64_t item = first + j * step, row = item / pieces, begin = begin_of(item);
    // The stage of piece j + 2 was sent two pieces ago.
    sm90::BulkWaitRead<1>();
    __syncwarp();
    if (lane == 0 && j + kSpreadStages - 2 < mine) load(j + kSpreadStages - 2);
    const auto stage = static_cast<uint32_t>(j % kSpreadStages);
    sm90::BarrierWait(full + 8 * stage, static_cast<uint32_t>(j / kSpreadStages % 2));
    for (int k = lane; k < to.count(); k += 32) {
      char* const target = to.At(row, k);
      if (target == nullptr) continue;
      BulkStore(target + begin, ring + stage * kSpreadPiece, bytes_of(begin));
      if (begin == 0) to.Extra(row, k);
    }
    sm90::BulkCommit();
  }
  sm90::BulkWaitAll();
}

#endif

template <class Unit, class To>
__device__ __forceinline__ void SpreadRowsPlain(const RowsIn& in, const To& to) {
  constexpr int kUnroll = 4;
  const int lane = static_cast<int>(threadIdx.x) % 32, warps = static_cast<int>(blockDim.x) / 32;
  const int64_t units = in.bytes / int64_t{sizeof(Unit)};
  for (int64_t row = int64_t{blockIdx.x} * warps + threadIdx.x / 32; row < in.rows; row += int64_t{gridDim.x} * warps) {
    const auto* from = reinterpret_cast<const Unit*>(in.data + row * in.stride);
    for (int first_k = 0; first_k < to.count(); first_k += 32) {
      const int k = first_k + lane;
      char* const mine = k < to.count() ? to.At(row, k) : nullptr;
      if (mine != nullptr) to.Extra(row, k);
      const unsigned there = __ballot_sync(0xffffffffu, mine != nullptr);
      for (int64_t base = 0; base < units; base += 32 * kUnroll) {
        Unit v[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const int64_t i = base + u * 32 + lane;
          if (i < units) v[u] = from[i];
        }
        for (unsigned rest = there; rest != 0; rest &= rest - 1) {
          auto* const target = reinterpret_cast<Unit*>(
              __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(mine), __ffs(static_cast<int>(rest)) - 1));
#pragma unroll
          for (int u = 0; u < kUnroll; ++u) {
            const int64_t i = base + u * 32 + lane;
            if (i < units) target[i] = v[u];
          }
        }
      }
    }
  }
}

}  // namespace yardmaster::ep
