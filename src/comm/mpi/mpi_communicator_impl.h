// File: src/comm/mpi/mpi_communicator_impl.h
//
// The part of MpiCommunicator that knows mpi.h. Private to src/comm/mpi.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/mpi/mpi_call.h"
#include "src/comm/mpi/mpi_communicator.h"

namespace yardmaster {

struct MpiCommunicator::Impl {
  Impl(std::shared_ptr<MpiState> state_in, MPI_Comm comm_in, std::vector<int> ranks_in,
       std::string name_in);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  char* Scratch(int64_t bytes);
  std::string PeerName(int peer) const;  // "rank 1 of dp (world rank 3)"
  std::string What(const char* what) const;

  std::shared_ptr<MpiState> state;
  MPI_Comm comm;
  std::vector<int> ranks;  // world rank of each group rank
  std::string name;
  int rank = 0, size = 1;
  std::vector<char> scratch;
  std::vector<MPI_Request> requests;  // of the exchange under way
  std::vector<int> peers;             // of each request
};

}  // namespace yardmaster
