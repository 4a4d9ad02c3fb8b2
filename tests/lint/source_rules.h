// The rules of layers and of source files, as a pure function over one file's text.
//
// Layers (docs: each src/ folder's README): a file may include lower lines and its own folder.
//   9 tools   8 src/train   7 src/{optim,checkpoint,hf,data,metrics,plan}   6 src/model   5 src/nn
//   4 src/ops, src/comm   3 src/device, src/parallel   2 src/tensor, src/config   1 src/base   0
//   kernels
// Besides: kernels/ includes nothing of src/; CUDA headers, mpi.h and yaml-cpp stay where they are
// wrapped; exit() and abort() are for src/base and tools; no file grows beyond 800 lines.
// Tests and benchmarks (tools/bench) may include everything, and src/comm/ep the permute op.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace yardmaster::lint {

struct Violation {
  std::string path;
  int line = 0;         // 1-based; 0 where the whole file is meant
  std::string message;  // what is wrong, and what would be right

  std::string ToString() const;
};

// `path` is relative to the repository root, with forward slashes. Files that no rule is about
// (data, documents) give nothing.
std::vector<Violation> CheckFile(std::string_view path, std::string_view text);

// `text` with comments blanked out, and string literals too where `strings` says so.
// Line breaks stay, so line numbers do.
std::string WithoutComments(std::string_view text, bool strings);

}  // namespace yardmaster::lint
