// File: src/data/megatron_index.h
//
// Reader of tokenised text in Megatron's format: PREFIX.bin holds the tokens without a header, PREFIX.idx
// says where sequences and documents begin. Both are memory-mapped; nothing of their size is copied.
//
// PREFIX.idx, little-endian and packed (the arrays begin at byte 34, so they are unaligned: read with
// memcpy):
//   0   9 bytes  "MMIDIDX\0\0"
//   9   u64      version, 1
//   17  u8       token type: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16 (6 and 7 are floats: refused)
//   18  u64      N, number of sequences
//   26  u64      D, number of document indices = documents + 1
//   34  N x i32  sequence lengths, in tokens
//       N x i64  sequence offsets in PREFIX.bin, in bytes
//       D x i64  first sequence of each document; the last entry is N
//       N x i8   modes, optional; 0 is text and all that is accepted
//
// The constructor checks all of it in one pass: the size fits N and D, sequences follow one another without
// gap or overlap and end where PREFIX.bin ends, every document has a sequence. So every index below is in
// range. Token ids are checked where they are read. What no check of the format can see is found by
// fingerprint.h.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/files.h"

namespace yardmaster {

enum class TokenType : uint8_t { kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kU16 = 8 };

int64_t TokenTypeBytes(TokenType type);
const char* TokenTypeName(TokenType type);

namespace megatron {
inline constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr uint64_t kVersion = 1;
inline constexpr uint64_t kVersionAt = 9, kTypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26,
                          kHeaderBytes = 34;
}  // namespace megatron

// "data/text.bin", "data/text.idx" and "data/text" all name the data set "data/text".
std::string DatasetPrefix(const std::string& path);

// Move-only. Reading is const and thread-safe. A file that is cut while it is mapped ends the process
// (SIGBUS).
class IndexedDataset {
 public:
  // Throws DataError with the file, the place in it, what was found and what was expected.
  IndexedDataset(const std::string& path, int64_t vocab_size);

  const std::string& prefix() const { return prefix_; }
  std::string idx_path() const { return prefix_ + ".idx"; }
  std::string bin_path() const { return prefix_ + ".bin"; }
  TokenType token_type() const { return type_; }
  int64_t vocab_size() const { return vocab_size_; }
  int64_t sequences() const { return sequences_; }
  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }

  // Places in the stream of all tokens in file order. The index one past the last gives tokens().
  int64_t SequenceBegin(int64_t sequence) const;
  int64_t DocumentBegin(int64_t document) const;
  int64_t SequenceTokens(int64_t sequence) const {
    return SequenceBegin(sequence + 1) - SequenceBegin(sequence);
  }
  int64_t DocumentTokens(int64_t document) const {
    return DocumentBegin(document + 1) - DocumentBegin(document);
  }

  // tokens[i] = token `begin + i` of the stream. Throws DataError with document and position for an id
  // outside [0, vocab_size).
  void Read(int64_t begin, int64_t count, int32_t* tokens) const;

 private:
  void ReadHeader();
  void CheckSequences() const;
  void CheckDocuments() const;
  void CheckModes() const;
  uint64_t OffsetsAt() const { return megatron::kHeaderBytes + 4 * static_cast<uint64_t>(sequences_); }
  uint64_t DocumentIndicesAt() const { return OffsetsAt() + 8 * static_cast<uint64_t>(sequences_); }
  [[noreturn]] void FailAt(uint64_t byte, const std::string& what) const;
  [[noreturn]] void FailToken(int64_t position, int64_t found) const;

  template <class T>
  T Load(uint64_t byte) const;
  template <class T>
  void ReadAs(int64_t begin, int64_t count, int32_t* tokens) const;

  std::string prefix_;
  MappedFile idx_, bin_;
  TokenType type_ = TokenType::kU16;
  int64_t vocab_size_ = 0, token_bytes_ = 0, sequences_ = 0, documents_ = 0, tokens_ = 0;
};

}  // namespace yardmaster
