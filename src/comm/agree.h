// File: src/comm/agree.h
//
// A rank that fails must not leave the others in a collective: what can fail on one rank alone
// (reading a file, writing a checkpoint, parsing a config) runs within AgreeOrThrow, which ends in
// one small exchange, so that all ranks go on or all ranks fail with the same message.
#pragma once

#include <functional>
#include <string>

#include "src/base/agreement.h"
#include "src/base/error.h"

namespace yardmaster {

// Thrown on every rank alike: it may be reported by rank 0 alone, and MPI can be finalised, since
// nobody waits.
class AgreedError : public Error {
 public:
  AgreedError(ExitCode code, const std::string& message, int failed_rank)
      : Error(code, message), failed_rank_(failed_rank) {}
  int failed_rank() const { return failed_rank_; }  // the lowest that failed

 private:
  int failed_rank_;
};

// Runs f on each rank and compares notes. If it threw on any rank, every rank throws one
// AgreedError with the exit code and the message of the lowest failing rank: "WHAT failed on rank R
// of N: message". An exception that is not an Error counts as kInternal. f must not communicate: a
// rank that throws would miss the rest of it.
void AgreeOrThrow(Agreement& agreement, const std::function<void()>& f, const std::string& what);

}  // namespace yardmaster
