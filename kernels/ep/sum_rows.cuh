// File: kernels/ep/sum_rows.cuh
//
// Rows from several places, here or in a peer's memory, are added into one: the adding half of combine. In the
// accumulator type, in the order residual, addend, k ascending, from zero, rounded once: the bits of
// kernels/permute's UnpermuteRows.
//
// from.At(row, k) is the address of the kth row to add, or null, asked by one lane for each k < from.count(); out(row)
// is where the sum goes.
//
// Bulk (Hopper on): a warp adds a row piece by piece, 2 KiB of it at a time. Its sources follow each other through a ring
// of kSumSlots pieces in shared memory: lane 0 loads ahead, over pieces and rows, into the slot that the warp has just
// added. 220 KB are under way for each multiprocessor, whatever the number of sources.
// Plain: a warp owns a row and has kSumBatch loads of each lane under way.
#pragma once

#include <cstdint>

#include "kernels/common/pack.cuh"
#include "kernels/ep/bulk_copy.cuh"

namespace yardmaster::ep {

inline constexpr int kSumWarps = 16, kSumThreads = 32 * kSumWarps, kSumBatch = 8;
inline constexpr int kSumSlots = 7, kSumPiece = 2048;
inline constexpr int kSumShared = kSumWarps * kSumSlots * kSumPiece;
inline constexpr int kSumBulkSources = 30;  // beside residual and addend: one for each lane

template <class T>
struct RowsOut {
  int64_t rows, D;
  const T* residual;  // [rows, D] or null
  const T* addend;
};

#if __CUDA_ARCH__ >= 900

template <class T, class From, class Out>
__device__ __forceinline__ void SumRowsBulk(const RowsOut<T>& o, const From& from, const Out& out, char* shared,
                                            uint64_t* barriers) {
  using A = Accum<T>;
  constexpr int kWidth = kPackWidth<T>, kPacks = kSumPiece / 16 / 32;  // of a lane
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t step = int64_t{gridDim.x} * kSumWarps, bytes = o.D * int64_t{sizeof(T)};
  const int pieces = static_cast<int>((bytes + kSumPiece - 1) / kSumPiece);
  char* const ring = shared + warp * kSumSlots * kSumPiece;
  const sm90::Shared full = sm90::SharedAddress(barriers + warp * kSumSlots);
  if (lane == 0) {
    for (int s = 0; s < kSumSlots; ++s) sm90::BarrierInit(full + 8 * s, 1);
    sm90::FenceBarrierInit();
  }
  __syncwarp();
  // Lane 0: residual, lane 1: addend, lane k + 2: the kth row.
  const auto source = [&](int64_t row) -> const T* {
    if (lane == 0) return o.residual == nullptr ? nullptr : o.residual + row * o.D;
    if (lane == 1) return o.addend == nullptr ? nullptr : o.addend + row * o.D;
    return lane - 2 < from.count() ? from.At(row, lane - 2) : nullptr;
  };
  const auto length = [&](int piece) {
    const int64_t rest = bytes - int64_t{piece} * kSumPiece;
    return static_cast<uint32_t>(rest < kSumPiece ? rest : kSumPiece);
  };
  const int64_t first = int64_t{blockIdx.x} * kSumWarps + warp;

  // What is loaded next: piece `piece_in` of the lowest source in `left_in`, into slot `slot_in`.
  int64_t row_in = first;
  const T* source_in = nullptr;
  unsigned all_in = 0, left_in = 0;
  int piece_in = 0, slot_in = 0;
  const auto find_row = [&] {  // the next row with a source, from row_in on
    for (; row_in < o.rows; row_in += step) {
      source_in = source(row_in);
      all_in = left_in = __ballot_sync(0xffffffffu, source_in != nullptr);
      if (all_in != 0) return;
    }
  };
  const auto load_next = [&] {
    if (row_in >= o.rows) return;
    if (lane == __ffs(static_cast<int>(left_in)) - 1) {
      sm90::BarrierExpectBytes(full + 8 * slot_in, length(piece_in));
      BulkLoad(sm90::SharedAddress(ring + slot_in * kSumPiece), reinterpret_cast<const char*>(source_in) + piece_in * kSumPiece,
               length(piece_in), full + 8 * slot_in);
    }
    slot_in = slot_in + 1 == kSumSlots ? 0 : slot_in + 1;
    left_in &= left_in - 1;
    if (left_in != 0) return;
    left_in = all_in;
    if (++piece_in < pieces) return;
    piece_in = 0;
    row_in += step;
    find_row();
  };
  find_row();
  for (int s = 0; s < kSumSlots; ++s) load_next();

  int slot = 0;
  uint32_t parity = 0;
  for (int64_t row = first; row < o.rows; row += step) {
    const unsigned all = __ballot_sync(0xffffffffu, source(row) != nullptr);
    char* const to = reinterpret_cast<char*>(out(row));
    for (int piece = 0; piece < pieces; ++piece) {
      const int rest = static_cast<int>(length(piece));
      A sum[kPacks][kWidth] = {};
      for (unsigned left = all; left != 0; left &= left - 1) {
        sm90::BarrierWait(full + 8 * slot, parity);
#pragma unroll
        for (int i = 0; i < kPacks; ++i) {
          const int at = i * 512 + lane * 16;
          if (at >= rest) continue;
          A x[kWidth];
          LoadAccum<kWidth>(reinterpret_cast<const T*>(ring + slot * kSumPiece + at), x);
#pragma unroll
          for (int j = 0; j < kWidth; ++j) sum[i][j] += x[j];
        }
        if (++slot == kSumSlots) {
          slot = 0;
          parity ^= 1;
        }
        __syncwarp();  // the slot is read
        load_next();
      }
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        const int at = i * 512 + lane * 16;
        if (at < rest) StoreRounded<kWidth>(reinterpret_cast<T*>(to + int64_t{piece} * kSumPiece + at), sum[i]);
      }
    }
  }
}

#endif

template <class T, int kWidth, class From, class Out>
__device__ __forceinline__ void SumRowsPlain(const RowsOut<T>& o, const From& from, const Out& out) {
  using A = Accum<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t row = int64_t{blockIdx.x} * kSumWarps + threadIdx.x / 32; row < o.rows;
       row += int64_t{gridDim.x} * kSumWarps) {
    T* const to = out(row);
    const T* mine = lane < from.count() ? from.At(row, lane) : nullptr;
    for (int64_t base = 0; base < o.D; base += 32 * kWidth) {
      const int64_t d = base + lane * kWidth;
      const bool inside = d < o.D;
      A sum[kWidth] = {}, x[kWidth];
      const auto add = [&](const T* p) {
        LoadAccum<kWidth>(p + row * o.D + d, x);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum[i] += x[i];
      };
      if (inside && o.residual != nullptr) add(o.residual);
      if (inside && o.addend != nullptr) add(o.addend);
      for (int first = 0; first < from.count(); first += kSumBatch) {
        if (first % 32 == 0 && from.count() > 32)
          mine = first + lane < from.count() ? from.At(row, first + lane) : nullptr;
        Pack<T, kWidth> v[kSumBatch];
        const T* p[kSumBatch];
#pragma unroll
        for (int i = 0; i < kSumBatch; ++i) {
          p[i] = reinterpret_cast<const T*>(
              __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(mine), (first + i) % 32));
          if (first + i >= from.count()) p[i] = nullptr;
          if (inside && p[i] != nullptr) v[i] = LoadPack<kWidth>(p[i] + d);
        }
#pragma unroll
        for (int i = 0; i < kSumBatch; ++i) {
          if (p[i] == nullptr) continue;
#pragma unroll
          for (int j = 0; j < kWidth; ++j) sum[j] += ToAccum(v[i].x[j]);
        }
      }
      if (inside) StoreRounded<kWidth>(to + d, sum);
    }
  }
}

}  // namespace yardmaster::ep
