// File: src/tensor/safetensors.h
//
// Safetensors files: u64 little-endian header length, JSON header, data. The reader validates everything the format
// promises (header size, dtypes, offsets contiguous from 0 to the end of the file, no duplicate names) and throws Error
// with the given exit code, the file and the place. Reading is by memory map; writing checks every write.
// Format: https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/tensor/tensor.h"

namespace yardmaster {

class SafetensorsFile {
 public:
  // `code`: kCheckpoint for our checkpoints and HF models, kData for data.
  explicit SafetensorsFile(const std::string& path, ExitCode code = ExitCode::kCheckpoint);
  const std::vector<std::string>& names() const { return names_; }        // sorted
  bool Has(const std::string& name) const { return entries_.count(name) != 0; }
  // A view into the map (read-only!). A dtype that DType lacks (F16, F8_E4M3, ...) throws and names the tensor.
  Tensor Get(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return file_.path(); }

 private:
  struct Entry { std::string dtype; Shape shape; uint64_t begin, end; };
  MappedFile file_;
  ExitCode code_;
  std::vector<std::string> names_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
  uint64_t data_begin_ = 0;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;  // host memory, contiguous
};

struct SafetensorsWritten {
  uint64_t file_bytes = 0;
  uint32_t crc32c = 0;              // of the whole file
  std::map<std::string, uint64_t> offsets;  // name -> absolute offset of its data in the file
};

// Writes tensors in the format's usual order (alignment descending, then name), data 8-aligned. Throws on failure.
SafetensorsWritten WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                                    const std::map<std::string, std::string>& metadata, bool fsync);

}  // namespace yardmaster
