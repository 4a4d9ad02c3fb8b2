// File: kernels/segments/segments.h
//
// Where rows go that travel between n ranks of an expert-parallel group in one segment for each pair of
// ranks: the local arithmetic of src/comm/ep/cuda/nccl_dispatcher.h. From the counts of all ranks follow the
// windows' layout (expert-major, then by source rank, then by token: src/comm/ep/mpi_dispatcher.h), each
// row's place in the sender's buffer and in the receiver's, and whether it fits. No atomics but maxima and a
// flag that is only set.
//
// A segment holds `capacity` rows, for every pair of ranks alike, so that the host need not know how many of
// them are used; capacity 0: the host knows, segments follow each other without gaps.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

struct SegmentPlan {
  int64_t ranks, experts, local_experts;  // n, E, L = E / n
  int64_t me;
  int64_t tokens, window;  // T and R of this rank
  int64_t top_k;
  int64_t capacity;
  bool needs_segments;  // `needed` counts segments of equal size too
  // Per rank: pairs for each expert, then its T and R.
  int64_t* counts;              // [n, E + 2]
  const int64_t* send_offsets;  // [E + 1]: rows in send order (by global expert, then by token)
  const int64_t* send_source;   // [T * K]: pair of each of them
  int64_t* begins;              // [n, E]: first row in the owner's window of that rank's rows for that expert
  int64_t* offsets;             // [L + 1]: rows of this rank's window, cut at R
  int64_t* needed;       // [1]: rows that the fullest window would take, or n times the fullest segment
  int64_t* most_needed;  // [1] raised to `needed`, or null
  int32_t* overflow;     // [1], set to 1 where a window or a segment of the group is too small
  int64_t* recv_first;   // [n, L]: first row of that rank's rows for a local expert in its segment
  int64_t* recv_begin;   // [n + 1]: first row of its segment, without gaps
  int64_t* send_slot;    // [T, K]: row of the pair in the sender's buffer, -1 where it does not fit
  int64_t* send_place;   // [T * K]: the same by send order
  int64_t* recv_place;   // [R]: row of a window's row in the receiver's buffer, -1 where it did not fit
};

// This rank's row of counts, from send_offsets.
cudaError_t CountSegments(const SegmentPlan& plan, cudaStream_t stream);
// begins, offsets, needed, overflow, recv_first and recv_begin, once the counts of all ranks are there.
cudaError_t PlaceWindows(const SegmentPlan& plan, cudaStream_t stream);
// After that: send_slot, send_place and recv_place.
cudaError_t PlaceRows(const SegmentPlan& plan, cudaStream_t stream);

// Rows to[to_index[i]] = from[from_index[i] / from_divisor] for i < min(num_rows[0], most), null index: i
// itself; left out where an index is -1. Weights (null: none), of 4 or 8 bytes, by the same indices without
// the divisor. One block a row, 16 bytes at a time where addresses allow it: each row is read and written
// once.
struct MoveRowsArgs {
  const void* from;
  void* to;
  int64_t row_bytes;
  const int64_t* from_index;
  int64_t from_divisor = 1;
  const int64_t* to_index;
  const int64_t* num_rows;
  int64_t most;
  const void* w_from = nullptr;
  void* w_to = nullptr;
  int weight_bytes = 0;
};
cudaError_t MoveRows(const MoveRowsArgs& args, cudaStream_t stream);

}  // namespace yardmaster
