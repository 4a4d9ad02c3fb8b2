// File: src/checkpoint/load.h
//
// Reads a checkpoint into whatever boxes a rank holds now: pieces are taken by the intersection of boxes, so
// that the number of ranks and the layout may differ from those that saved it. Every chunk of bytes is
// checked by its crc before any byte of it is used.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/base/agreement.h"
#include "src/device/device.h"
#include "src/tensor/state.h"

namespace yardmaster {

struct LoadReport {
  std::vector<std::string>
      unused;          // tensors of the checkpoint that no rank asked for, sorted; the same on every rank
  uint64_t bytes = 0;  // that this rank checked and read
};

// Collective. Fills every tensor given (contiguous memory of `device`). Throws CheckpointError on all ranks,
// naming the tensor, the file and both values, if one is missing, has another dtype or global shape, or its
// bytes are damaged; some tensors may be filled by then.
LoadReport LoadCheckpoint(const std::string& checkpoint_path, const std::vector<StateTensor>& tensors,
                          Device& device, Agreement& world);

// What keeps the checkpoint from filling these tensors: the first that is missing or has another dtype or global
// shape, in words ("tensor 'x' has shape [2, 3] in the checkpoint, [2, 4] here"); "": nothing. From its manifest
// alone, by this rank alone.
std::string CheckpointMismatch(const std::string& checkpoint_path, const std::vector<StateTensor>& tensors);

// Collective. The texts of the checkpoint by name, each checked by its crc; read by rank 0. Throws on all
// ranks.
std::map<std::string, std::string> LoadCheckpointText(const std::string& checkpoint_path, Agreement& world);

}  // namespace yardmaster
