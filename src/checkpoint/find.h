// File: src/checkpoint/find.h
//
// Chooses the checkpoint that a run resumes from. A person should be able to read why: the result names what
// was chosen, the reason, and everything that was passed over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/agreement.h"

namespace yardmaster {

enum class ResumeMode : uint8_t {
  kAuto,  // the one that LATEST names; if that is not valid, the newest valid one; if there is none at all, a
          // fresh start
  kNever,  // a fresh start
  kStep,   // this step or an error
};

struct ResumeRequest {
  ResumeMode mode = ResumeMode::kAuto;
  int64_t step = 0;  // of kStep
};
// "auto", "never" or a step number, as checkpoint.resume has it. Throws ConfigError.
ResumeRequest ParseResume(const std::string& text);

struct FindOptions {
  std::string dir;  // of all checkpoints of the run
  ResumeRequest resume;
  bool verify_full =
      true;  // read every file and check its crc, shared among the ranks; else manifest and sizes only
};

struct SkippedCheckpoint {
  std::string name;  // "step_00000200", "LATEST"
  std::string reason;
};

struct FoundCheckpoint {
  std::string path;  // "" for a fresh start
  int64_t step = 0;
  std::string reason;
  std::vector<SkippedCheckpoint> skipped;
  bool fresh() const { return path.empty(); }
};

// Collective; the same result on every rank. Throws CheckpointError on all ranks when the step asked for is
// missing or damaged, or when there are checkpoints but none is valid: never a silent fresh start.
FoundCheckpoint FindCheckpoint(const FindOptions& options, Agreement& world);

}  // namespace yardmaster
