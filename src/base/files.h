// File: src/base/files.h
//
// Files whose writes are checked. Every failure throws Error with the path, errno's text and what to do; no space and
// no quota left become ExitCode::kDiskFull, so that a caller can survive them (checkpoints do). A path that cannot be
// used as asked (missing, no permission, read-only) is kConfig, any other failure kData. EINTR and short writes are
// handled here. Tests make single operations fail through file_faults.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yardmaster {

// A read-only memory-mapped file. Move-only. An empty file maps to data() == nullptr, size() == 0.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path);  // throws Error(kData) if it cannot be opened or is no regular file
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

// Sequential writer. Write/Close throw on the first error; a file that was not Close()d is not complete.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);  // creates or truncates
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();  // closes without throwing; never fsyncs
  void Write(const void* data, size_t bytes);
  void Write(std::string_view text) { Write(text.data(), text.size()); }
  void Close(bool fsync);  // flushes, optionally fsyncs, closes; NFS reports a full disk only here
  uint64_t bytes_written() const { return bytes_; }

 private:
  int fd_ = -1;
  uint64_t bytes_ = 0;
  std::string path_;
  std::vector<char> buffer_;
  void Flush();
};

std::string ReadFile(const std::string& path);                              // throws Error(kData)
// Temporary file beside it, fsync, rename, fsync of the directory: readers see the old text or the new one.
void WriteFileAtomically(const std::string& path, std::string_view text);
void FsyncDirectory(const std::string& path);
void MakeDirectories(const std::string& path);
bool PathExists(const std::string& path);
std::vector<std::string> ListDirectory(const std::string& path);            // names, sorted; empty if it does not exist
void RenamePath(const std::string& from, const std::string& to);
// Swaps two existing paths in one atomic operation. False, and nothing done, where the file system cannot (NFS).
bool ExchangePaths(const std::string& a, const std::string& b);
uint64_t FileSize(const std::string& path);                                 // of a regular file; throws Error(kData)
void RemoveTree(const std::string& path);                                   // no error if it does not exist
uint64_t FreeBytes(const std::string& path);                                // statvfs of the nearest existing parent
std::string JoinPath(const std::string& a, const std::string& b);
std::string BaseName(const std::string& path);
std::string DirName(const std::string& path);

}  // namespace yardmaster
