#include "src/base/files.h"

#include <unistd.h>

#include <cstring>

#include "src/base/error.h"
#include "src/base/file_faults.h"
#include "tests/base/temp_dir.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

using testing::ScopedFaults;
using testing::TempDir;

// The exit code of the Error that `body` throws, or kOk.
template <class F>
ExitCode CodeOf(F&& body, std::string* text = nullptr) {
  try {
    body();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  return ExitCode::kOk;
}

std::string Pattern(size_t bytes) {
  std::string out(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>(i * 31 + i / 251);
  return out;
}

TEST_CASE("what is written is read, small and large, by copy and by map") {
  const TempDir dir;
  const std::string small = Pattern(100), large = Pattern(3 << 20);
  FileWriter writer(dir / "f");
  writer.Write(small);
  writer.Write(large);
  writer.Write(small);
  CHECK(writer.bytes_written() == 200 + large.size());
  writer.Close(true);
  CHECK(ReadFile(dir / "f") == small + large + small);
  MappedFile map(dir / "f");
  CHECK(map.size() == 200 + large.size());
  CHECK(std::memcmp(map.data() + 100, large.data(), large.size()) == 0);
  const MappedFile moved = std::move(map);
  CHECK(moved.size() == 200 + large.size());
  CHECK(FileSize(dir / "f") == moved.size());
}

TEST_CASE("an empty file maps to nothing; a missing file, a directory and a device are errors") {
  const TempDir dir;
  FileWriter(dir / "empty").Close(false);
  CHECK(MappedFile(dir / "empty").data() == nullptr);
  CHECK(MappedFile(dir / "empty").size() == 0);
  std::string text;
  CHECK(CodeOf([&] { MappedFile(dir / "no"); }, &text) == ExitCode::kData);
  CHECK(text.find(dir / "no") != std::string::npos);
  CHECK(CodeOf([&] { MappedFile{dir.path()}; }) == ExitCode::kData);
  CHECK(CodeOf([&] { MappedFile("/dev/null"); }) == ExitCode::kData);
  CHECK(CodeOf([&] { ReadFile(dir / "no"); }) == ExitCode::kData);
}

TEST_CASE("a full device is kDiskFull with the path and a hint") {
  if (!PathExists("/dev/full")) YM_SKIP("no /dev/full");
  std::string text;
  const ExitCode code = CodeOf(
      [] {
        FileWriter writer("/dev/full");
        writer.Write("x");
        writer.Close(false);
      },
      &text);
  CHECK(code == ExitCode::kDiskFull);
  CHECK(text.find("/dev/full") != std::string::npos);
  CHECK(text.find("hint") != std::string::npos);
}

TEST_CASE("interrupted and short writes lose nothing") {
  const TempDir dir;
  const std::string data = Pattern(20000);
  for (const char* fault : {"op=write,nth=1,count=3,error=EINTR", "max_write=7", "op=fsync,nth=1,error=EINTR",
                            "op=close,nth=1,error=EINTR", "op=open,nth=1,error=EINTR"}) {
    INFO(fault);
    const ScopedFaults faults{std::string(fault)};
    FileWriter writer(dir / "f");
    writer.Write(data);
    writer.Close(true);
    CHECK(ReadFile(dir / "f") == data);
  }
}

TEST_CASE("every failing operation is an error of its kind") {
  const TempDir dir;
  const auto write = [&] {
    FileWriter writer(dir / "f");
    writer.Write("text");
    writer.Close(true);
  };
  for (const char* op : {"open", "write", "fsync", "close"}) {
    INFO(op);
    std::string text;
    {
      const ScopedFaults faults(std::string("op=") + op + ",nth=1,error=ENOSPC");
      CHECK(CodeOf(write) == ExitCode::kDiskFull);
      CHECK(FileFaultHits() == 1);
      CHECK(CodeOf(write) == ExitCode::kOk);
    }
    {
      const ScopedFaults faults(std::string("op=") + op + ",nth=1,error=EDQUOT");
      CHECK(CodeOf(write, &text) == ExitCode::kDiskFull);
      CHECK(text.find("quota") != std::string::npos);
    }
    {
      const ScopedFaults faults(std::string("op=") + op + ",nth=1,error=EIO");
      CHECK(CodeOf(write) == ExitCode::kData);
    }
  }
  const ScopedFaults other("op=write,match=somewhere_else,nth=1");
  CHECK(CodeOf(write) == ExitCode::kOk);
  CHECK(FileFaultHits() == 0);
}

TEST_CASE("a disk that takes so many bytes takes exactly those") {
  const TempDir dir;
  const ScopedFaults faults("allow_bytes=10");
  FileWriter writer(dir / "f");
  writer.Write("0123456789abc");
  CHECK(CodeOf([&] { writer.Close(true); }) == ExitCode::kDiskFull);
  CHECK(ReadFile(dir / "f") == "0123456789");
}

TEST_CASE("an atomic write leaves the old text or the new one, and nothing else") {
  const TempDir dir;
  WriteFileAtomically(dir / "LATEST", "old");
  for (int nth = 1;; ++nth) {
    INFO("operation " << nth);
    REQUIRE(nth < 20);
    bool failed;
    {
      const ScopedFaults faults("error=EIO,nth=" + std::to_string(nth));
      failed = CodeOf([&] { WriteFileAtomically(dir / "LATEST", "new"); }) != ExitCode::kOk;
    }
    const std::string now = ReadFile(dir / "LATEST");
    CHECK((now == "old" || now == "new"));
    CHECK(ListDirectory(dir.path()) == std::vector<std::string>{"LATEST"});
    if (!failed) {
      CHECK(now == "new");
      CHECK(nth > 4);  // open, write, fsync, close and rename at least
      break;
    }
    WriteFileAtomically(dir / "LATEST", "old");
  }
}

TEST_CASE("directories are made, listed, renamed, exchanged and removed") {
  const TempDir dir;
  MakeDirectories(dir / "a/b/c");
  MakeDirectories(dir / "a/b/c");
  WriteFileAtomically(dir / "a/b/c/f", "1");
  WriteFileAtomically(dir / "a/z", "2");
  FsyncDirectory(dir / "a");
  CHECK(ListDirectory(dir / "a") == std::vector<std::string>{"b", "z"});
  CHECK(ListDirectory(dir / "none").empty());
  CHECK(CodeOf([&] { MakeDirectories(dir / "a/z/d"); }) == ExitCode::kConfig);
  MakeDirectories(dir / "other");
  if (ExchangePaths(dir / "a", dir / "other")) {
    CHECK(ReadFile(dir / "other/z") == "2");
    CHECK(ListDirectory(dir / "a").empty());
  }
  RenamePath(dir / "other", dir / "moved");
  CHECK_FALSE(PathExists(dir / "other"));
  CHECK(CodeOf([&] { RenamePath(dir / "other", dir / "x"); }) == ExitCode::kConfig);
  RemoveTree(dir / "moved");
  RemoveTree(dir / "moved");
  CHECK_FALSE(PathExists(dir / "moved"));
  CHECK(FreeBytes(dir / "not/there/yet") > 0);
}

TEST_CASE("a place without permission is a config error") {
  if (::geteuid() == 0) {
    CHECK(CodeOf([] { FileWriter("/proc/nope"); }) == ExitCode::kConfig);
    return;
  }
  CHECK(CodeOf([] { FileWriter("/nope"); }) == ExitCode::kConfig);
}

TEST_CASE("paths are joined and split") {
  CHECK(JoinPath("a", "b") == "a/b");
  CHECK(JoinPath("a/", "b") == "a/b");
  CHECK(JoinPath("", "b") == "b");
  CHECK(JoinPath("a", "/b") == "/b");
  CHECK(JoinPath("a", "") == "a");
  CHECK(BaseName("/x/y.txt") == "y.txt");
  CHECK(BaseName("y") == "y");
  CHECK(BaseName("/x/y/") == "y");
  CHECK(BaseName("/") == "/");
  CHECK(DirName("/x/y.txt") == "/x");
  CHECK(DirName("/x/y/") == "/x");
  CHECK(DirName("/x") == "/");
  CHECK(DirName("x") == ".");
}

TEST_CASE("faults in text are understood or refused") {
  const FileFaults faults = ParseFileFaults("op=rename,match=step_,nth=2,count=-1,error=EDQUOT,kill");
  CHECK(faults.op == "rename");
  CHECK(faults.match == "step_");
  CHECK(faults.nth == 2);
  CHECK(faults.count == -1);
  CHECK(faults.error == EDQUOT);
  CHECK(faults.kill);
  CHECK(ParseFileFaults("error=5").error == 5);
  CHECK_THROWS_AS(ParseFileFaults("op=writ"), Error);
  CHECK_THROWS_AS(ParseFileFaults("nth=x"), Error);
  CHECK_THROWS_AS(ParseFileFaults("what"), Error);
}

}  // namespace
}  // namespace yardmaster
