#include "src/train/signals.h"

#include <csignal>
#include <initializer_list>

namespace yardmaster {
namespace {

// The only global state of the trainer: a handler can reach nothing else.
volatile std::sig_atomic_t interrupt_count = 0, terminate_count = 0, save_count = 0;

void Handle(int signal) {
  if (signal == SIGUSR1) {
    save_count = 1;
    return;
  }
  volatile std::sig_atomic_t& count = signal == SIGINT ? interrupt_count : terminate_count;
  if (count) {  // second time: the default action ends the process
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  count = 1;
}

}  // namespace

void InstallSignalHandlers() {
  struct sigaction action = {};
  action.sa_handler = Handle;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
  // A file over the limit of its size (ulimit -f) is an error of the write, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
}

SignalFlags PollSignals() {
  SignalFlags flags{interrupt_count != 0, terminate_count != 0, save_count != 0};
  save_count = 0;
  return flags;
}

}  // namespace yardmaster
