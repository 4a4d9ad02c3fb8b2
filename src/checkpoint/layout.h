// File: src/checkpoint/layout.h
//
// The names of a checkpoint directory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yardmaster {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kLatestName[] = "LATEST";
inline constexpr char kTemporaryPrefix[] = ".tmp-";
inline constexpr char kDeletedPrefix[] = ".del-";

std::string StepDirectoryName(int64_t step);           // 100 -> "step_00000100"
int64_t StepOfDirectoryName(const std::string& name);  // -1 if it is no such name
std::string ShardFileName(int rank);                   // 3 -> "shard_00003.safetensors"

struct StepDirectory {
  std::string name;
  int64_t step = 0;
};
std::vector<StepDirectory> ListSteps(
    const std::string& dir);  // newest first; whether they are valid is not asked

}  // namespace yardmaster
