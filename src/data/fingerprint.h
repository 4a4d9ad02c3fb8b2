// File: src/data/fingerprint.h
//
// Fingerprints of data sets. A checkpoint keeps the one its run trained on; resume compares and names the
// file that changed. Every byte is read, every time: a changed byte is always seen.
//
// Up to 1 GiB the fingerprint is the SHA-256 of the file. Above, it is the SHA-256 of the CRC-32Cs (4 bytes
// each, little-endian) of the file's 64 MiB chunks: limited by the disk instead of by the hash, sure to see
// any change that lies within 32 bits of a chunk, and others but for one in 4 billion. It guards against
// accidents, not forgers. Equal sizes use the same rule, so (bytes, sha256) says which.
#pragma once

#include <cstdint>
#include <string>

namespace yardmaster {

struct FileFingerprint {
  std::string path;  // for messages; not compared, so that a data set may move
  uint64_t bytes = 0;
  std::string sha256;  // 64 lower-case hexadecimal digits, of the file or of its chunks' CRCs (above)
  bool SameContent(const FileFingerprint& other) const {
    return bytes == other.bytes && sha256 == other.sha256;
  }
};

struct DatasetFingerprint {
  FileFingerprint idx, bin;
};

inline constexpr uint64_t kFingerprintCrcAbove = uint64_t{1} << 30;
inline constexpr uint64_t kFingerprintChunk = uint64_t{64} << 20;

// Throws DataError for a file that cannot be read. `crc_above` is for tests.
FileFingerprint FingerprintFile(const std::string& path, uint64_t crc_above = kFingerprintCrcAbove);

// `path` as in DatasetPrefix (megatron_index.h).
DatasetFingerprint FingerprintDataset(const std::string& path);

// Throws DataError that names each file whose content differs, with both sizes and hashes.
void CheckSameDataset(const DatasetFingerprint& saved, const DatasetFingerprint& current);

}  // namespace yardmaster
