// File: src/hf/hf_checkpoint.h
//
// The weights of a Hugging Face model directory: model.safetensors, or the files that
// model.safetensors.index.json names.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/tensor/safetensors.h"

namespace yardmaster {

class HfCheckpoint {
 public:
  // Maps every file and checks the index against them. Throws CheckpointError that names the file and the
  // tensor.
  explicit HfCheckpoint(const std::string& directory);

  std::vector<std::string> names() const;  // sorted
  bool Has(const std::string& name) const { return file_of_.count(name) != 0; }
  Tensor Get(const std::string& name) const;                 // a view into the map: read-only
  const std::string& FileOf(const std::string& name) const;  // for messages
  const std::string& directory() const { return directory_; }

 private:
  const SafetensorsFile& Find(const std::string& name) const;

  std::string directory_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, size_t> file_of_;
};

}  // namespace yardmaster
