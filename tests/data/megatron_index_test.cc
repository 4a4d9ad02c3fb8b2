#include "src/data/megatron_index.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <limits>

#include "src/data/megatron_writer.h"
#include "tests/catch.h"
#include "tests/data/data_test_util.h"

namespace yardmaster {
namespace {

using testing::DataErrorOf;
using testing::Documents;
using testing::HasText;
using testing::TempDir;
using testing::WriteBytes;
using testing::WriteDataset;

template <class T>
T LoadAt(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

template <class T>
std::string Patched(std::string bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
  return bytes;
}

std::string OpenError(const std::string& prefix) {
  return DataErrorOf([&] { IndexedDataset(prefix, 257); });
}

std::vector<int32_t> ReadAll(const IndexedDataset& data) {
  std::vector<int32_t> tokens(static_cast<size_t>(data.tokens()));
  data.Read(0, data.tokens(), tokens.data());
  return tokens;
}

}  // namespace

TEST_CASE("the writer's bytes are Megatron's") {
  const TempDir dir;
  WriteDataset(dir / "d", {{1, 2, 3}, {4, 5}});
  const std::string idx = ReadFile(dir / "d.idx"), bin = ReadFile(dir / "d.bin");

  REQUIRE(idx.size() == 82);
  CHECK(idx.substr(0, 9) == std::string("MMIDIDX\0\0", 9));
  CHECK(LoadAt<uint64_t>(idx, 9) == 1);
  CHECK(LoadAt<uint8_t>(idx, 17) == 8);
  CHECK(LoadAt<uint64_t>(idx, 18) == 2);
  CHECK(LoadAt<uint64_t>(idx, 26) == 3);
  CHECK(LoadAt<int32_t>(idx, 34) == 3);
  CHECK(LoadAt<int32_t>(idx, 38) == 2);
  CHECK(LoadAt<int64_t>(idx, 42) == 0);
  CHECK(LoadAt<int64_t>(idx, 50) == 6);
  CHECK(LoadAt<int64_t>(idx, 58) == 0);
  CHECK(LoadAt<int64_t>(idx, 66) == 1);
  CHECK(LoadAt<int64_t>(idx, 74) == 2);
  CHECK(bin == std::string("\1\0\2\0\3\0\4\0\5\0", 10));
}

TEST_CASE("every integer token type makes the round trip") {
  const TempDir dir;
  const Documents documents = {{1, 2, 3, 100}, {0}, {127, 5}};
  const TokenType types[] = {TokenType::kU8,  TokenType::kI8,  TokenType::kI16,
                             TokenType::kI32, TokenType::kI64, TokenType::kU16};
  for (const TokenType type : types) {
    CAPTURE(TokenTypeName(type));
    WriteDataset(dir / "d", documents, type);
    for (const char* name : {"d", "d.bin", "d.idx"}) {
      const IndexedDataset data(dir / name, 128);
      CHECK(data.token_type() == type);
      CHECK(data.documents() == 3);
      CHECK(data.sequences() == 3);
      CHECK(data.tokens() == 7);
      CHECK(data.DocumentBegin(2) == 5);
      CHECK(data.DocumentBegin(3) == 7);
      CHECK(data.DocumentTokens(0) == 4);
      CHECK(ReadAll(data) == testing::Concatenated(documents));
      int32_t two[2];
      data.Read(3, 2, two);
      CHECK(two[0] == 100);
      CHECK(two[1] == 0);
    }
  }
}

TEST_CASE("large token ids of wide types") {
  const TempDir dir;
  WriteDataset(dir / "d", {{128999, 0, 65536}}, TokenType::kI32);
  CHECK(ReadAll(IndexedDataset(dir / "d", 129000)) == std::vector<int32_t>{128999, 0, 65536});
  WriteDataset(dir / "d", {{65535, 32768}}, TokenType::kU16);
  CHECK(ReadAll(IndexedDataset(dir / "d", 65536)) == std::vector<int32_t>{65535, 32768});
}

TEST_CASE("documents of several sequences, and modes of text") {
  const TempDir dir;
  IndexedDatasetWriter writer(dir / "d", TokenType::kU16);
  const int32_t tokens[] = {1, 2, 3, 4, 5, 6};
  writer.Append(tokens, 2);
  writer.EndSequence();
  writer.Append(tokens + 2, 1);
  writer.EndDocument();
  writer.Append(tokens + 3, 3);
  writer.EndDocument();
  writer.Finish();
  writer.Publish();
  const auto check = [&] {
    const IndexedDataset data(dir / "d", 257);
    CHECK(data.sequences() == 3);
    CHECK(data.documents() == 2);
    CHECK(data.SequenceTokens(1) == 1);
    CHECK(data.DocumentTokens(0) == 3);
    CHECK(data.DocumentTokens(1) == 3);
  };
  check();
  const std::string idx = ReadFile(dir / "d.idx");
  WriteBytes(dir / "d.idx", idx + std::string(3, '\0'));
  check();
  WriteBytes(dir / "d.idx", idx + std::string("\0\1\0", 3));
  CHECK_THAT(OpenError(dir / "d"), HasText("d.idx") && HasText("sequence 1 has mode 1"));
}

TEST_CASE("a token outside of the vocabulary is named with its document and position") {
  const TempDir dir;
  WriteDataset(dir / "d", {{1, 2, 3}, {4, 300, 5}}, TokenType::kU16);
  const IndexedDataset data(dir / "d", 257);
  int32_t tokens[6];
  data.Read(0, 4, tokens);
  CHECK_THAT(DataErrorOf([&] { data.Read(0, 6, tokens); }),
             HasText("d.bin") && HasText("document 1, token 1 (byte 8)") && HasText("300") && HasText("256"));

  WriteDataset(dir / "d", {{1, -1}}, TokenType::kI16);
  CHECK_THAT(DataErrorOf([&] { ReadAll(IndexedDataset(dir / "d", 257)); }), HasText("found token -1"));
}

TEST_CASE("each broken field is named") {
  const TempDir dir;
  const std::string prefix = dir / "d";
  WriteDataset(prefix, {{1, 2, 3}, {4, 5}});
  const std::string idx = ReadFile(prefix + ".idx"), bin = ReadFile(prefix + ".bin");
  struct Case {
    std::string idx, expected;
  };
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const Case cases[] = {
      {"", "byte 0: the file ends here"},
      {idx.substr(0, 33), "byte 33: the file ends here; the header alone has 34 bytes"},
      {Patched<char>(idx, 2, 'X'), "found 4d 4d 58"},
      {Patched<uint64_t>(idx, 9, 2), "byte 9: found version 2, expected 1"},
      {Patched<uint8_t>(idx, 17, 0), "byte 17: found token type 0"},
      {Patched<uint8_t>(idx, 17, 9), "byte 17: found token type 9"},
      {Patched<uint8_t>(idx, 17, 6), "byte 17: found type 6, floating-point"},
      {Patched<uint8_t>(idx, 17, 7), "byte 17: found type 7, floating-point"},
      {Patched<uint8_t>(idx, 17, 4), "is not a multiple of the 4 bytes"},
      {Patched<uint64_t>(idx, 18, 3), "byte 82: the file ends here; 3 sequences"},
      {Patched<uint64_t>(idx, 18, ~uint64_t{0}), "byte 18: found 18446744073709551615 sequences"},
      {Patched<uint64_t>(idx, 18, uint64_t{1} << 62), "byte 18: found 4611686018427387904 sequences"},
      {Patched<uint64_t>(idx, 26, 0), "byte 26: found 0 document indices"},
      {Patched<uint64_t>(idx, 26, 4), "byte 82: the file ends here"},
      {Patched<uint64_t>(idx, 26, uint64_t{1} << 61), "byte 26: found 2305843009213693952 document indices"},
      {idx.substr(0, 81), "byte 81: the file ends here; 2 sequences and 3 document indices take 82 bytes"},
      {idx + "x", "byte 83: the file ends here"},
      {Patched<int32_t>(idx, 38, -2), "byte 38: sequence 1 has the negative length -2"},
      {Patched<int32_t>(idx, 34, 4), "byte 50: sequence 1 begins at byte 6 of the .bin file; expected 8"},
      {Patched<int32_t>(idx, 38, 3), "byte 38: sequence 1 has 3 tokens and would end at byte 12"},
      {Patched<int32_t>(idx, 38, std::numeric_limits<int32_t>::max()), "byte 38: sequence 1 has 2147483647"},
      {Patched<int32_t>(idx, 38, 1), "d.bin: has 10 bytes; the 2 sequences"},
      {Patched<int64_t>(idx, 42, 2), "byte 42: sequence 0 begins at byte 2"},
      {Patched<int64_t>(idx, 50, 4), "byte 50: sequence 1 begins at byte 4"},
      {Patched<int64_t>(idx, 50, -6), "byte 50: sequence 1 begins at byte -6"},
      {Patched<int64_t>(idx, 50, huge), "byte 50: sequence 1 begins at byte 9223372036854775807"},
      {Patched<int64_t>(idx, 58, 1), "byte 58: the first document begins at sequence 1, expected 0"},
      {Patched<int64_t>(idx, 66, 2), "byte 74: document index 2 is sequence 2, expected above 2"},
      {Patched<int64_t>(idx, 66, 0), "byte 66: document index 1 is sequence 0, expected above 0"},
      {Patched<int64_t>(idx, 66, huge), "byte 66: document index 1 is sequence 9223372036854775807"},
      {Patched<int64_t>(idx, 66, -1), "byte 66: document index 1 is sequence -1"},
      {Patched<int64_t>(idx, 74, 1),
       "byte 74: the last document index is 1, expected the number of sequences, 2"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.expected);
    WriteBytes(prefix + ".idx", c.idx);
    CHECK_THAT(OpenError(prefix), HasText(prefix) && HasText(c.expected));
  }

  WriteBytes(prefix + ".idx", idx);
  CHECK(OpenError(prefix) == "");
  for (const size_t size : {0, 4, 8, 9}) {
    WriteBytes(prefix + ".bin", bin.substr(0, size));
    CHECK_THAT(OpenError(prefix), HasText(prefix));
  }
  WriteBytes(prefix + ".bin", bin + "ab");
  CHECK_THAT(OpenError(prefix), HasText("d.bin: has 12 bytes; the 2 sequences"));
}

TEST_CASE("files that are missing or are no files") {
  const TempDir dir;
  CHECK_THAT(OpenError(dir / "none"), HasText("none.idx") && HasText("no such file"));
  CHECK_THAT(OpenError("0.5 a 0.5 b"), HasText("blends"));
  WriteDataset(dir / "d", {{1, 2}});
  RemoveTree(dir / "d.bin");
  CHECK_THAT(OpenError(dir / "d"), HasText("d.bin"));
  MakeDirectories(dir / "d.bin");
  CHECK_THAT(OpenError(dir / "d"), HasText("d.bin"));
}

TEST_CASE("an empty data set is valid and holds nothing") {
  const TempDir dir;
  WriteDataset(dir / "d", {});
  const IndexedDataset data(dir / "d", 257);
  CHECK(data.documents() == 0);
  CHECK(data.tokens() == 0);
  data.Read(0, 0, nullptr);
}

TEST_CASE("the writer refuses what the format cannot say, and leaves nothing behind") {
  const TempDir dir;
  {
    IndexedDatasetWriter writer(dir / "d", TokenType::kU8);
    const int32_t wide[] = {1, 256};
    CHECK_THAT(DataErrorOf([&] { writer.Append(wide, 2); }),
               HasText("token 256 does not fit the type u8") && HasText("token 1"));
    CHECK_THAT(DataErrorOf([&] { writer.EndDocument(); }), HasText("no tokens"));
  }
  CHECK(ListDirectory(dir.path()).empty());
  {
    IndexedDatasetWriter writer(dir / "d", TokenType::kU8);
    const int32_t token = 7;
    writer.Append(&token, 1);
    CHECK_THROWS_AS(writer.Finish(), InternalError);  // the document is open
    writer.EndDocument();
    writer.Finish();
    CHECK_FALSE(PathExists(dir / "d.bin"));
    writer.Publish();
  }
  CHECK(ListDirectory(dir.path()) == std::vector<std::string>{"d.bin", "d.idx"});
}

TEST_CASE("more than 2^31 tokens") {
  // 5 documents of 2^29 + 7 tokens: 2.7 billion tokens, 5.4 GB, nearly all of it a hole in the file.
  const TempDir dir;
  const int64_t documents = 5, length = (int64_t{1} << 29) + 7, tokens = documents * length;
  std::string idx(megatron::kMagic, sizeof(megatron::kMagic));
  const auto append = [&](auto value) { idx.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  append(megatron::kVersion);
  append(static_cast<uint8_t>(TokenType::kU16));
  append(uint64_t{5});
  append(uint64_t{6});
  for (int64_t d = 0; d < documents; ++d) append(static_cast<int32_t>(length));
  for (int64_t d = 0; d < documents; ++d) append(2 * d * length);
  for (int64_t d = 0; d <= documents; ++d) append(d);
  WriteBytes(dir / "d.idx", idx);
  const int fd = open((dir / "d.bin").c_str(), O_CREAT | O_WRONLY, 0600);
  REQUIRE(fd >= 0);
  REQUIRE(ftruncate(fd, 2 * tokens) == 0);
  const uint16_t mark = 200, bad = 999;
  REQUIRE(pwrite(fd, &mark, 2, 2 * (tokens - 1)) == 2);
  REQUIRE(pwrite(fd, &mark, 2, 2 * (4 * length)) == 2);
  REQUIRE(pwrite(fd, &bad, 2, 2 * (4 * length + 3)) == 2);
  REQUIRE(close(fd) == 0);

  const IndexedDataset data(dir / "d", 257);
  CHECK(data.tokens() == tokens);
  CHECK(data.DocumentBegin(4) == 4 * length);
  int32_t read[4] = {-1, -1, -1, -1};
  data.Read(tokens - 2, 2, read);
  CHECK(read[0] == 0);
  CHECK(read[1] == 200);
  data.Read(4 * length - 1, 3, read);
  CHECK(read[1] == 200);
  CHECK_THAT(DataErrorOf([&] { data.Read(4 * length, 4, read); }),
             HasText("document 4, token 3 (byte 4294967358)"));
}

}  // namespace yardmaster
