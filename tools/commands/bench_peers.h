// File: tools/commands/bench_peers.h
//
// `mpirun -n N yardmaster bench peers`: dispatch and combine between processes, each with a GPU of its own
// (or sharing one, for tests): over peer memory with several numbers of multiprocessors, and over NCCL,
// beside what the wire gives in the same run: plain 16-byte stores into the next rank's memory by as many
// blocks, the copy engine, and NCCL's send and receive, all ranks at once. Times are those of the slowest
// rank, medians of `repeats`.
//
// wire GB/s: bytes of rows that go to other ranks, for each rank, over the time; of stores: that over what
// plain stores of as many multiprocessors reach.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/comm/mpi/mpi_world.h"

namespace yardmaster {

struct BenchPeersOptions {
  int64_t tokens = 4096;  // of each rank
  int64_t top_k = 8;
  int64_t experts = 256;
  int64_t hidden = 7168;
  std::string routing = "random";  // routing_choices.h
  std::vector<int> sms = {8, 16, 24, 32};
  int repeats = 11;
  std::string way = "peer";  // of ep.transport: peer, ipc or windows
  bool nccl = true;          // dispatch over NCCL too
  bool json = false;
};

// Prints a table, or JSON, on rank 0 and returns the exit code. Collective. Throws ConfigError for options
// out of range, without GPUs, and where the ranks do not reach each other's memory.
int RunBenchPeers(const BenchPeersOptions& options, MpiWorld* world);

}  // namespace yardmaster
