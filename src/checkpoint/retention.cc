#include "src/checkpoint/retention.h"

#include "src/base/files.h"
#include "src/base/strings.h"
#include "src/checkpoint/layout.h"
#include "src/checkpoint/manifest.h"
#include "src/checkpoint/outcome.h"

namespace yardmaster {
namespace {

bool HasPrefix(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

int RemoveOldCheckpoints(const std::string& dir, int64_t saved_step, int64_t keep_latest,
                         std::vector<std::string>* warnings) {
  if (keep_latest == 0) return 0;
  int removed = 0;
  int64_t kept = 0;
  std::vector<StepDirectory> steps;
  const Outcome listed = Attempt([&] { steps = ListSteps(dir); });
  if (!listed.ok()) warnings->push_back(StrCat("old checkpoints were not removed: ", listed.text));
  for (const StepDirectory& s : steps) {
    if (s.step > saved_step) continue;
    const std::string path = JoinPath(dir, s.name);
    if (kept < keep_latest) {
      if (Attempt([&] { OpenManifest(path); }).ok()) ++kept;
      continue;
    }
    const std::string doomed = JoinPath(dir, kDeletedPrefix + s.name);
    const Outcome outcome = Attempt([&] {
      RemoveTree(doomed);
      RenamePath(path, doomed);
      RemoveTree(doomed);
    });
    if (outcome.ok()) {
      ++removed;
    } else {
      warnings->push_back(StrCat("an old checkpoint was not removed: ", outcome.text));
    }
  }
  return removed;
}

void RemoveLeftovers(const std::string& dir, std::vector<std::string>* warnings) {
  std::vector<std::string> names;
  const Outcome listed = Attempt([&] { names = ListDirectory(dir); });
  if (!listed.ok()) warnings->push_back(StrCat("leftovers were not removed: ", listed.text));
  for (const std::string& name : names) {
    const bool leftover = HasPrefix(name, kTemporaryPrefix) || HasPrefix(name, kDeletedPrefix) ||
                          HasPrefix(name, StrCat(kLatestName, kTemporaryPrefix));  // of WriteFileAtomically
    if (!leftover) continue;
    const Outcome outcome = Attempt([&] { RemoveTree(JoinPath(dir, name)); });
    if (!outcome.ok()) warnings->push_back(StrCat("a leftover was not removed: ", outcome.text));
  }
}

}  // namespace yardmaster
