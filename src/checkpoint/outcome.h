// File: src/checkpoint/outcome.h
//
// How ranks agree on whether a piece of work succeeded. A rank runs its part through Attempt, which turns any
// exception into an Outcome, and then takes part in the exchange: no rank ever waits for one that has thrown.
#pragma once

#include <exception>
#include <string>

#include "src/base/agreement.h"
#include "src/base/error.h"

namespace yardmaster {

struct Outcome {
  ExitCode code = ExitCode::kOk;
  std::string text;  // why, if it failed
  bool ok() const { return code == ExitCode::kOk; }
};

template <class F>
Outcome Attempt(F&& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::exception& error) {
    return {ExitCode::kInternal, error.what()};
  }
}

// The same on every rank: ok if all are, else the lowest failing rank's outcome, which names that rank and
// how many failed.
Outcome AgreeOutcome(const Outcome& mine, Agreement& world);
// Rank 0's outcome on every rank.
Outcome BroadcastOutcome(const Outcome& mine, Agreement& world);
// Rank 0 does the work; all ranks learn its outcome.
template <class F>
Outcome AttemptOnFirst(Agreement& world, F&& work) {
  return BroadcastOutcome(world.rank() == 0 ? Attempt(work) : Outcome(), world);
}
// All ranks do the work and agree on the outcome.
template <class F>
Outcome AttemptOnAll(Agreement& world, F&& work) {
  return AgreeOutcome(Attempt(work), world);
}

// Throws AgreedError with the outcome's code and text if it is a failure: all ranks know it, so it is told
// once.
void ThrowIfFailed(const Outcome& outcome);

}  // namespace yardmaster
