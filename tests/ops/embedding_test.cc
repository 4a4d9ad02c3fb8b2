#include "src/ops/embedding.h"

#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

void CheckEmbedding(int64_t V, int64_t D, const std::vector<double>& ids) {
  const int64_t n_T = static_cast<int64_t>(ids.size());
  OpDeclaration op;
  op.name = "embedding";
  op.inputs = {{"ids", {n_T}, ids, false, DType::kI32}, {.name = "table", .shape = {V, D}, .values = RandomValues("table", V * D), .main_gradient = true}};
  op.bf16 = true;
  op.outputs = {{"x", {n_T, D}}};
  op.forward = [](const OpRun& r) { EmbeddingForward(r.stream(), r["ids"], r["table"], r["x"]); };
  op.backward = [](const OpRun& r) {
    EmbeddingBackward(r.stream(), r["ids"], r["d.x"], 0, r["d.table"], r.work());
  };
  op.reference = [D](const OpValues& in, OpValues& out) {
    out["x"];
    for (const double id : in.at("ids")) {
      for (int64_t d = 0; d < D; ++d) out["x"].push_back(in.at("table")[static_cast<size_t>(static_cast<int64_t>(id) * D + d)]);
    }
  };
  op.tolerance_f64 = 0;
  CheckOp(op);
}

TEST_CASE("embedding: repeated ids, ids that never occur, none at all") {
  CheckEmbedding(11, 70, {3, 3, 0, 10, 3, 7, 0});
  CheckEmbedding(5, 4, {2});
  CheckEmbedding(5, 4, {});
  std::vector<double> ids;
  for (int t = 0; t < 300; ++t) ids.push_back(t * t % 13);
  CheckEmbedding(17, 33, ids);
}

TEST_CASE("embedding: backward adds to beta times what was there, in token order") {
  CpuFixture cpu;
  const Tensor ids = cpu.Make(DType::kI32, {3}, {1, 1, 0}), dx = cpu.Make(DType::kF32, {3, 2}, {1, 2, 1e8, 4, 5, 6});
  const Tensor dtable = cpu.Make(DType::kF32, {3, 2}, {1, 1, -1e8, 1, 7, 8});
  EmbeddingBackward(cpu.stream(), ids, dx, 1, dtable, cpu.work());
  const float in_order = (-1e8f + 1.0f) + 1e8f;
  CHECK(ValuesOf(dtable) == std::vector<double>{6, 7, in_order, 7, 7, 8});
}

// The memory of a run is planned in any build, with CUDA or without.
TEST_CASE("embedding: the dry device plans room for the squares that a GPU's kernel sums") {
  const auto dry = MakeDryDevice(DeviceKind::kCuda);
  const Stream stream(dry.get());
  const auto addends = [&](DType dx, int64_t D) {
    return EmbeddingNormAddends(stream, dx, Tensor(nullptr, dx == DType::kF64 ? DType::kF64 : DType::kF32, {50, D}));
  };
  CHECK(addends(DType::kBF16, 7168) == 28);
  CHECK(addends(DType::kBF16, 264) == 2);
  CHECK(addends(DType::kBF16, 260) == 0);
  CHECK(addends(DType::kF32, 260) == 3);
  CHECK(addends(DType::kF64, 64) == 1);
  CpuFixture cpu;
  CHECK(EmbeddingNormAddends(cpu.stream(), DType::kF32, cpu.Make(DType::kF32, {50, 64})) == 0);
}

}  // namespace
}  // namespace yardmaster::testing
