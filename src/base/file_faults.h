// File: src/base/file_faults.h
//
// Makes file operations of src/base/files.h fail on purpose, so that tests can prove what a full disk, an I/O
// error or a kill at any point of a save leaves behind. Off unless a test calls SetFileFaults or the
// environment variable YARDMASTER_FAULT_FILE is set, which gives the same fields to a whole process:
//   YARDMASTER_FAULT_FILE="op=write,match=shard_00001,nth=3,error=ENOSPC"   the third write to that shard
//   fails YARDMASTER_FAULT_FILE="nth=7,kill"                                      SIGKILL just before the
//   seventh operation
// This is process-wide state, the price of reaching code that knows nothing of tests.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

namespace yardmaster {

enum class FileOp : uint8_t { kOpen, kWrite, kFsync, kClose, kRename, kMkdir, kRemove };

struct FileFaults {
  std::string op = "any";    // open, write, fsync, close, rename, mkdir, remove or any
  std::string match;         // only paths that contain this text
  int64_t nth = 0;           // the first matching operation that fails, counted from 1; 0: none does
  int64_t count = 1;         // how many in a row fail; -1: all from then on
  int error = ENOSPC;        // a number, or in text one of ENOSPC, EDQUOT, EIO, EINTR, EACCES
  bool kill = false;         // SIGKILL this process instead of failing
  int64_t allow_bytes = -1;  // >= 0: the disk takes this many more bytes in all, then ENOSPC
  int64_t max_write = 0;     // > 0: one write() takes at most this many bytes (short writes)
  int64_t free_bytes = -1;   // >= 0: what FreeBytes() reports
};

// Throws ConfigError for text that it does not understand.
FileFaults ParseFileFaults(const std::string& text);

// Reads the environment variable, if nothing has yet: so that an error in it is told where all ranks agree on
// errors, and not by whichever file operation comes first. Throws ConfigError.
void ReadFileFaultVariable();

void SetFileFaults(const FileFaults& faults);  // also starts the counts again
void ClearFileFaults();
int64_t FileFaultHits();        // operations that were made to fail since SetFileFaults
int64_t FileFaultOperations();  // matching operations seen since SetFileFaults

namespace internal {
// Called by files.cc before each operation: the errno to fail with, or 0. May lower *bytes, the size of a
// write.
int CheckFileFault(FileOp op, const std::string& path, size_t* bytes = nullptr);
int64_t FaultyFreeBytes();  // -1: ask the file system
}  // namespace internal

}  // namespace yardmaster
