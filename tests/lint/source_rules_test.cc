// Planted violations: each rule finds what it is for, and nothing else.
#include "tests/lint/source_rules.h"

#include <string>
#include <string_view>

#include "tests/catch.h"

namespace yardmaster::lint {
namespace {

// The violations of a file, one a line.
std::string Check(std::string_view path, std::string_view text) {
  std::string out;
  for (const Violation& violation : CheckFile(path, text)) {
    out += violation.ToString() + "\n";
  }
  return out;
}

std::string Include(std::string_view header) {
  return "#pragma once\n#include \"" + std::string(header) + "\"\n";
}

std::string IncludeSystem(std::string_view header) {
  return "#include <" + std::string(header) + ">\n";
}

bool Refused(std::string_view path, std::string_view text) { return !Check(path, text).empty(); }

TEST_CASE("lower lines and the own folder may be included") {
  CHECK(Check("src/ops/gemm.h", Include("src/device/device.h")).empty());
  CHECK(Check("src/comm/ep/dispatch.cc", Include("src/parallel/mesh.h")).empty());
  CHECK(Check("src/comm/ep/dispatch.cc", Include("src/comm/communicator.h")).empty());
  CHECK(Check("src/ops/cpu/gemm.cc", Include("src/ops/gemm.h")).empty());
  CHECK(Check("src/train/step.cc", Include("src/checkpoint/save.h")).empty());
  CHECK(Check("tools/yardmaster.cc", Include("src/train/loop.h")).empty());
  CHECK(Check("src/metrics/record.cc", Include("tools/bazel/version_info.h")).empty());
}

TEST_CASE("higher lines are refused, with file and line") {
  CHECK(Check("src/base/log.h", Include("src/tensor/dtype.h")) ==
        "src/base/log.h:2: includes \"src/tensor/dtype.h\": src/base is on line 1, src/tensor on "
        "line 2; only lower lines may be included\n");
  CHECK(Refused("src/nn/mla.cc", Include("src/model/block.h")));
  CHECK(Refused("src/optim/adamw.cc", Include("src/train/step.h")));
  CHECK(Refused("src/train/loop.cc", Include("tools/flags.h")));
}

TEST_CASE("siblings on one line do not see each other") {
  CHECK(Refused("src/ops/gemm.cc", Include("src/comm/communicator.h")));
  CHECK(Refused("src/comm/ep/combine.cc", Include("src/ops/gemm.h")));
  CHECK(Refused("src/comm/mpi/communicator.cc", Include("src/ops/permute.h")));
  CHECK(Refused("src/data/reader.cc", Include("src/metrics/record.h")));
  CHECK(Refused("src/tensor/shape.h", Include("src/config/config.h")));
  CHECK(Refused("src/device/device.h", Include("src/parallel/mesh.h")));
}

TEST_CASE("dispatch sees the permutation of rows, whose adjoint it is") {
  CHECK(Check("src/comm/ep/local_dispatcher.cc", Include("src/ops/permute.h")).empty());
}

TEST_CASE("kernels see nothing of src, and few see kernels") {
  CHECK(Check("kernels/gemm/gemm.cu", Include("kernels/common/ptx.h")).empty());
  CHECK(Check("src/ops/cuda/gemm.cc", Include("kernels/gemm/gemm.h")).empty());
  CHECK(Check("src/comm/ep/cuda/dispatch.cc", Include("kernels/ep/dispatch.h")).empty());
  CHECK(Refused("kernels/gemm/gemm.cu", Include("src/base/check.h")));
  CHECK(Check("tools/bench/gemm_bench.cu", Include("kernels/gemm/gemm.h")).empty());
  CHECK(Refused("src/nn/mlp.cc", Include("kernels/gemm/gemm.h")));
  CHECK(Refused("tools/yardmaster.cc", Include("kernels/gemm/gemm.h")));
}

TEST_CASE("CUDA headers stay where they are wrapped") {
  for (const std::string_view header :
       {"cuda_runtime.h", "cuda.h", "cuda_bf16.h", "cublasLt.h", "cudnn.h", "nccl.h", "cub/cub.cuh",
        "cuda/std/atomic", "cooperative_groups.h", "nvtx3/nvToolsExt.h", "mma.h"}) {
    INFO(header);
    CHECK(Refused("src/train/step.cc", IncludeSystem(header)));
    CHECK(Refused("src/ops/gemm.h", IncludeSystem(header)));
    CHECK(Check("src/device/cuda/stream.cc", IncludeSystem(header)).empty());
    CHECK(Check("kernels/gemm/gemm.cu", IncludeSystem(header)).empty());
    CHECK(Check("src/ops/gemm_test.cc", IncludeSystem(header)).empty());
  }
  CHECK(Check("src/train/step.cc", IncludeSystem("cstdint")).empty());
}

TEST_CASE("MPI and yaml-cpp stay where they are wrapped") {
  CHECK(Check("src/comm/mpi/communicator.cc", IncludeSystem("mpi.h")).empty());
  CHECK(Refused("src/comm/ep/dispatch.cc", IncludeSystem("mpi.h")));
  CHECK(Refused("tools/yardmaster.cc", IncludeSystem("mpi.h")));
  CHECK(Check("src/config/reader.cc", IncludeSystem("yaml-cpp/yaml.h")).empty());
  CHECK(Refused("src/model/model.cc", IncludeSystem("yaml-cpp/yaml.h")));
}

TEST_CASE("only tests include test code, and tests include everything") {
  CHECK(Refused("src/base/log.cc", Include("tests/catch.h")));
  CHECK(Refused("src/ops/gemm.cc", Include("src/ops/gradient_check_testing.h")));
  CHECK(Check("src/base/log_test.cc", Include("tests/catch.h")).empty());
  CHECK(Check("src/base/log_test.cc", Include("src/train/step.h")).empty());
  CHECK(Check("tests/resume/resume_test.cc", Include("src/train/step.h")).empty());
}

TEST_CASE("own headers are named from the root, in quotes") {
  CHECK(Refused("src/base/log.cc", Include("log.h")));
  CHECK(Refused("src/base/log.cc", Include("../base/log.h")));
  CHECK(Refused("src/base/log.cc", IncludeSystem("src/base/log.h")));
}

TEST_CASE("a folder that has no line is refused") {
  CHECK(Refused("src/misc/helpers.h", "#pragma once\n"));
  CHECK(Refused("src/train/step.cc", Include("src/misc/helpers.h")));
}

TEST_CASE("ending the program is for src/base and tools") {
  for (const std::string_view call :
       {"exit(1);", "std::exit(1);", "::exit(1);", "abort();", "  if (x) std::abort ();",
        "_exit(2);", "std::terminate();"}) {
    INFO(call);
    CHECK(Refused("src/train/step.cc", call));
    CHECK(Check("src/base/check.cc", call).empty());
    CHECK(Check("tools/yardmaster.cc", call).empty());
    CHECK(Check("src/train/step_test.cc", call).empty());
  }
  for (const std::string_view fine :
       {"MPI_Abort(comm, 1);", "loop.exit(1);", "door->abort();", "// exit(1)", "/* abort() */",
        "Log(\"abort()\");", "ncclCommAbort(c);", "Session::exit();", "int exit_code = 1;"}) {
    INFO(fine);
    CHECK(Check("src/train/step.cc", fine).empty());
  }
}

TEST_CASE("files over 800 lines are refused") {
  std::string text;
  for (int i = 0; i < 800; ++i) {
    text += "\n";
  }
  CHECK(Check("src/base/log.cc", text).empty());
  CHECK(Refused("src/base/log.cc", text + "\n"));
  CHECK(Refused("scripts/test.sh", text + "\n"));
  CHECK(Check("docs/tour.md", text + "\n").empty());
}

TEST_CASE("comments and strings hide nothing and show nothing") {
  CHECK(Check("src/base/log.h", "// #include \"src/train/step.h\"\n").empty());
  CHECK(Check("src/base/log.h", "/*\n#include \"src/train/step.h\"\n*/\n").empty());
  CHECK(Refused("src/base/log.h", "/* a */ #include \"src/train/step.h\"\n"));
  CHECK(Refused("src/base/log.h", "const int n = 1'000;\n#include \"src/train/step.h\"  // x\n"));
  CHECK(WithoutComments("a // b\n\"c // d\"\n", false) == "a     \n\"c // d\"\n");
  CHECK(WithoutComments("f(\"a\\\"b\", 'c'); /* d */ g", true) == "f(\"    \", ' ');         g");
}

}  // namespace
}  // namespace yardmaster::lint
