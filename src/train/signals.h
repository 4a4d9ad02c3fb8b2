// File: src/train/signals.h
//
// Signals become flags; the loop polls them between steps and in evaluation, and all ranks
// agree before they act. A second SIGINT or SIGTERM ends the process at once: the last committed checkpoint
// stands.
//   SIGINT   stop after this step, saving first (Ctrl-C on a run without mpirun)
//   SIGTERM  stop after this step without saving: mpirun leaves a rank about a second (also for Ctrl-C on
//   mpirun) SIGUSR1  save after this step and go on (mpirun forwards it to all ranks)
#pragma once

namespace yardmaster {

struct SignalFlags {
  bool interrupt = false;
  bool terminate = false;
  bool save = false;
  bool stop() const { return interrupt || terminate; }
};

void InstallSignalHandlers();  // once per process
SignalFlags PollSignals();     // what has arrived; clears `save`

}  // namespace yardmaster
