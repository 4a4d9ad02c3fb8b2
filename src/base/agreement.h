// File: src/base/agreement.h
//
// How ranks agree on errors and decisions: small strings, exchanged between all ranks in the same order. The
// MPI one is in src/comm; a process alone uses SingleProcess. A rank that catches an exception still takes
// part in the next exchange: otherwise the others would wait for it forever.
#pragma once

#include <string>
#include <vector>

namespace yardmaster {

class Agreement {
 public:
  virtual ~Agreement() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Every rank's string, by rank, on every rank. Strings may hold any bytes and differ in length.
  virtual std::vector<std::string> AllGather(const std::string& mine) = 0;
  // Rank 0's string on every rank.
  virtual std::string Broadcast(const std::string& mine) = 0;
  // Every rank's string on rank 0, nothing elsewhere. For what is too long to be sent to everybody.
  virtual std::vector<std::string> Gather(const std::string& mine) {
    std::vector<std::string> all = AllGather(mine);
    if (rank() != 0) all.clear();
    return all;
  }
};

class SingleProcess : public Agreement {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> AllGather(const std::string& mine) override { return {mine}; }
  std::string Broadcast(const std::string& mine) override { return mine; }
};

}  // namespace yardmaster
