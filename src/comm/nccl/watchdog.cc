#include "src/comm/nccl/watchdog.h"

#include <chrono>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(100);
constexpr double kRollCallSeconds = 3;
constexpr int kLastOperations = 8;

}  // namespace

Watchdog::Watchdog(const WatchdogOptions& options, int device, std::shared_ptr<OperationLog> log,
                   std::unique_ptr<RollCall> roll_call)
    : options_(options), log_(std::move(log)), roll_call_(std::move(roll_call)) {
  thread_ = std::thread([this, device] { Loop(device); });
}

Watchdog::~Watchdog() {
  stop_ = true;
  thread_.join();
}

std::string Watchdog::Mine() {
  const OperationLog::State state = log_->Look();
  const std::vector<std::string> last = log_->Last(1);
  return RollCallAnswer(state.entered, last.empty() ? "" : last.back());
}

void Watchdog::Loop(int device) {
  static_cast<void>(cudaSetDevice(device));
  // The main thread may be capturing a graph, during which the questions asked here are otherwise forbidden.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
  int64_t unfinished = 0;
  double since = NowSeconds();
  for (; !stop_; std::this_thread::sleep_for(kPeriod)) {
    try {
      if (roll_call_) roll_call_->Answer(Mine());
      const OperationLog::State state = log_->Look();
      if (state.unfinished != unfinished) {
        unfinished = state.unfinished;
        since = NowSeconds();
      }
      const std::string error = options_.library_error ? options_.library_error() : "";
      if (!error.empty()) return Expire(StrCat("a collective failed: ", error));
      if (unfinished != 0 && NowSeconds() - since > options_.timeout_seconds)
        return Expire(StrCat("waited ", HumanSeconds(NowSeconds() - since), " for ", state.waits_for));
    } catch (const std::exception& e) {  // MPI has failed: nobody can be asked any more
      LogError(StrCat("the watchdog has lost the other ranks: ", e.what()));
      return;
    }
  }
}

void Watchdog::Expire(const std::string& why) {
  const OperationLog::State state = log_->Look();
  std::string text = why;
  if (roll_call_)
    text += StrCat(": ", WhoIsMissing(roll_call_->Ask(Mine(), kRollCallSeconds), state.unfinished));
  text += "\n  last operations of this rank:";
  for (const std::string& line : log_->Last(kLastOperations)) text += StrCat("\n    ", line);
  text +=
      "\n  hint: look at the log of the ranks that did not arrive; slow but healthy ranks need a longer "
      "runtime.timeout_seconds";
  LogError(text);
  FlushLog();
  // The others' deadlines end about now: they are answered, so that they name the same rank.
  for (const double end = NowSeconds() + kRollCallSeconds; roll_call_ && NowSeconds() < end;
       std::this_thread::sleep_for(kPeriod / 10)) {
    roll_call_->Answer(Mine());
  }
  options_.abort();
}

std::string RollCallAnswer(int64_t entered, const std::string& last) { return StrCat(entered, " ", last); }

std::string WhoIsMissing(const std::vector<std::string>& answers, int64_t number) {
  constexpr size_t kNamed = 8;
  std::vector<std::string> silent, behind;
  for (size_t r = 0; r < answers.size(); ++r) {
    if (answers[r].empty()) {
      silent.push_back(StrCat("rank ", r));
      continue;
    }
    const size_t space = answers[r].find(' ');
    if (std::strtoll(answers[r].c_str(), nullptr, 10) < number)
      behind.push_back(StrCat("rank ", r, " (last: ", answers[r].substr(space + 1), ")"));
  }
  const auto list = [&](std::vector<std::string>& names, const char* what) {
    const size_t more = names.size() > kNamed ? names.size() - kNamed : 0;
    names.resize(names.size() - more);
    return StrCat(StrJoin(names, ", "), more ? StrCat(" and ", more, " others") : "", " ", what);
  };
  std::vector<std::string> out;
  if (!silent.empty()) out.push_back(list(silent, "did not answer"));
  if (!behind.empty()) out.push_back(list(behind, "did not arrive"));
  if (out.empty()) return "all ranks have begun it; a GPU or a connection does not go on";
  return StrJoin(out, "; ");
}

}  // namespace yardmaster
