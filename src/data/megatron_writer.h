// File: src/data/megatron_writer.h
//
// Writes a data set in Megatron's format (megatron_index.h) as a stream: memory holds only 12 bytes a
// sequence and 8 a document. The files appear under their names only in Publish(), complete and on disk; one
// that exists is replaced.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/data/megatron_index.h"

namespace yardmaster {

class IndexedDatasetWriter {
 public:
  // The directory of `prefix` is made. Throws Error when the disk is full or not writable, here and below.
  IndexedDatasetWriter(const std::string& prefix, TokenType type);
  IndexedDatasetWriter(const IndexedDatasetWriter&) = delete;
  IndexedDatasetWriter& operator=(const IndexedDatasetWriter&) = delete;
  ~IndexedDatasetWriter();  // removes what was not published

  // Adds tokens to the current sequence, which is cut where its length would not fit 31 bits. Throws
  // DataError for a token that the type cannot hold.
  void Append(const int32_t* tokens, int64_t count);
  void EndSequence();
  // Ends the sequence too. A document without tokens is a DataError, unless EndSequence() gave it an
  // empty sequence.
  void EndDocument();

  // Closes both files, synced, under temporary names. The last document must have ended.
  void Finish();
  // Gives them their names; Finish() first. An .idx that is there is removed before the .bin changes and the
  // new one comes last, so that a kill in between never leaves an old and a new file side by side.
  void Publish();

  int64_t documents() const { return static_cast<int64_t>(document_indices_.size()) - 1; }
  int64_t tokens() const { return tokens_; }

 private:
  void WriteIndex();

  std::string prefix_, bin_temporary_, idx_temporary_;
  TokenType type_;
  std::unique_ptr<FileWriter> bin_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> offsets_;           // bytes
  std::vector<int64_t> document_indices_;  // begins with 0
  std::vector<char> buffer_;
  int64_t sequence_tokens_ = 0, tokens_ = 0;
  bool finished_ = false, published_ = false;
};

}  // namespace yardmaster
