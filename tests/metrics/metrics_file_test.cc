#include "src/metrics/metrics_file.h"

#include "src/base/error.h"
#include "src/base/file_faults.h"
#include "src/base/files.h"
#include "tests/base/temp_dir.h"
#include "tests/catch.h"

namespace yardmaster::testing {
namespace {

constexpr char kOne[] = "{\"step\":1,\"loss\":2.5}\n", kTwo[] = "{\"step\":2,\"loss\":2.25}\n",
               kEvaluation[] = "{\"step\":2,\"val_loss\":2.0}\n",
               kThree[] = "{\"step\":3,\"loss\":2.0}\n";

TEST_CASE("metrics are cut back to the resumed step, and appended to") {
  const TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  WriteFileAtomically(path, std::string(kOne) + kTwo + kEvaluation + kThree);
  {
    MetricsFile file(path, 2);
    CHECK(file.damage().empty());
    CHECK(file.last_evaluation() == 2);
    file.Append(kThree);
  }
  CHECK(ReadFile(path) == std::string(kOne) + kTwo + kEvaluation + kThree);
  const MetricsFile fresh(path, 0);
  CHECK(ReadFile(path).empty());
  CHECK(fresh.last_evaluation() == -1);
}

TEST_CASE("a torn last line goes quietly, any other damage is told with its place") {
  const TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  WriteFileAtomically(path, std::string(kOne) + "{\"step\":2,\"lo");
  CHECK(MetricsFile(path, 2).damage().empty());
  CHECK(ReadFile(path) == kOne);

  // A line that lost its end, together with the begin of the next; a record without a step.
  WriteFileAtomically(path, std::string(kOne) + "{\"step\":2,\"lo{\"step\":3,\"loss\":2.0}\n" +
                                "{\"loss\":1}\n" + kThree);
  const MetricsFile file(path, 3);
  CHECK(file.damage() == path + ": 2 lines are no records and were dropped, first line 2");
  CHECK(ReadFile(path) == std::string(kOne) + kThree);

  WriteFileAtomically(path, std::string("\n") + kOne);
  CHECK(MetricsFile(path, 3).damage() ==
        path + ": 1 line is no record and was dropped, first line 1");
}

TEST_CASE("a full disk stops a record, and says where") {
  const TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  MetricsFile file(path, 0);
  FileFaults faults;
  faults.match = "metrics.jsonl";
  faults.max_write = 5;  // short writes are gone on with
  SetFileFaults(faults);
  file.Append(kOne);
  faults.allow_bytes = 4;
  SetFileFaults(faults);
  std::string message;
  ExitCode code = ExitCode::kOk;
  try {
    file.Append(kTwo);
  } catch (const Error& e) {
    message = e.what();
    code = e.code();
  }
  ClearFileFaults();
  CHECK(code == ExitCode::kDiskFull);
  CHECK(message.find(path) != std::string::npos);
  CHECK(ReadFile(path) == std::string(kOne) + std::string(kTwo).substr(0, 4));
}

}  // namespace
}  // namespace yardmaster::testing
