#include "src/ops/grouped_gemm.h"

#include <cmath>

#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

// `counts`: rows of each expert; `tail`: rows of the buffer that belong to nobody.
void CheckGrouped(const std::vector<int64_t>& counts, int64_t tail, int64_t N, int64_t K) {
  const int64_t L = static_cast<int64_t>(counts.size());
  std::vector<double> offsets = {0};
  for (const int64_t n : counts) offsets.push_back(offsets.back() + static_cast<double>(n));
  const int64_t rows = static_cast<int64_t>(offsets.back()), R = rows + tail;
  OpDeclaration op;
  op.name = "grouped gemm";
  op.inputs = {{"x", {R, K}, RandomValues("x", rows * K), true, DType::kF32, 0, rows},
               {"w", {L, N, K}, RandomValues("w", L * N * K), true, DType::kF32, 0, -1, false, /*main_gradient=*/true},
               {"offsets", {L + 1}, offsets, false, DType::kI64}};
  op.bf16 = true;
  op.outputs = {{"y", {R, N}, true, DType::kF32, 0, rows}};
  op.forward = [](const OpRun& r) { GroupedGemmForward(r.stream(), r["x"], r["w"], r["offsets"], r["y"]); };
  op.backward = [](const OpRun& r) {  // the tail of dy holds NaN too
    GroupedGemmBackwardInput(r.stream(), r["d.y"], r["w"], r["offsets"], r["d.x"]);
    GroupedGemmBackwardWeight(r.stream(), r["d.y"], r["x"], r["offsets"], 0, r["d.w"]);
  };
  op.reference = [=](const OpValues& in, OpValues& out) {
    out["y"];
    for (int64_t l = 0; l < L; ++l) {
      for (int64_t i = static_cast<int64_t>(offsets[static_cast<size_t>(l)]); i < static_cast<int64_t>(offsets[static_cast<size_t>(l) + 1]); ++i) {
        for (int64_t n = 0; n < N; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < K; ++k) {
            sum += in.at("x")[static_cast<size_t>(i * K + k)] * in.at("w")[static_cast<size_t>((l * N + n) * K + k)];
          }
          out["y"].push_back(sum);
        }
      }
    }
  };
  CheckOp(op);
}

TEST_CASE("grouped gemm: empty experts, one row, primes, all rows of one expert, rows of nobody") {
  CheckGrouped({3, 0, 5, 1}, 4, 6, 7);
  CheckGrouped({0, 0, 23, 0}, 9, 17, 5);
  CheckGrouped({0, 13, 0}, 0, 4, 8);
  CheckGrouped({1, 1, 1, 1, 1}, 1, 3, 3);
  CheckGrouped({127, 2, 31}, 11, 35, 20);
}

TEST_CASE("grouped gemm: no rows at all") {
  CheckGrouped({0, 0, 0}, 5, 4, 6);
  CheckGrouped({0, 0}, 0, 4, 6);
}

TEST_CASE("grouped gemm: shapes that are split into blocks") {
  CheckGrouped({300, 0, 257}, 3, 130, 12);
}

TEST_CASE("grouped gemm: the weight gradient of an expert without rows is beta times the old one") {
  CpuFixture cpu;
  const Tensor offsets = cpu.Make(DType::kI64, {3}, {0, 0, 2});
  const Tensor dy = cpu.Make(DType::kF32, {3, 1}, {1, 2, NAN}), x = cpu.Make(DType::kF32, {3, 2}, {1, 2, 3, 4, NAN, NAN});
  const Tensor dw = cpu.Make(DType::kF32, {2, 1, 2}, {10, 20, 30, 40});
  GroupedGemmBackwardWeight(cpu.stream(), dy, x, offsets, 0.5, dw);
  CHECK(ValuesOf(dw) == std::vector<double>{5, 10, 22, 30});
  SetValues(dw, {NAN, NAN, NAN, NAN});
  GroupedGemmBackwardWeight(cpu.stream(), dy, x, offsets, 0, dw);
  CHECK(ValuesOf(dw) == std::vector<double>{0, 0, 7, 10});
}

TEST_CASE("grouped gemm: offsets that leave the buffer are refused") {
  CpuFixture cpu;
  const Tensor x = cpu.Make(DType::kF32, {3, 2}), w = cpu.Make(DType::kF32, {2, 1, 2}), y = cpu.Make(DType::kF32, {3, 1});
  CHECK_THROWS_AS(GroupedGemmForward(cpu.stream(), x, w, cpu.Make(DType::kI64, {3}, {0, 1, 4}), y), InternalError);
  CHECK_THROWS_AS(GroupedGemmForward(cpu.stream(), x, w, cpu.Make(DType::kI64, {3}, {0, 2, 1}), y), InternalError);
}

}  // namespace
}  // namespace yardmaster::testing
