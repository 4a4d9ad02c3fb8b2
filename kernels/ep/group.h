// File: kernels/ep/group.h
//
// What the kernels of expert parallelism share: the ranks of a group, seen through a table of peer pointers, and the
// control block through which they meet.
//
// Every kernel here is one operation of the group: all ranks start the same operations in the same order, each
// rank on one stream at a time. An operation has a number, the epoch, counted in device memory, so that a captured
// graph replays. Its steps:
//   1. each rank posts a message to every peer (what it starts, where its window lies, counts) and raises its
//      `ready` flag there to the epoch. That is the credit: from then on peers may write this rank's window, or
//      read it.
//   2. each block waits for the `ready` flags it needs and moves its rows.
//   3. the last block to finish raises `done` at every peer, and waits for theirs. When the kernel ends, no peer
//      touches this rank's memory any more.
// Flags only grow. A flag is a 64-bit store with release at system scope, after a barrier of the block (and, in 3, an
// atomic count of the blocks); it is read with acquire at system scope. Message slots alternate with the epoch: a
// peer is at most one operation ahead, so what it posts next does not touch what is still read.
//
// No wait is for ever: after `deadline_ns` the block writes down who did not come (EpFailure), sets the poison flag,
// and the kernel ends. From then on all operations of this rank end at once without doing anything.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace yardmaster {

inline constexpr int kEpMaxRanks = 64;

// What an operation is; the first word of its message.
enum class EpOp : int32_t {
  kNone = 0,
  kCounts,        // plan: pairs by expert
  kPlaces,        // plan, deduplicated: tokens by rank, then their rows' places
  kDispatch,      // rows into the peers' windows
  kCombine,       // rows out of the peers' windows
  kSendTokens,    // deduplicated: one copy of a token for each rank
  kReturnTokens,  // deduplicated: each rank's sum back to the token's rank
  kRoundOut,      // exact replay: rows of a round into the windows
  kRoundBack,     // and back
};

// Why an operation of this rank failed; the first failure stays.
enum class EpFault : int32_t {
  kNone = 0,
  kNotReady,  // `peer` did not start the operation: expected epoch, epoch of its last one
  kNotDone,   // `peer` did not finish it
  kOrder,     // `peer` started another operation, or with another region: expected, seen (first message word)
  kCounts,    // counts of `peer` cannot be: expected at most, seen
};

struct EpFailure {
  int32_t fault;  // EpFault
  int32_t op;     // EpOp
  int32_t rank, peer;
  int64_t expected, seen;
};

// The head of a rank's control block; its own kernels alone use it.
struct EpControl {
  unsigned long long epoch;  // of the last operation that ended
  unsigned int arrived;      // blocks of the running one that moved their rows
  int32_t failed;            // 1: `failure` holds
  EpFailure failure;
};

// Message words: 0 the operation and regions; 1, 2 byte offsets of the windows; then counts.
inline constexpr int kEpHeadWords = 3;

// The control block, in peer memory, zeroed before the first operation:
//   EpControl | ready uint64 [size] | done uint64 [size] | messages int64 [2][size][words]
// ready[p], done[p] and messages[.][p] are written by rank p.
struct EpControlLayout {
  int size = 0;
  int words = 0;
  __host__ __device__ size_t ready() const { return 128; }
  __host__ __device__ size_t done() const { return ready() + sizeof(uint64_t) * static_cast<size_t>(size); }
  __host__ __device__ size_t message(uint64_t epoch, int p) const {
    return done() + sizeof(uint64_t) * static_cast<size_t>(size) +
           sizeof(int64_t) * static_cast<size_t>(words) * ((epoch & 1) * static_cast<size_t>(size) + static_cast<size_t>(p));
  }
  size_t bytes() const { return message(1, size); }
};
static_assert(sizeof(EpControl) <= 128);

// A kernel argument: the group as this rank sees it.
struct EpGroup {
  int rank, size;
  int words;            // of a message
  int64_t deadline_ns;  // of each wait
  int32_t* poison;      // [1] set to 1 with a failure; may be null. The overflow flag: the step then changes nothing
  char* control[kEpMaxRanks];
};

// Where every rank's copy of one region is.
struct EpRegion {
  int id;  // the same on all ranks
  char* base[kEpMaxRanks];
};

}  // namespace yardmaster
