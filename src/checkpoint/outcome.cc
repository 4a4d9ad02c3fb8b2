#include "src/checkpoint/outcome.h"

#include <cstdlib>
#include <vector>

#include "src/base/strings.h"
#include "src/comm/agree.h"

namespace yardmaster {
namespace {

// "4 text": the exit code and the reason.
std::string Encode(const Outcome& outcome) {
  return StrCat(static_cast<int>(outcome.code), " ", outcome.text);
}

Outcome Decode(const std::string& text) {
  const size_t space = text.find(' ');
  return {static_cast<ExitCode>(std::atoi(text.c_str())),
          space == std::string::npos ? "" : text.substr(space + 1)};
}

}  // namespace

Outcome AgreeOutcome(const Outcome& mine, Agreement& world) {
  const std::vector<std::string> all = world.AllGather(Encode(mine));
  Outcome first;
  int first_rank = -1, failed = 0;
  for (size_t r = 0; r < all.size(); ++r) {
    const Outcome outcome = Decode(all[r]);
    if (outcome.ok()) continue;
    if (failed++ == 0) first = outcome, first_rank = static_cast<int>(r);
  }
  if (failed > 0 && world.size() > 1) {
    const std::string others = failed > 1 ? StrCat(" (", failed, " of ", world.size(), " ranks failed)") : "";
    first.text = StrCat("rank ", first_rank, ": ", first.text, others);
  }
  return first;
}

Outcome BroadcastOutcome(const Outcome& mine, Agreement& world) {
  return Decode(world.Broadcast(Encode(mine)));
}

void ThrowIfFailed(const Outcome& outcome) {
  if (!outcome.ok()) throw AgreedError(outcome.code, outcome.text, 0);
}

}  // namespace yardmaster
