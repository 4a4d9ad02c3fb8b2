// File: src/checkpoint/manifest.h
//
// manifest.json says what a checkpoint holds: every file with its size and crc, and for every global tensor
// its dtype, global shape and the pieces of it: which file, where in it, which box, and the crc of each chunk
// of its bytes. Its own last member is the crc of all the text before it. A directory without a good manifest
// is no checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/tensor/shard_spec.h"

namespace yardmaster {

inline constexpr int kManifestVersion = 1;
// Chunks are what a reader must check to use any byte of them.
inline constexpr uint64_t kCrcChunkBytes = uint64_t{64} << 20;

struct ManifestFile {
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};

struct TensorPart {
  std::string file;
  uint64_t offset = 0;  // from the begin of the file
  uint64_t bytes = 0;
  Box box;
  std::vector<uint32_t> chunk_crc32c;  // of each chunk_bytes of the part, from its own begin
};

struct ManifestTensor {
  DType dtype = DType::kF32;
  Shape shape;  // global
  std::vector<TensorPart> parts;
};

struct Manifest {
  int64_t step = 0;
  int world = 1;              // ranks that saved it
  std::string config_sha256;  // of the text "config.yaml"; "" if there is none
  uint64_t chunk_bytes = kCrcChunkBytes;
  std::map<std::string, ManifestFile> files;  // by plain name, in the directory of the manifest
  std::vector<std::string> text;              // which of the files are texts
  std::map<std::string, ManifestTensor> tensors;
};

std::string ManifestToText(const Manifest& manifest);
// Throws CheckpointError naming `where`. Checks the crc, the version, names, and that the parts of each
// tensor cover it.
Manifest ManifestFromText(const std::string& text, const std::string& where);

// Reads the manifest of a checkpoint directory and checks that it is of the step in the directory's name and
// that every file is there with its size. Throws CheckpointError.
Manifest OpenManifest(const std::string& checkpoint_path);
// Reads a whole file of the checkpoint and checks its crc. Throws CheckpointError with both values.
void VerifyFile(const std::string& checkpoint_path, const std::string& name, const ManifestFile& file);

}  // namespace yardmaster
