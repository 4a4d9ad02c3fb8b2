// File: src/checkpoint/save.h
//
// Saves the state of all ranks as one checkpoint, or not at all. The order of what reaches the disk is the
// promise: a kill, a full disk or an I/O error at any point leaves the checkpoints that were there before,
// and the run goes on.
//   1 rank 0 removes leftovers, asks for the free space, makes .tmp-step_N-*
//   2 every rank writes and fsyncs its shard; replicas of a box are written by the lowest rank that holds it
//   3 all ranks agree whether all succeeded
//   4 rank 0 writes the texts and manifest.json, fsyncs them and the directory
//   5 rename to step_N (an older step_N is exchanged), fsync of the parent
//   6 LATEST is replaced atomically: from here on a resume takes the new checkpoint
//   7 old checkpoints are removed (retention.h)
// A tensor without elements is not stored. A failure in 1-6 is agreed by all ranks, the temporary directory
// is removed, and the result says why.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/base/agreement.h"
#include "src/base/error.h"
#include "src/checkpoint/manifest.h"
#include "src/device/device.h"
#include "src/tensor/state.h"

namespace yardmaster {

struct CheckpointContents {
  int64_t step = 0;                         // the same on every rank
  std::vector<StateTensor> tensors;         // what this rank holds; contiguous memory of `device`
  std::map<std::string, std::string> text;  // of rank 0: "config.yaml", "trainer.json"
};

struct SaveOptions {
  std::string dir;          // of all checkpoints of the run, on a file system that every rank sees
  int64_t keep_latest = 2;  // 0: all; else at least 2, so that a damaged newest one is never the only one
  uint64_t chunk_bytes =
      kCrcChunkBytes;  // of the crcs and of the staging memory in which shards pass through the host
};

// The same on every rank, but for warnings and removed (rank 0 has them).
struct SaveResult {
  bool ok = false;
  ExitCode code = ExitCode::kOk;  // of the failure: kDiskFull when there was no space or quota
  std::string reason;             // of the failure
  std::string path;               // of the checkpoint
  uint64_t bytes = 0;             // of all files
  double seconds = 0;             // that this rank was in SaveCheckpoint
  int removed = 0;                // old checkpoints
  std::vector<std::string>
      warnings;  // what went wrong without harm: a leftover or an old checkpoint that stays
};

// Collective. Does not throw for anything that the disk does. Throws CheckpointError, on all ranks, when the
// tensors do not tile their global shapes or contradict each other, and ConfigError for options that make no
// sense: these would fail each time.
SaveResult SaveCheckpoint(const SaveOptions& options, const CheckpointContents& contents, Device& device,
                          Agreement& world);

}  // namespace yardmaster
