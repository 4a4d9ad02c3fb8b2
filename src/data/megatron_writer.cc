#include "src/data/megatron_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "src/base/check.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

// Narrows `count` tokens into `out`; returns the first that does not fit, or -1.
template <class T>
int64_t Narrow(const int32_t* tokens, int64_t count, char* out) {
  for (int64_t i = 0; i < count; ++i) {
    const T value = static_cast<T>(tokens[i]);
    if (static_cast<int64_t>(value) != tokens[i]) return i;
    std::memcpy(out + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
  return -1;
}

int64_t Narrow(TokenType type, const int32_t* tokens, int64_t count, char* out) {
  switch (type) {
    case TokenType::kU8:
      return Narrow<uint8_t>(tokens, count, out);
    case TokenType::kI8:
      return Narrow<int8_t>(tokens, count, out);
    case TokenType::kI16:
      return Narrow<int16_t>(tokens, count, out);
    case TokenType::kU16:
      return Narrow<uint16_t>(tokens, count, out);
    case TokenType::kI32:
      return Narrow<int32_t>(tokens, count, out);
    case TokenType::kI64:
      return Narrow<int64_t>(tokens, count, out);
  }
  return 0;
}

}  // namespace

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, TokenType type)
    : prefix_(prefix),
      bin_temporary_(StrCat(prefix, ".bin.tmp.", getpid())),  // the pid: two writers at once do not mix
      idx_temporary_(StrCat(prefix, ".idx.tmp.", getpid())),
      type_(type),
      document_indices_{0} {
  MakeDirectories(DirName(prefix));
  bin_ = std::make_unique<FileWriter>(bin_temporary_);
}

IndexedDatasetWriter::~IndexedDatasetWriter() {
  if (published_) return;
  bin_.reset();
  std::remove(bin_temporary_.c_str());
  std::remove(idx_temporary_.c_str());
}

void IndexedDatasetWriter::Append(const int32_t* tokens, int64_t count) {
  constexpr int64_t kLongest = std::numeric_limits<int32_t>::max();
  constexpr int64_t kChunk = 1 << 16;
  YM_CHECK(!finished_, "after Finish()");
  const int64_t bytes = TokenTypeBytes(type_);
  for (int64_t done = 0; done < count;) {
    if (sequence_tokens_ == kLongest) EndSequence();
    const int64_t n = std::min({count - done, kChunk, kLongest - sequence_tokens_});
    buffer_.resize(static_cast<size_t>(n * bytes));
    const int64_t bad = Narrow(type_, tokens + done, n, buffer_.data());
    if (bad >= 0) {
      throw DataError(StrCat("token ", tokens[done + bad], " does not fit the type ", TokenTypeName(type_)),
                      StrCat(prefix_, ".bin: token ", tokens_ + bad), "write a wider token type");
    }
    bin_->Write(buffer_.data(), buffer_.size());
    done += n, sequence_tokens_ += n, tokens_ += n;
  }
}

void IndexedDatasetWriter::EndSequence() {
  offsets_.push_back((tokens_ - sequence_tokens_) * TokenTypeBytes(type_));
  lengths_.push_back(static_cast<int32_t>(sequence_tokens_));
  sequence_tokens_ = 0;
}

void IndexedDatasetWriter::EndDocument() {
  if (sequence_tokens_ > 0) EndSequence();
  const int64_t sequences = static_cast<int64_t>(lengths_.size());
  if (sequences == document_indices_.back()) {
    throw DataError("the document has no tokens", StrCat(prefix_, ".idx: document ", documents()));
  }
  document_indices_.push_back(sequences);
}

void IndexedDatasetWriter::WriteIndex() {
  FileWriter out(idx_temporary_);
  const auto write_u64 = [&](uint64_t value) { out.Write(&value, sizeof(value)); };
  const uint8_t type = static_cast<uint8_t>(type_);
  out.Write(megatron::kMagic, sizeof(megatron::kMagic));
  write_u64(megatron::kVersion);
  out.Write(&type, 1);
  write_u64(lengths_.size());
  write_u64(document_indices_.size());
  out.Write(lengths_.data(), lengths_.size() * sizeof(int32_t));
  out.Write(offsets_.data(), offsets_.size() * sizeof(int64_t));
  out.Write(document_indices_.data(), document_indices_.size() * sizeof(int64_t));
  out.Close(/*fsync=*/true);
}

void IndexedDatasetWriter::Finish() {
  YM_CHECK(!finished_, "Finish() twice");
  YM_CHECK(sequence_tokens_ == 0 && static_cast<int64_t>(lengths_.size()) == document_indices_.back(),
           "a document is still open");
  bin_->Close(/*fsync=*/true);
  WriteIndex();
  finished_ = true;
}

void IndexedDatasetWriter::Publish() {
  YM_CHECK(finished_ && !published_, "Publish() needs Finish() and is called once");
  RemoveTree(prefix_ + ".idx");
  RenamePath(bin_temporary_, prefix_ + ".bin");
  RenamePath(idx_temporary_, prefix_ + ".idx");
  published_ = true;
  FsyncDirectory(DirName(prefix_));
}

}  // namespace yardmaster
