// File: src/comm/mpi/mpi_world.h
//
// MPI for the length of a run: who this process is, groups of ranks, agreement. src/comm/mpi is the
// only place that includes mpi.h; its headers do not.
//
// Works without mpirun too, as a world of one rank. All calls come from one thread, but for Abort
// and the calls of a RollCall, which a watchdog makes from its own.
//
// Every wait has a deadline, but for starting, ending and making groups, which MPI offers in
// blocking form only. A rank that waits longer throws Error(kWatchdog) naming what and whom it
// waited for; MPI is then unusable (messages may still be under way), later calls throw at once,
// and the process should call Abort or return an exit code other than 0, upon which mpirun ends the
// other ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/agreement.h"
#include "src/base/error.h"
#include "src/comm/mpi/mpi_communicator.h"
#include "src/comm/roll_call.h"

namespace yardmaster {

struct MpiOptions {
  double timeout_seconds = 600;  // of every wait; more than the longest work of one rank alone
  int64_t max_message_bytes =
      int64_t{1} << 28;  // larger transfers go in several messages: MPI counts are 32 bits
};

class MpiWorld {
 public:
  // Starts MPI; once in a process, since MPI cannot be started again.
  explicit MpiWorld(const MpiOptions& options = {});
  // Ends MPI, waiting for the other ranks to do the same. While an exception passes through, or
  // after a missed deadline, it leaves MPI as it is: the others may be anywhere, and mpirun ends
  // them when this process has gone. An exception that all ranks throw (AgreedError) is therefore
  // best caught within the world's scope.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  // among the ranks of this machine (shared memory)
  int local_size() const { return local_size_; }
  const std::string& host() const { return host_; }

  // Ends all ranks with this exit code, without waiting for them. For a failure that could not be
  // agreed on.
  [[noreturn]] void Abort(ExitCode code);

  // The group of these world ranks, in this order: group rank i is world rank ranks[i]. Collective
  // over the group, which must contain this rank. May outlive the world only to be destroyed.
  std::unique_ptr<MpiCommunicator> Group(const std::vector<int64_t>& ranks,
                                         const std::string& name);
  std::unique_ptr<MpiCommunicator> WorldGroup();  // all ranks, named "world"
  // Over all ranks, apart from the messages of any group. Collective.
  std::unique_ptr<Agreement> MakeAgreement();

  // The same for a thread that watches over the run; null where this MPI library allows one thread
  // only. Collective.
  std::unique_ptr<RollCall> MakeRollCall();

  void set_timeout_seconds(double seconds);

  // Whether a launcher (mpirun, srun) started this process; else it is alone, and MPI need not be
  // started at all.
  static bool Launched();

 private:
  std::shared_ptr<MpiState> state_;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  std::string host_;
  int exceptions_at_start_ = 0;
  bool threads_may_call_ = false;
};

}  // namespace yardmaster
