// The rules hold in the source tree itself. Reads the real folders, not copies: a file that no
// BUILD file names yet is checked too. Its tag "external" runs it every time for that reason.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/lint/source_rules.h"

namespace yardmaster::lint {
namespace {

namespace fs = std::filesystem;

// WORKSPACE is among the test's data as a link into the tree.
fs::path Root() { return fs::canonical("WORKSPACE").parent_path(); }

std::vector<fs::path> SourceFiles(const fs::path& root) {
  std::vector<fs::path> files;
  for (const char* folder : {"src", "kernels", "tools", "tests", "scripts"}) {
    if (!fs::exists(root / folder)) {
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file()) {
        files.push_back(entry.path());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool IsText(const fs::path& path) {
  const std::string suffix = path.extension();
  return suffix == ".h" || suffix == ".cc" || suffix == ".cu" || suffix == ".cuh" ||
         suffix == ".sh" || suffix == ".bzl" || path.filename() == "BUILD";
}

TEST_CASE("the source tree keeps the rules") {
  const fs::path root = Root();
  int checked = 0;
  for (const fs::path& path : SourceFiles(root)) {
    if (!IsText(path)) {
      continue;
    }
    std::ifstream in(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    for (const Violation& violation : CheckFile(fs::relative(path, root).generic_string(), text)) {
      FAIL_CHECK(violation.ToString());
    }
    ++checked;
  }
  CHECK(checked > 10);
}

}  // namespace
}  // namespace yardmaster::lint
