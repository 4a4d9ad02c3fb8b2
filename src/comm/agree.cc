#include "src/comm/agree.h"

#include <algorithm>
#include <vector>

#include "src/base/check.h"

namespace yardmaster {

void AgreeOrThrow(Agreement& agreement, const std::function<void()>& f, const std::string& what) {
  // "": all right; else the exit code, a space, the message.
  std::string outcome;
  try {
    f();
  } catch (const Error& e) {
    outcome = StrCat(static_cast<int>(e.code()), " ", e.what());
  } catch (const std::exception& e) {
    outcome = StrCat(static_cast<int>(ExitCode::kInternal), " ", e.what());
  } catch (...) {
    outcome = StrCat(static_cast<int>(ExitCode::kInternal), " an exception of unknown type");
  }
  const std::vector<std::string> outcomes = agreement.AllGather(outcome);
  YM_CHECK_EQ(outcomes.size(), static_cast<size_t>(agreement.size()));
  const auto failed = std::find_if(outcomes.begin(), outcomes.end(),
                                   [](const std::string& o) { return !o.empty(); });
  if (failed == outcomes.end()) return;
  const int rank = static_cast<int>(failed - outcomes.begin());
  const auto others =
      std::count_if(failed + 1, outcomes.end(), [](const std::string& o) { return !o.empty(); });
  const size_t space = failed->find(' ');
  YM_CHECK(space != std::string::npos, "outcome of rank ", rank, ": ", *failed);
  std::string message = what + " failed";
  if (agreement.size() > 1) message += StrCat(" on rank ", rank, " of ", agreement.size());
  if (others > 0) message += StrCat(" (and on ", others, others == 1 ? " other)" : " others)");
  throw AgreedError(static_cast<ExitCode>(std::stoi(failed->substr(0, space))),
                    message + ": " + failed->substr(space + 1), rank);
}

}  // namespace yardmaster
