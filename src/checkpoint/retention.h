// File: src/checkpoint/retention.h
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yardmaster {

// Removes old checkpoints of `dir` after the one of `saved_step` was committed: the newest `keep_latest`
// valid ones (manifest and sizes) stay, older ones go, valid or not. `keep_latest` 0 keeps all. Directories
// newer than saved_step belong to a history that this run has left; they stay, and are not counted. A removal
// renames to .del-* first. Never throws: what could not be removed is told in `warnings`. Returns the number
// removed. For rank 0.
int RemoveOldCheckpoints(const std::string& dir, int64_t saved_step, int64_t keep_latest,
                         std::vector<std::string>* warnings);

// Removes what earlier saves and removals left behind (.tmp-*, .del-*). Never throws. For the holder of the
// run's lock.
void RemoveLeftovers(const std::string& dir, std::vector<std::string>* warnings);

}  // namespace yardmaster
