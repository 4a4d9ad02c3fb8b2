#include "tests/lint/source_rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <regex>
#include <sstream>

namespace yardmaster::lint {
namespace {

constexpr int kMaxLines = 800;

struct Layer {
  std::string_view folder;
  int line;
};

constexpr std::array kLayers = {
    Layer{"kernels", 0},    Layer{"src/base", 1},   Layer{"src/tensor", 2},
    Layer{"src/config", 2}, Layer{"src/device", 3}, Layer{"src/parallel", 3},
    Layer{"src/ops", 4},    Layer{"src/comm", 4},   Layer{"src/nn", 5},
    Layer{"src/model", 6},  Layer{"src/optim", 7},  Layer{"src/checkpoint", 7},
    Layer{"src/hf", 7},     Layer{"src/data", 7},   Layer{"src/metrics", 7},
    Layer{"src/plan", 7},   Layer{"src/train", 8},  Layer{"tools", 9},
};

// Who may see the CUDA toolkit's headers, and kernels/, whose headers use its types.
constexpr std::array<std::string_view, 5> kCudaFolders = {
    "src/device/cuda", "src/ops/cuda", "src/comm/nccl", "src/comm/ep/cuda", "kernels"};

// The one view across a line: dispatch and combine are a permutation of rows around an exchange
// (on one rank the permutation alone), and that op's contract is in src/ops.
constexpr std::string_view kDispatchFolder = "src/comm/ep";
constexpr std::string_view kPermuteHeader = "src/ops/permute.h";

// The program's version is wanted in log files and checkpoints; the header includes nothing.
constexpr std::string_view kVersionHeader = "tools/bazel/version_info.h";

bool IsIn(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

template <typename Folders>
bool IsInAny(std::string_view path, const Folders& folders) {
  return std::any_of(folders.begin(), folders.end(),
                     [&](std::string_view folder) { return IsIn(path, folder); });
}

const Layer* LayerOf(std::string_view path) {
  for (const Layer& layer : kLayers) {
    if (IsIn(path, layer.folder)) {
      return &layer;
    }
  }
  return nullptr;
}

bool HasSuffix(std::string_view path, std::initializer_list<std::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(),
                     [&](std::string_view suffix) { return path.ends_with(suffix); });
}

// Code that is never part of the product: tests/, and tests and benchmarks beside the code.
bool IsTest(std::string_view path) {
  const std::string_view stem = path.substr(0, path.rfind('.'));
  return IsIn(path, "tests") || IsIn(path, "tools/bench") ||
         HasSuffix(stem, {"_test", "_bench", "_testing", "_test_util", "_test_main"});
}

bool IsCode(std::string_view path) { return HasSuffix(path, {".h", ".cc", ".cu", ".cuh"}); }

bool IsCudaHeader(std::string_view header) {
  static const std::regex pattern(
      R"((cuda|cub|thrust|cooperative_groups|nvtx3|cute|cutlass|nccl_device|crt)/.*)"
      R"(|(cuda|cublas|cudnn|nccl|nvtx|nvml|nvrtc|curand|cusparse|cusolver|cupti)[A-Za-z0-9_]*\.h(pp)?)"
      R"(|(cooperative_groups|device_launch_parameters|mma|sm_[0-9a-z_]+|math_constants|vector_types)\.h)");
  return std::regex_match(header.begin(), header.end(), pattern);
}

struct FileChecker {
  std::string_view path;
  std::vector<Violation>& out;

  void Add(int line, std::string message) const {
    out.push_back({std::string(path), line, std::move(message)});
  }

  void CheckQuoted(int line, std::string_view header) const;
  void CheckAngled(int line, std::string_view header) const;
  void CheckIncludes(const std::string& code) const;
  void CheckCalls(const std::string& code) const;
};

void FileChecker::CheckQuoted(int line, std::string_view header) const {
  const std::string quoted = "\"" + std::string(header) + "\"";
  const bool from_root = header.starts_with("src/") || header.starts_with("kernels/") ||
                         header.starts_with("tools/") || header.starts_with("tests/");
  if (!from_root) {
    Add(line, "includes " + quoted +
                  ": write the path from the repository root, or <> for a library's header");
    return;
  }
  if (IsTest(path) || header == kVersionHeader) {
    return;
  }
  if (IsTest(header)) {
    Add(line, "includes " + quoted + ": only tests include test code");
    return;
  }
  if (IsIn(path, "kernels") && !IsIn(header, "kernels")) {
    Add(line, "includes " + quoted + ": kernels/ includes nothing of src/");
    return;
  }
  const Layer* from = LayerOf(path);
  const Layer* to = LayerOf(header);
  if (to == nullptr) {
    Add(line, "includes " + quoted + ", whose folder is on no line of the layers (" __FILE__ ")");
    return;
  }
  if (from == nullptr) {
    return;  // said once for the file
  }
  if (IsIn(header, "kernels") && !IsInAny(path, kCudaFolders)) {
    Add(line, "includes " + quoted + ": only src/device/cuda, src/ops/cuda, src/comm/nccl and " +
                  "src/comm/ep/cuda call kernels/");
    return;
  }
  if (IsIn(path, kDispatchFolder) && header == kPermuteHeader) {
    return;
  }
  if (from->folder == to->folder || to->line < from->line) {
    return;
  }
  Add(line, "includes " + quoted + ": " + std::string(from->folder) + " is on line " +
                std::to_string(from->line) + ", " + std::string(to->folder) + " on line " +
                std::to_string(to->line) + "; only lower lines may be included");
}

void FileChecker::CheckAngled(int line, std::string_view header) const {
  const std::string name = "<" + std::string(header) + ">";
  if (IsTest(path)) {
    return;
  }
  if (IsCudaHeader(header) && !IsInAny(path, kCudaFolders)) {
    Add(line, "includes " + name + ": CUDA headers are for src/device/cuda, src/ops/cuda, " +
                  "src/comm/nccl, src/comm/ep/cuda and kernels/");
  }
  if (header == "mpi.h" && !IsIn(path, "src/comm/mpi")) {
    Add(line, "includes " + name + ": MPI is for src/comm/mpi");
  }
  if (IsIn(header, "yaml-cpp") && !IsIn(path, "src/config")) {
    Add(line, "includes " + name + ": yaml-cpp is for src/config");
  }
  if (header.starts_with("src/") || header.starts_with("kernels/")) {
    Add(line, "includes " + name + ": the project's own headers go in quotes");
  }
}

void FileChecker::CheckIncludes(const std::string& code) const {
  static const std::regex pattern(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
  std::istringstream lines(code);
  std::string text;
  for (int line = 1; std::getline(lines, text); ++line) {
    std::smatch match;
    if (!std::regex_search(text, match, pattern)) {
      continue;
    }
    const std::string header = match[2];
    if (match[1] == "\"") {
      CheckQuoted(line, header);
    } else {
      CheckAngled(line, header);
    }
  }
}

void FileChecker::CheckCalls(const std::string& code) const {
  if (IsTest(path) || IsIn(path, "src/base") || IsIn(path, "tools")) {
    return;
  }
  // A call by this name alone or in std:: or ::, not a method (x.exit()) and not another
  // function's ending (MPI_Abort, ncclCommAbort).
  static const std::regex pattern(
      R"((^|[^A-Za-z0-9_.>:]|[^A-Za-z0-9_]::|^::|std::)(exit|_exit|_Exit|quick_exit|abort|terminate)\s*\()");
  std::istringstream lines(code);
  std::string text;
  for (int line = 1; std::getline(lines, text); ++line) {
    std::smatch match;
    if (std::regex_search(text, match, pattern)) {
      Add(line, "calls " + match[2].str() +
                    "(): return or throw an error; src/base and tools end the program");
    }
  }
}

}  // namespace

std::string Violation::ToString() const {
  return path + (line > 0 ? ":" + std::to_string(line) : "") + ": " + message;
}

std::string WithoutComments(std::string_view text, bool strings) {
  enum class In { kCode, kLineComment, kBlockComment, kString, kChar };
  std::string out(text);
  In state = In::kCode;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    const bool line_break = c == '\n';
    switch (state) {
      case In::kCode:
        if (c == '/' && next == '/') {
          state = In::kLineComment;
          out[i] = ' ';
        } else if (c == '/' && next == '*') {
          state = In::kBlockComment;
          out[i] = out[i + 1] = ' ';
          ++i;
        } else if (c == '"') {
          state = In::kString;
        } else if (c == '\'' && !(i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])))) {
          state = In::kChar;  // not the separator of 1'000
        }
        break;
      case In::kLineComment:
        if (line_break) {
          state = In::kCode;
        } else {
          out[i] = ' ';
        }
        break;
      case In::kBlockComment:
        if (c == '*' && next == '/') {
          out[i] = out[i + 1] = ' ';
          ++i;
          state = In::kCode;
        } else if (!line_break) {
          out[i] = ' ';
        }
        break;
      case In::kString:
      case In::kChar:
        if (c == (state == In::kString ? '"' : '\'') || line_break) {
          state = In::kCode;  // a literal ends with its line, whatever a raw string says
        } else {
          if (strings) out[i] = ' ';
          if (c == '\\' && next != '\n' && i + 1 < text.size()) {
            ++i;
            if (strings) out[i] = ' ';
          }
        }
        break;
    }
  }
  return out;
}

std::vector<Violation> CheckFile(std::string_view path, std::string_view text) {
  std::vector<Violation> out;
  const FileChecker checker{path, out};
  const auto lines = std::count(text.begin(), text.end(), '\n');
  if (IsCode(path) || HasSuffix(path, {".sh", ".bzl", "/BUILD"})) {
    if (lines > kMaxLines) {
      checker.Add(0, "has " + std::to_string(lines) + " lines, more than " +
                         std::to_string(kMaxLines) + ": split it by concept");
    }
  }
  if (!IsCode(path)) {
    return out;
  }
  if (IsIn(path, "src") && LayerOf(path) == nullptr) {
    checker.Add(0, "is in a folder that is on no line of the layers (" __FILE__ ")");
  }
  checker.CheckIncludes(WithoutComments(text, false));
  checker.CheckCalls(WithoutComments(text, true));
  return out;
}

}  // namespace yardmaster::lint
