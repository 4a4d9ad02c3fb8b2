// File: kernels/ep/plan.h
//
// The plan of dispatch and combine on the device: counts of all ranks, window places, overflow. The fields are those of
// RoutingHandle (src/comm/ep/dispatcher.h), bit for bit the ones that MpiDispatcher computes. Places follow from prefix
// sums in token order: the only atomics add integers whose order cannot be seen.
//
// The operations of a group are described in group.h. Bytes moved: n * (E + 5) * 8 for each rank in the first exchange;
// deduplicated also n * n * 8 and K * 8 for each token sent.
// Reference: src/comm/ep/mpi_dispatcher.cc. Test: tests/cuda/ep_test.cc.
#pragma once

#include "kernels/ep/group.h"

namespace yardmaster {

// Words of a message that hold what these operations say, for n ranks and E experts.
constexpr int EpMessageWords(int n, int64_t E) {
  const int counts = kEpHeadWords + static_cast<int>(E) + 2, tokens = kEpHeadWords + n;
  return counts > tokens ? counts : tokens;
}

// One block. In: this rank's pairs in expert order. Out: counts int64 [n, E + 2], begins int64 [n, E], offsets
// int64 [L + 1], clamped to R, needed [1], the sticky overflow flag; rows_needed [1] is raised (null: not kept).
struct EpCountsArgs {
  const int64_t* expert_starts;  // [E + 1]
  int64_t T, K, R, E;
  int64_t* counts;
  int64_t* begins;
  int64_t* offsets;
  int64_t* needed;
  int64_t* rows_needed;
  int32_t* overflow;
};
cudaError_t EpExchangeCounts(const EpGroup& group, const EpCountsArgs& args, cudaStream_t stream);

// What both modes ask of a pair after the exchange.
struct EpPairs {
  const int32_t* idx;  // [T, K], ascending; -1: not computed
  int64_t T, K, E;
  const int64_t* counts;
  const int64_t* begins;
  const int64_t* expert_starts;  // [E + 1]: places in expert order of this rank's pairs
};

// Expanded: slot[pair], the place in expert order, becomes -1 where the window ends before the pair's row.
cudaError_t EpClampSlots(const EpGroup& group, const EpPairs& pairs, int64_t* slot, cudaStream_t stream);

// Deduplicated: rows[pair] is the pair's row in its owner's window, -1 beyond it; ranks int32 [T, J] the ranks that own any
// of a token's rows, ascending, then -1.
cudaError_t EpTokenRanks(const EpGroup& group, const EpPairs& pairs, const int64_t* slot, int64_t J, int64_t* rows,
                         int32_t* ranks, cudaStream_t stream);

// Deduplicated: tokens int64 [n, n], tokens that each rank sends to each; recv_offsets int64 [n + 1]; recv_slot int64 [N, K]
// of this rank is written by its peers: it lies at `place` bytes of `region`.
struct EpPlacesArgs {
  const int32_t* idx;
  int64_t T, K, J, E;
  const int64_t* rows;          // [T, K]
  const int64_t* send_offsets;  // [n + 1]
  const int64_t* send_slot;     // [T, J]
  EpRegion region;
  int64_t place;
  int64_t N;
  int64_t* tokens;
  int64_t* recv_offsets;
};
cudaError_t EpExchangePlaces(const EpGroup& group, const EpPlacesArgs& args, int blocks, cudaStream_t stream);

// to[i] = values[i], from the host by way of kernel arguments, so that the call waits for nothing. For a few hundred values.
cudaError_t EpStoreValues(const int64_t* values, int64_t count, int64_t* to, cudaStream_t stream);

// Loads these kernels: a kernel that is loaded at its first launch may wait for one that spins.
cudaError_t LoadEpPlanKernels();

}  // namespace yardmaster
