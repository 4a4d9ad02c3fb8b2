#include "src/data/fingerprint.h"

#include <fcntl.h>
#include <unistd.h>

#include <set>

#include "tests/catch.h"
#include "tests/data/data_test_util.h"

namespace yardmaster {

using testing::DataErrorOf;
using testing::HasText;
using testing::TempDir;
using testing::WriteBytes;
using testing::WriteDataset;

TEST_CASE("any flipped bit of either file changes the fingerprint and is named") {
  const TempDir dir;
  const std::string prefix = dir / "d";
  WriteDataset(prefix, {{1, 2, 3, 200}, {4, 5}, {6}});
  const DatasetFingerprint saved = FingerprintDataset(prefix);
  CHECK_NOTHROW(CheckSameDataset(saved, FingerprintDataset(prefix + ".bin")));
  for (const std::string& path : {prefix + ".idx", prefix + ".bin"}) {
    const std::string original = ReadFile(path);
    std::set<std::string> seen, seen_by_crc;
    for (size_t bit = 0; bit < 8 * original.size(); ++bit) {
      std::string changed = original;
      changed[bit / 8] ^= static_cast<char>(1 << bit % 8);
      WriteBytes(path, changed);
      const std::string message = DataErrorOf([&] { CheckSameDataset(saved, FingerprintDataset(prefix)); });
      CHECK_THAT(message, HasText(path + ": the data changed"));
      seen.insert(FingerprintFile(path).sha256);
      seen_by_crc.insert(FingerprintFile(path, 0).sha256);
    }
    CHECK(seen.size() == 8 * original.size());
    CHECK(seen_by_crc.size() == 8 * original.size());
    WriteBytes(path, original);
  }
  CHECK_NOTHROW(CheckSameDataset(saved, FingerprintDataset(prefix)));
}

TEST_CASE("the fingerprint of a file of ordinary size is its SHA-256") {
  const TempDir dir;
  WriteBytes(dir / "abc", "abc");
  const FileFingerprint abc = FingerprintFile(dir / "abc");
  CHECK(abc.bytes == 3);
  CHECK(abc.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  WriteBytes(dir / "empty", "");
  CHECK(FingerprintFile(dir / "empty").sha256 ==
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_CASE("large files: changes in the first, a middle and the last chunk, and of length") {
  const TempDir dir;
  const std::string path = dir / "large";
  const uint64_t size = 2 * kFingerprintChunk + 12345;
  const int fd = open(path.c_str(), O_CREAT | O_WRONLY, 0600);
  REQUIRE(fd >= 0);
  REQUIRE(ftruncate(fd, static_cast<off_t>(size)) == 0);
  std::set<std::string> seen = {FingerprintFile(path, 1 << 20).sha256};
  const char one = 1, zero = 0;
  for (const uint64_t at : {uint64_t{0}, kFingerprintChunk - 1, kFingerprintChunk, size - 1}) {
    REQUIRE(pwrite(fd, &one, 1, static_cast<off_t>(at)) == 1);
    seen.insert(FingerprintFile(path, 1 << 20).sha256);
    REQUIRE(pwrite(fd, &zero, 1, static_cast<off_t>(at)) == 1);
  }
  REQUIRE(ftruncate(fd, static_cast<off_t>(size + 1)) == 0);
  seen.insert(FingerprintFile(path, 1 << 20).sha256);
  REQUIRE(close(fd) == 0);
  CHECK(seen.size() == 6);
}

TEST_CASE("a data set may move; what is missing or longer is named") {
  const TempDir dir;
  WriteDataset(dir / "a", {{1, 2}, {3}});
  const DatasetFingerprint saved = FingerprintDataset(dir / "a");
  RenamePath(dir / "a.idx", dir / "b.idx");
  RenamePath(dir / "a.bin", dir / "b.bin");
  CHECK_NOTHROW(CheckSameDataset(saved, FingerprintDataset(dir / "b")));
  WriteBytes(dir / "b.bin", ReadFile(dir / "b.bin") + "x");
  CHECK_THAT(DataErrorOf([&] { CheckSameDataset(saved, FingerprintDataset(dir / "b")); }),
             HasText("b.bin: 7 bytes") && HasText("was 6 bytes") && HasText("then at " + (dir / "a.bin")) &&
                 !HasText("b.idx"));
  CHECK_THAT(DataErrorOf([&] { FingerprintDataset(dir / "a"); }), HasText("a.idx"));
}

}  // namespace yardmaster
