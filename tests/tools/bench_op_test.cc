// File: tests/tools/bench_op_test.cc
#include "tools/commands/bench_op.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/device/cuda/make_cuda_device.h"
#include "src/ops/elementwise.h"
#include "tests/catch.h"
#include "tools/bench_ops/bench_op.h"
#include "tools/bench_ops/op_checker.h"
#include "tools/bench_ops/op_execution.h"
#include "tools/bench_ops/op_report.h"

namespace yardmaster {
namespace {

TEST_CASE("bench op: every declaration agrees with itself in float, on several sizes") {
  const std::unique_ptr<Device> cpu = MakeCpuDevice({.threads = 2});
  for (const BenchOpEntry& entry : BenchOps()) {
    const std::vector<CallCheck> checks = CheckBenchOp(entry, *cpu, DType::kF32, /*seed=*/100, /*rounds=*/4);
    REQUIRE(!checks.empty());
    for (const CallCheck& c : checks) {
      INFO(entry.name << " " << c.call);
      CHECK(c.trouble == "");
      CHECK(c.checked >= 4);
      CHECK(c.error < 1e-5);
    }
  }
}

TEST_CASE("bench op: the timed sizes pass the ops' checks, and every call says what it moves") {
  std::set<std::string> names;
  for (const BenchOpEntry& entry : BenchOps()) {
    INFO(entry.name);
    CHECK(names.insert(entry.name).second);
    const BenchOp op = entry.make(ProxySizes(8192));
    for (const DType work : {DType::kBF16, DType::kF32})
      CHECK(BenchWorkBytes(op, work, DeviceKind::kCuda) < size_t{8} << 30);
    for (const BenchCall& call : op.calls) {
      INFO(call.name);
      CHECK(!call.outputs.empty());
      CHECK(!call.moves.empty());
      for (const BenchMove& move : call.moves) {
        const auto named = [&](const BenchBuffer& b) { return b.name == move.buffer; };
        CHECK(std::count_if(op.buffers.begin(), op.buffers.end(), named) == 1);
      }
      CHECK((call.flops == 0 || call.flops > 1e11));
    }
  }
}

TEST_CASE("bench op: sizes drawn at random are legal and differ") {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const BenchSizes s = RandomSizes(seed);
    CHECK(s.top_k <= s.topk_groups * (s.experts / s.groups));
    CHECK(s.experts % s.groups == 0);
    seen.insert(StrCat(s.T(), " ", s.hidden, " ", s.experts));
  }
  CHECK(seen.size() > 20);
}

// One call over x, used rows 3 of 5; what the call does to y is the test's.
template <void (*kCall)(const BenchRun&)>
BenchOp SmallOp(const BenchSizes&) {
  BenchOp op;
  op.buffers = {{.name = "x", .shape = {5, 8}, .scale = 1, .used = 3},
                {.name = "y", .shape = {5, 8}, .used = 3},
                {.name = "n", .shape = {2}, .type = BenchType::kI64, .values = {1, 2}}};
  op.calls = {{.name = "forward", .run = kCall, .outputs = {"y", "n"}, .moves = {{"x"}, {"y"}}}};
  return op;
}

bool OnReference(const BenchRun& r) { return r["x"].dtype() == DType::kF64; }
void CopyRows(const BenchRun& r, int64_t rows) {
  Copy(r.stream(), r["x"].Slice(0, rows), r["y"].Slice(0, rows));
}

void Right(const BenchRun& r) { CopyRows(r, 3); }
void LeavesARow(const BenchRun& r) { CopyRows(r, OnReference(r) ? 3 : 2); }
void WritesBeyond(const BenchRun& r) {
  CopyRows(r, 3);
  if (!OnReference(r)) Fill(r.stream(), 0, r["y"].Slice(4, 5));
}
void IsSlightlyOff(const BenchRun& r) {
  CopyRows(r, 3);
  if (!OnReference(r)) Add(r.stream(), r["y"].Slice(0, 1), r["y"].Slice(0, 1), r["y"].Slice(0, 1));
}
void CountsWrong(const BenchRun& r) {
  CopyRows(r, 3);
  if (!OnReference(r)) Fill(r.stream(), 3, r["n"].Slice(0, 1));
}

std::string TroubleOf(BenchOp (*make)(const BenchSizes&)) {
  const std::unique_ptr<Device> cpu = MakeCpuDevice({.threads = 1});
  const std::vector<CallCheck> checks = CheckBenchOp({"small", "", make}, *cpu, DType::kF32, 5, 1);
  REQUIRE(checks.size() == 1);
  return checks[0].trouble;
}

TEST_CASE("bench op: what is wrong is found") {
  CHECK(TroubleOf(SmallOp<Right>) == "");
  CHECK(TroubleOf(SmallOp<LeavesARow>).find("y differs by inf") == 0);
  CHECK(TroubleOf(SmallOp<WritesBeyond>).find("32 bytes written beyond its rows") != std::string::npos);
  CHECK(TroubleOf(SmallOp<IsSlightlyOff>).find("y differs by") == 0);
  CHECK(TroubleOf(SmallOp<CountsWrong>).find("n differs by") == 0);
}

TEST_CASE("bench op: the report gives rates and shares of the ceiling, as a table and as JSON") {
  OpReportHead head{
      .device = "a GPU", .precision = "bf16", .seed = 7, .rounds = 3, .repeats = 11, .ceilings = {}};
  std::vector<OpResult> results = {
      {.op = "swiglu", .call = "forward", .sizes = {}, .error = 3e-3, .tolerance = 1e-2, .trouble = {}},
      {.op = "gemm",
       .call = "dgrad",
       .sizes = {},
       .error = INFINITY,
       .tolerance = 1e-2,
       .trouble = "dx differs"}};
  std::string table = OpReportText(head, results);
  CHECK(table.find("TB/s") == std::string::npos);  // not timed
  CHECK(table.find("swiglu           forward         ok      3.0e-03\n") != std::string::npos);
  CHECK(table.find("WRONG") != std::string::npos);
  head.ceilings = {.bytes_per_s = 4e12, .flops_per_s = 800e12};
  results[0].sizes = results[1].sizes = "some";
  results[0].ms = results[1].ms = 0.5;
  results[0].bytes = results[1].bytes = 1e9;
  results[1].flops = 2e11;
  CHECK(PercentOfCeiling(results[0], head.ceilings) == Approx(50));
  CHECK(PercentOfCeiling(results[1], head.ceilings) == Approx(50));
  table = OpReportText(head, results);
  CHECK(table.find("0.5000     2.000 TB/s    50%  some") != std::string::npos);
  CHECK(table.find("0.5000    400 TFLOP/s    50%  some") != std::string::npos);
  const auto json = nlohmann::json::parse(OpReportJson(head, results));
  CHECK(json["copy_tb_per_s"] == Approx(4));
  CHECK(json["results"][0]["percent_of_ceiling"] == Approx(50));
  CHECK(json["results"][0]["ok"] == true);
  CHECK(json["results"][1]["ok"] == false);
  CHECK(json["results"][1]["relative_l2"].is_null());
  CHECK(json["results"][1]["tflops"] == Approx(400));
}

std::string ErrorOf(const BenchOpOptions& options) {
  try {
    RunBenchOp(options);
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::kConfig);
    return e.what();
  }
  return "";
}

TEST_CASE("bench op: options out of range, unknown ops and a machine without a GPU are refused") {
  CHECK(ErrorOf({.op = "rmsnrom"}).find("rmsnorm") != std::string::npos);
  CHECK(ErrorOf({.op = "all", .tokens = 0}).find("--tokens") != std::string::npos);
  BenchOpOptions options;
  options.repeats = 2;
  CHECK(ErrorOf(options).find("--repeats") != std::string::npos);
  options = {};
  options.precision = "fp8";
  CHECK(ErrorOf(options).find("--precision") != std::string::npos);
  if (CudaAvailability().usable == 0)
    CHECK(ErrorOf({.op = "rmsnorm"}).find("needs a GPU") != std::string::npos);
}

TEST_CASE("bench op: every op agrees on the GPU, in both types") {
  const CudaStatus status = CudaAvailability();
  if (status.usable == 0) YM_SKIP("needs a GPU: " + status.reason);
  for (const char* precision : {"bf16", "fp32"}) {
    BenchOpOptions options;
    options.precision = precision;
    options.seed = 11;
    options.check_only = true;
    CHECK(RunBenchOp(options) == 0);
  }
}

}  // namespace
}  // namespace yardmaster
