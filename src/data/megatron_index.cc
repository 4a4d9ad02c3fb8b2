#include "src/data/megatron_index.h"

#include <bit>
#include <cstring>
#include <string_view>

#include "src/base/check.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr const char* kDamagedHint =
    "the file is damaged or was not written by Megatron's or Yardmaster's tokenizer";

MappedFile Map(const std::string& prefix, const char* suffix) {
  const std::string path = prefix + suffix;
  if (!PathExists(path)) {
    const bool blend = prefix.find_first_of(" ,") != std::string::npos;
    throw DataError("no such file", path,
                    blend ? "one data set is read; blends of several by weight are not supported"
                          : "a data set is a pair PREFIX.bin and PREFIX.idx; yardmaster tokenize makes one");
  }
  return MappedFile(path);
}

}  // namespace

int64_t TokenTypeBytes(TokenType type) {
  switch (type) {
    case TokenType::kU8:
    case TokenType::kI8:
      return 1;
    case TokenType::kI16:
    case TokenType::kU16:
      return 2;
    case TokenType::kI32:
      return 4;
    case TokenType::kI64:
      return 8;
  }
  return 0;
}

const char* TokenTypeName(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return "u8";
    case TokenType::kI8:
      return "i8";
    case TokenType::kI16:
      return "i16";
    case TokenType::kU16:
      return "u16";
    case TokenType::kI32:
      return "i32";
    case TokenType::kI64:
      return "i64";
  }
  return "?";
}

std::string DatasetPrefix(const std::string& path) {
  const std::string_view view = path;
  const bool suffixed = view.ends_with(".bin") || view.ends_with(".idx");
  return suffixed ? path.substr(0, path.size() - 4) : path;
}

IndexedDataset::IndexedDataset(const std::string& path, int64_t vocab_size)
    : prefix_(DatasetPrefix(path)),
      idx_(Map(prefix_, ".idx")),
      bin_(Map(prefix_, ".bin")),
      vocab_size_(vocab_size) {
  YM_CHECK(vocab_size > 0 && vocab_size <= int64_t{1} << 31, "vocabulary of ", vocab_size);
  ReadHeader();
  CheckSequences();
  CheckDocuments();
  CheckModes();
}

template <class T>
T IndexedDataset::Load(uint64_t byte) const {
  T value;
  std::memcpy(&value, idx_.data() + byte, sizeof(T));
  return value;
}

void IndexedDataset::FailAt(uint64_t byte, const std::string& what) const {
  throw DataError(what, StrCat(idx_path(), ": byte ", byte), kDamagedHint);
}

// Afterwards the three counts are known and the file is long enough for the arrays they announce.
void IndexedDataset::ReadHeader() {
  const uint64_t size = idx_.size();
  if (size < megatron::kHeaderBytes) {
    FailAt(size, StrCat("the file ends here; the header alone has ", megatron::kHeaderBytes, " bytes"));
  }
  if (std::memcmp(idx_.data(), megatron::kMagic, sizeof(megatron::kMagic)) != 0) {
    std::string found;
    for (size_t i = 0; i < sizeof(megatron::kMagic); ++i) found += StrFormat("%02x ", Load<uint8_t>(i));
    FailAt(0, StrCat("found ", found, "where 4d 4d 49 44 49 44 58 00 00 (\"MMIDIDX\") was expected"));
  }
  const uint64_t version = Load<uint64_t>(megatron::kVersionAt);
  if (version != megatron::kVersion) {
    FailAt(megatron::kVersionAt, StrCat("found version ", version, ", expected ", megatron::kVersion));
  }
  const int type = Load<uint8_t>(megatron::kTypeAt);
  if (type == 6 || type == 7) {
    FailAt(megatron::kTypeAt,
           StrCat("found type ", type, ", floating-point numbers; expected integer tokens"));
  }
  if (type < 1 || type > 8) {
    FailAt(megatron::kTypeAt,
           StrCat("found token type ", type, ", expected 1 u8, 2 i8, 3 i16, 4 i32, 5 i64 or 8 u16"));
  }
  type_ = static_cast<TokenType>(type);
  token_bytes_ = TokenTypeBytes(type_);

  const uint64_t n = Load<uint64_t>(megatron::kSequencesAt), d = Load<uint64_t>(megatron::kDocumentsAt);
  const uint64_t room = size - megatron::kHeaderBytes;
  if (n > room / 12) {  // also keeps the sums below from overflowing
    FailAt(megatron::kSequencesAt,
           StrCat("found ", n, " sequences of 12 bytes each, but only ", room, " bytes follow the header"));
  }
  if (d > room / 8) {
    FailAt(megatron::kDocumentsAt, StrCat("found ", d, " document indices of 8 bytes each, but only ", room,
                                          " bytes follow the header"));
  }
  if (d == 0) FailAt(megatron::kDocumentsAt, "found 0 document indices, expected documents + 1, at least 1");
  const uint64_t expected = megatron::kHeaderBytes + 12 * n + 8 * d;
  if (size != expected && size != expected + n) {
    FailAt(size, StrCat("the file ends here; ", n, " sequences and ", d, " document indices take ", expected,
                        " bytes, or ", expected + n, " with modes"));
  }
  sequences_ = static_cast<int64_t>(n);
  documents_ = static_cast<int64_t>(d) - 1;

  if (bin_.size() % static_cast<uint64_t>(token_bytes_) != 0) {
    throw DataError(StrCat("its size, ", bin_.size(), " bytes, is not a multiple of the ", token_bytes_,
                           " bytes of a token of type ", TokenTypeName(type_)),
                    bin_path(), kDamagedHint);
  }
  tokens_ = static_cast<int64_t>(bin_.size()) / token_bytes_;
}

void IndexedDataset::CheckSequences() const {
  const int64_t bin_bytes = static_cast<int64_t>(bin_.size());
  int64_t end = 0;  // bytes of PREFIX.bin that the sequences so far take; never above bin_bytes
  for (int64_t i = 0; i < sequences_; ++i) {
    const uint64_t length_at = megatron::kHeaderBytes + 4 * static_cast<uint64_t>(i);
    const uint64_t offset_at = OffsetsAt() + 8 * static_cast<uint64_t>(i);
    const int64_t length = Load<int32_t>(length_at), offset = Load<int64_t>(offset_at);
    if (length < 0) FailAt(length_at, StrCat("sequence ", i, " has the negative length ", length));
    if (offset != end) {
      FailAt(offset_at, StrCat("sequence ", i, " begins at byte ", offset, " of the .bin file; expected ",
                               end, ", where the sequence before it ends"));
    }
    if (length * token_bytes_ > bin_bytes - end) {
      FailAt(length_at,
             StrCat("sequence ", i, " has ", length, " tokens and would end at byte ",
                    end + length * token_bytes_, " of ", bin_path(), ", which has ", bin_bytes, " bytes"));
    }
    end += length * token_bytes_;
  }
  if (end != bin_bytes) {
    throw DataError(
        StrCat("has ", bin_bytes, " bytes; the ", sequences_, " sequences of ", idx_path(), " take ", end),
        bin_path(), kDamagedHint);
  }
}

void IndexedDataset::CheckDocuments() const {
  int64_t before = -1;
  for (int64_t d = 0; d <= documents_; ++d) {
    const uint64_t at = DocumentIndicesAt() + 8 * static_cast<uint64_t>(d);
    const int64_t first = Load<int64_t>(at);
    if (d == 0 && first != 0)
      FailAt(at, StrCat("the first document begins at sequence ", first, ", expected 0"));
    if (d == documents_ && first != sequences_) {
      FailAt(at, StrCat("the last document index is ", first, ", expected the number of sequences, ",
                        sequences_));
    }
    if (first <= before || first > sequences_) {
      FailAt(at, StrCat("document index ", d, " is sequence ", first, ", expected above ", before,
                        " and at most ", sequences_));
    }
    before = first;
  }
}

void IndexedDataset::CheckModes() const {
  const uint64_t begin = DocumentIndicesAt() + 8 * static_cast<uint64_t>(documents_ + 1);
  for (uint64_t at = begin; at < idx_.size(); ++at) {
    const int mode = Load<int8_t>(at);
    if (mode != 0)
      FailAt(at, StrCat("sequence ", at - begin, " has mode ", mode, "; only 0, text, is supported"));
  }
}

int64_t IndexedDataset::SequenceBegin(int64_t sequence) const {
  YM_CHECK(sequence >= 0 && sequence <= sequences_, "sequence ", sequence, " of ", sequences_);
  if (sequence == sequences_) return tokens_;
  return Load<int64_t>(OffsetsAt() + 8 * static_cast<uint64_t>(sequence)) / token_bytes_;
}

int64_t IndexedDataset::DocumentBegin(int64_t document) const {
  YM_CHECK(document >= 0 && document <= documents_, "document ", document, " of ", documents_);
  return SequenceBegin(Load<int64_t>(DocumentIndicesAt() + 8 * static_cast<uint64_t>(document)));
}

void IndexedDataset::FailToken(int64_t position, int64_t found) const {
  int64_t low = 0, high = documents_;  // DocumentBegin(low) <= position < DocumentBegin(high)
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (DocumentBegin(middle) <= position ? low : high) = middle;
  }
  throw DataError(StrCat("found token ", found, ", expected 0 to ", vocab_size_ - 1, " (model.vocab_size ",
                         vocab_size_, ")"),
                  StrCat(bin_path(), ": document ", low, ", token ", position - DocumentBegin(low), " (byte ",
                         position * token_bytes_, ")"),
                  "the data was made with another tokenizer, or it is damaged");
}

template <class T>
void IndexedDataset::ReadAs(int64_t begin, int64_t count, int32_t* tokens) const {
  const std::byte* from = bin_.data() + begin * token_bytes_;
  for (int64_t i = 0; i < count; ++i) {
    T token;
    std::memcpy(&token, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    // As unsigned, a negative id is above every vocabulary.
    if (static_cast<uint64_t>(static_cast<int64_t>(token)) >= static_cast<uint64_t>(vocab_size_))
        [[unlikely]] {
      FailToken(begin + i, token);
    }
    tokens[i] = static_cast<int32_t>(token);
  }
}

void IndexedDataset::Read(int64_t begin, int64_t count, int32_t* tokens) const {
  YM_CHECK(begin >= 0 && count >= 0 && begin <= tokens_ && count <= tokens_ - begin, "tokens [", begin, ", ",
           begin, " + ", count, ") of ", tokens_);
  switch (type_) {
    case TokenType::kU8:
      return ReadAs<uint8_t>(begin, count, tokens);
    case TokenType::kI8:
      return ReadAs<int8_t>(begin, count, tokens);
    case TokenType::kI16:
      return ReadAs<int16_t>(begin, count, tokens);
    case TokenType::kU16:
      return ReadAs<uint16_t>(begin, count, tokens);
    case TokenType::kI32:
      return ReadAs<int32_t>(begin, count, tokens);
    case TokenType::kI64:
      return ReadAs<int64_t>(begin, count, tokens);
  }
}

}  // namespace yardmaster
