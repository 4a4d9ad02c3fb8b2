#include "src/checkpoint/find.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/strings.h"
#include "src/checkpoint/layout.h"
#include "src/checkpoint/manifest.h"
#include "src/checkpoint/outcome.h"

namespace yardmaster {
namespace {

using Json = nlohmann::json;

struct Candidate {
  std::string name;
  std::string reason;  // why it is the choice, if it is valid
};

struct Candidates {
  std::vector<Candidate> list;  // in the order to try
  std::vector<SkippedCheckpoint> skipped;
  std::string latest;  // the name that LATEST gives, if it is one
};

// What LATEST says; in words why it says nothing.
std::string ReadLatest(const std::string& dir, std::string* problem) {
  const std::string path = JoinPath(dir, kLatestName);
  if (!PathExists(path)) return *problem = "is missing", "";
  std::string text;
  const Outcome outcome = Attempt([&] { text = ReadFile(path); });
  if (!outcome.ok()) return *problem = outcome.text, "";
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  if (text.empty()) return *problem = "is empty", "";
  if (StepOfDirectoryName(text) < 0) return *problem = "does not name a checkpoint", "";
  if (!PathExists(JoinPath(dir, text))) return *problem = StrCat("names ", text, ", which is not there"), "";
  return text;
}

// Rank 0's part: looks at names only.
Candidates ListCandidates(const FindOptions& options) {
  Candidates out;
  const std::vector<StepDirectory> steps = ListSteps(options.dir);
  if (options.resume.mode == ResumeMode::kStep) {
    const std::string name = StepDirectoryName(options.resume.step);
    if (!PathExists(JoinPath(options.dir, name))) {
      std::vector<std::string> names;
      for (const StepDirectory& s : steps) names.push_back(std::to_string(s.step));
      throw CheckpointError(
          StrCat("there is no checkpoint of step ", options.resume.step), options.dir,
          names.empty() ? "there is none at all" : "there are those of the steps " + StrJoin(names, ", "));
    }
    out.list.push_back({name, StrCat("checkpoint.resume asks for step ", options.resume.step)});
    return out;
  }
  std::string problem;
  out.latest = ReadLatest(options.dir, &problem);
  if (!out.latest.empty()) {
    out.list.push_back({out.latest, "LATEST names it"});
  } else if (!steps.empty()) {
    out.skipped.push_back({kLatestName, problem});
  } else if (PathExists(JoinPath(options.dir, kLatestName))) {
    throw CheckpointError(StrCat("LATEST ", problem, ", and there is no other checkpoint"), options.dir,
                          "bring the checkpoint back, or start anew with checkpoint.resume: never");
  }
  for (const StepDirectory& s : steps)
    if (s.name != out.latest) out.list.push_back({s.name, "it is the newest valid one"});
  return out;
}

std::string Encode(const Candidates& c) {
  Json json = {{"list", Json::array()}, {"skipped", Json::array()}, {"latest", c.latest}};
  for (const Candidate& x : c.list) json["list"].push_back({x.name, x.reason});
  for (const SkippedCheckpoint& x : c.skipped) json["skipped"].push_back({x.name, x.reason});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Candidates Decode(const std::string& text) {
  const Json json = Json::parse(text);
  Candidates out;
  for (const Json& x : json["list"]) out.list.push_back({x[0], x[1]});
  for (const Json& x : json["skipped"]) out.skipped.push_back({x[0], x[1]});
  out.latest = json["latest"];
  return out;
}

// Whether the checkpoint is valid, in the eyes of all ranks.
Outcome Examine(const std::string& path, bool full, Agreement& world) {
  const Outcome opened = AttemptOnFirst(world, [&] { OpenManifest(path); });
  if (!opened.ok() || !full) return opened;
  return AttemptOnAll(world, [&] {
    const Manifest manifest = OpenManifest(path);
    int i = 0;
    for (const auto& [name, file] : manifest.files)
      if (i++ % world.size() == world.rank()) VerifyFile(path, name, file);
  });
}

}  // namespace

ResumeRequest ParseResume(const std::string& text) {
  if (text == "auto") return {ResumeMode::kAuto, 0};
  if (text == "never") return {ResumeMode::kNever, 0};
  const bool digits =
      !text.empty() && text.size() <= 18 && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits)
    throw ConfigError(StrCat("'", text, "' is not auto, never or the number of a step"), "checkpoint.resume");
  return {ResumeMode::kStep, std::strtoll(text.c_str(), nullptr, 10)};
}

FoundCheckpoint FindCheckpoint(const FindOptions& options, Agreement& world) {
  FoundCheckpoint found;
  if (options.resume.mode == ResumeMode::kNever) {
    found.reason = "checkpoint.resume is never: a fresh start";
    return found;
  }
  std::string encoded;
  ThrowIfFailed(AttemptOnFirst(world, [&] { encoded = Encode(ListCandidates(options)); }));
  const Candidates candidates = Decode(world.Broadcast(encoded));
  found.skipped = candidates.skipped;
  if (candidates.list.empty()) {
    found.reason = StrCat("no checkpoint in ", options.dir, ": a fresh start");
    return found;
  }
  for (const Candidate& candidate : candidates.list) {
    const std::string path = JoinPath(options.dir, candidate.name);
    const Outcome outcome = Examine(path, options.verify_full, world);
    if (!outcome.ok()) {
      if (options.resume.mode == ResumeMode::kStep) ThrowIfFailed(outcome);
      found.skipped.push_back({candidate.name, outcome.text});
      continue;
    }
    found.path = path;
    found.step = StepOfDirectoryName(candidate.name);
    found.reason = candidate.reason;
    if (candidate.name == candidates.latest) {
      for (const Candidate& other : candidates.list) {
        if (StepOfDirectoryName(other.name) > found.step)
          found.skipped.push_back(
              {other.name, StrCat("is newer, but LATEST does not name it: its save did not finish, "
                                  "or the run went back; checkpoint.resume=",
                                  StepOfDirectoryName(other.name), " takes it")});
      }
    }
    return found;
  }
  std::vector<std::string> lines;
  for (const SkippedCheckpoint& s : found.skipped) lines.push_back(StrCat("\n  ", s.name, ": ", s.reason));
  throw CheckpointError(StrCat("there are checkpoints, but none is valid:", StrJoin(lines, "")), options.dir,
                        "bring one back, or start anew with checkpoint.resume: never");
}

}  // namespace yardmaster
