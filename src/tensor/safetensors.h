// File: src/tensor/safetensors.h
//
// Safetensors files: u64 little-endian header length, JSON header, data. The reader validates everything the
// format promises (header size, dtypes, sizes, offsets contiguous from 0 to the end of the file, no duplicate
// names) and throws Error with the given exit code, the file and the place. Reading is by memory map; writing
// checks every write. Format: https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <cstddef>
#include <functional>
#include <map>
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
  const std::vector<std::string>& names() const { return names_; }  // sorted
  bool Has(const std::string& name) const { return entries_.count(name) != 0; }
  // A view into the map (read-only!). A dtype that DType lacks (F16, F8_E4M3, ...) throws and names the
  // tensor, as does a name that is not there. Data that the file does not align for its dtype is copied once;
  // not thread-safe then.
  Tensor Get(const std::string& name) const;
  // What the header says of a tensor, for every dtype of the format: the bytes are row-major, little-endian,
  // packed.
  struct Entry {
    std::string dtype;           // "F32", "F8_E4M3", ...
    std::vector<int64_t> shape;  // any rank; Get takes up to Shape::kMaxRank
    uint64_t offset = 0;         // of the data, from the begin of the file
    uint64_t bytes = 0;
  };
  const Entry& Describe(const std::string& name) const;
  const std::byte* Bytes(const std::string& name) const { return file_.data() + Describe(name).offset; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return file_.path(); }
  uint64_t file_bytes() const { return file_.size(); }

 private:
  MappedFile file_;
  ExitCode code_;
  std::vector<std::string> names_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
  mutable std::map<std::string, HostTensor> aligned_;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;  // host memory, contiguous
};

struct SafetensorsWritten {
  uint64_t file_bytes = 0;
  uint32_t crc32c = 0;                      // of the whole file
  std::map<std::string, uint64_t> offsets;  // name -> absolute offset of its data in the file
  // name -> the crc of each piece of `chunk_bytes` of its data; the last piece may be shorter.
  std::map<std::string, std::vector<uint32_t>> chunk_crc32c;
};

// Writes tensors in the format's usual order (alignment descending, then name), data 8-aligned. Throws on
// failure, also for duplicate names and names that are not UTF-8.
SafetensorsWritten WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                                    const std::map<std::string, std::string>& metadata, bool fsync);

// The same for data that is not in host memory: `read(begin, bytes, out)` is called for pieces of at most
// `chunk_bytes`, in order; `out` is a buffer that is used again.
struct SafetensorsSource {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::function<void(uint64_t begin, uint64_t bytes, void* out)> read;
};
SafetensorsWritten WriteSafetensorsFrom(const std::string& path,
                                        const std::vector<SafetensorsSource>& sources,
                                        const std::map<std::string, std::string>& metadata, bool fsync,
                                        uint64_t chunk_bytes);

}  // namespace yardmaster
