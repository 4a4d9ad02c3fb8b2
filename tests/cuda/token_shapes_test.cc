// The ops between the GEMMs at the sizes of DeepSeek-V3, against F64 on the cpu device (see shapes_test.cc).
#include <cmath>

#include "src/base/strings.h"
#include "src/ops/embedding.h"
#include "src/ops/mla_rope_pack.h"
#include "src/ops/permute.h"
#include "src/ops/rmsnorm.h"
#include "src/ops/router.h"
#include "src/ops/swiglu.h"
#include "tests/cuda/gpu.h"

namespace yardmaster::testing {
namespace {

OpInput Input(const char* name, const Shape& shape, double range = 1) {
  return {.name = name, .shape = shape, .values = RandomValues(name, shape.elements(), -range, range)};
}

TEST_CASE("gpu shapes: rmsnorm of hidden states and latents") {
  YM_NEEDS_GPU();
  for (const auto& [T, D] :
       {std::pair<int64_t, int64_t>{700, 7168}, {300, 1536}, {33, 512}, {5, 20000}, {600, 2052}}) {
    OpDeclaration op;
    op.name = StrCat("rmsnorm ", T, " x ", D);
    op.bf16 = true;
    OpInput w = Input("w", {D});
    w.main_gradient = true;
    op.inputs = {Input("x", {T, D}), Input("residual", {T, D}), w};
    op.outputs = {
        {"y", {T, D}}, {"h", {T, D}}, {.name = "rstd", .shape = {T}, .differentiable = false, .accum = true}};
    op.forward = [](const OpRun& r) {
      RmsNormForward(
          r.stream(),
          {.x = r["x"], .residual = r["residual"], .w = r["w"], .h = r["h"], .y = r["y"], .rstd = r["rstd"]});
    };
    op.backward = [](const OpRun& r) {
      RmsNormBackward(r.stream(),
                      {.dy = r["d.y"],
                       .h = r["h"],
                       .w = r["w"],
                       .rstd = r["rstd"],
                       .dresidual = r["d.h"],
                       .dh = r["d.x"],
                       .dw = r["d.w"]},
                      r.work());
      RmsNormBackward(r.stream(),
                      {.dy = r["d.y"],
                       .h = r["h"],
                       .w = r["w"],
                       .rstd = r["rstd"],
                       .dresidual = r["d.h"],
                       .dh = r["d.residual"]},
                      r.work());
    };
    CheckOp(op);
  }
}

TEST_CASE("gpu shapes: swiglu of experts, a ragged number of rows") {
  YM_NEEDS_GPU();
  for (const int64_t used : {int64_t{0}, int64_t{1}, int64_t{677}}) {
    const int64_t R = 800, F = 2048;
    OpDeclaration op;
    op.name = StrCat("swiglu ", used, " of ", R);
    op.bf16 = true;
    OpInput gate_up{.name = "gate_up",
                    .shape = {R, 2 * F},
                    .values = RandomValues("gate_up", used * 2 * F, -4, 4),
                    .used_rows = used};
    OpInput w{
        .name = "w", .shape = {R, 1}, .values = RandomValues("w", used), .used_rows = used, .accum = true};
    op.inputs = {gate_up,
                 w,
                 {.name = "rows",
                  .shape = {1},
                  .values = {static_cast<double>(used)},
                  .differentiable = false,
                  .type = DType::kI64}};
    op.outputs = {{.name = "act", .shape = {R, F}, .used_rows = used}};
    op.forward = [=](const OpRun& r) {
      SwigluForward(
          r.stream(),
          {.gate_up = r["gate_up"], .w = r["w"].Reshape({R}), .num_rows = r["rows"], .act = r["act"]});
    };
    op.backward = [=](const OpRun& r) {
      SwigluBackward(r.stream(), {.dact = r["d.act"],
                                  .gate_up = r["gate_up"],
                                  .w = r["w"].Reshape({R}),
                                  .num_rows = r["rows"],
                                  .dgate_up = r["d.gate_up"],
                                  .dw = r["d.w"].Reshape({R})});
    };
    CheckOp(op);
  }
}

TEST_CASE("gpu shapes: the latent attention's packing with 128 heads") {
  YM_NEEDS_GPU();
  const int64_t T = 37, H = 128, N = 128, P = 64, V = 128, positions = 50;
  std::vector<double> table, at;
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < P / 2; ++i) {
      const double angle = static_cast<double>(p) * std::pow(1e4, -static_cast<double>(i) / 32);
      table.push_back(std::cos(angle)), table.push_back(std::sin(angle));
    }
  }
  for (int64_t t = 0; t < T; ++t) at.push_back(static_cast<double>(t * 11 % positions));
  OpDeclaration op;
  op.name = "mla rope pack";
  op.bf16 = true;
  op.inputs = {
      Input("q", {T, H, N + P}),
      Input("kv", {T, H, N + V}),
      {.name = "k_rope", .shape = {T, P}, .values = RandomValues("k_rope", T * P), .padding = 512},
      {.name = "positions", .shape = {T}, .values = at, .differentiable = false, .type = DType::kI32},
      {.name = "table",
       .shape = {positions, P / 2, 2},
       .values = table,
       .differentiable = false,
       .accum = true}};
  op.outputs = {{"q_out", {T, H, N + P}}, {"k_out", {T, H, N + P}}, {"v_out", {T, H, V}}};
  op.forward = [](const OpRun& r) {
    MlaRopePackForward(r.stream(), {.q = r["q"],
                                    .kv = r["kv"],
                                    .k_rope = r["k_rope"],
                                    .positions = r["positions"],
                                    .table = r["table"],
                                    .q_out = r["q_out"],
                                    .k_out = r["k_out"],
                                    .v_out = r["v_out"]});
  };
  op.backward = [](const OpRun& r) {
    MlaRopePackBackward(r.stream(), {.dq_out = r["d.q_out"],
                                     .dk_out = r["d.k_out"],
                                     .dv_out = r["d.v_out"],
                                     .positions = r["positions"],
                                     .table = r["table"],
                                     .dq = r["d.q"],
                                     .dkv = r["d.kv"],
                                     .dk_rope = r["d.k_rope"]});
  };
  CheckOp(op);
}

TEST_CASE("gpu shapes: 256 experts, top 8 of 4 in 8 groups") {
  YM_NEEDS_GPU();
  const int64_t T = 2000, E = 256, K = 8;
  const RouterSpec spec{.num_experts = E, .top_k = K, .num_groups = 8, .topk_groups = 4, .scaling = 2.5};
  OpDeclaration op;
  op.name = "router";
  OpInput bias = Input("bias", {E}, 0.1);
  bias.differentiable = false;
  op.inputs = {Input("logits", {T, E}, 2), bias};
  op.outputs = {{"scores", {T, E}, false}, {"idx", {T, K}, false, DType::kI32}, {"w", {T, K}}};
  op.forward = [=](const OpRun& r) {
    RouterForward(
        r.stream(), spec,
        {.logits = r["logits"], .bias = r["bias"], .scores = r["scores"], .idx = r["idx"], .w = r["w"]});
  };
  op.backward = [=](const OpRun& r) {
    RouterBackward(r.stream(), spec,
                   {.dw = r["d.w"], .scores = r["scores"], .idx = r["idx"], .dlogits = r["d.logits"]});
  };
  CheckOp(op);
}

TEST_CASE("gpu shapes: permute and unpermute of 7168 columns, top 8") {
  YM_NEEDS_GPU();
  const int64_t T = 300, K = 8, D = 7168, L = 64, R = T * K;
  std::vector<double> idx;
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t k = 0; k < K; ++k) idx.push_back(static_cast<double>(k * 8 + (t * t + k) % 8));
  }
  OpDeclaration op;
  op.name = "unpermute";
  op.bf16 = true;
  op.inputs = {Input("y_RD", {R, D}),
               Input("residual", {T, D}),
               {.name = "idx", .shape = {T, K}, .values = idx, .differentiable = false, .type = DType::kI32}};
  op.outputs = {{"y", {T, D}}};
  struct Plan {
    Tensor offsets, slot, source, overflow;
  };
  const auto plan = [=](const OpRun& r) {
    const auto make = [&](DType type, const Shape& shape) { return r.Scratch(type, shape, {0}); };
    const Plan p{make(DType::kI64, {L + 1}), make(DType::kI64, {T, K}), make(DType::kI64, {R}),
                 make(DType::kI32, {1})};
    PermutePlan(r.stream(), {.idx = r["idx"], .offsets = p.offsets, .slot = p.slot, .source = p.source},
                p.overflow, r.work());
    return p;
  };
  op.forward = [=](const OpRun& r) {
    Unpermute(r.stream(),
              {.y_RD = r["y_RD"], .slot = plan(r).slot, .residual = r["residual"], .y_TD = r["y"]});
  };
  op.backward = [=](const OpRun& r) {
    const Plan p = plan(r);
    Permute(r.stream(), {.x_TD = r["d.y"],
                         .source = p.source,
                         .offsets = p.offsets,
                         .x_RD = r["d.y_RD"],
                         .top_k = K,
                         .slot = p.slot});
    r.Set(r["d.residual"], r.Values(r["d.y"]));
  };
  CheckOp(op);
}

TEST_CASE("gpu shapes: embedding rows of 7168 columns") {
  YM_NEEDS_GPU();
  const int64_t T = 500, V = 2000, D = 7168;
  std::vector<double> ids;
  for (int64_t t = 0; t < T; ++t) ids.push_back(static_cast<double>(t % 5 == 0 ? 17 : t * t % V));
  OpDeclaration op;
  op.name = "embedding";
  op.bf16 = true;
  OpInput table = Input("table", {V, D});
  table.main_gradient = true;
  op.inputs = {{.name = "ids", .shape = {T}, .values = ids, .differentiable = false, .type = DType::kI32},
               table};
  op.outputs = {{"x", {T, D}}};
  op.forward = [](const OpRun& r) { EmbeddingForward(r.stream(), r["ids"], r["table"], r["x"]); };
  op.backward = [](const OpRun& r) {
    EmbeddingBackward(r.stream(), r["ids"], r["d.x"], 0, r["d.table"], r.work());
  };
  CheckOp(op);
}

}  // namespace
}  // namespace yardmaster::testing
