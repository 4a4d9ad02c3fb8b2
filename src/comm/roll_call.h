// File: src/comm/roll_call.h
//
// Who is there, and where: for a rank that has waited too long. Every rank's watchdog answers at any time,
// from its own thread, whatever the rest of the process does; a rank that does not answer has ended, was
// stopped or lost its machine.
#pragma once

#include <string>
#include <vector>

namespace yardmaster {

class RollCall {
 public:
  virtual ~RollCall() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Answers what other ranks have asked meanwhile with `mine`. Returns at once.
  virtual void Answer(const std::string& mine) = 0;
  // Asks all ranks and listens for `seconds`, or until all have answered: the answers by rank, "" for none.
  virtual std::vector<std::string> Ask(const std::string& mine, double seconds) = 0;
};

}  // namespace yardmaster
