#include <algorithm>

#include "src/base/strings.h"
#include "src/ops/pad_rows.h"
#include "src/ops/permute.h"
#include "tools/bench_ops/ops/op_cases.h"
#include "tools/bench_ops/ops/random_inputs.h"

namespace yardmaster {
namespace {

std::string SizesOf(const BenchSizes& s) {
  return StrCat(s.T(), " x ", s.hidden, ", ", s.top_k, " of ", s.experts, " experts");
}

}  // namespace

BenchOp BenchPermute(const BenchSizes& s) {
  const Shape by_choice{s.T(), s.top_k}, tokens{s.T(), s.hidden}, rows{s.window(), s.hidden};
  const int64_t used = s.routed(), top_k = s.top_k;
  BenchOp op;
  op.sizes = SizesOf(s);
  op.buffers = {
      {.name = "idx", .shape = by_choice, .type = BenchType::kI32, .values = RandomExperts(s)},
      {.name = "offsets", .shape = {s.experts + 1}, .type = BenchType::kI64},
      {.name = "slot", .shape = by_choice, .type = BenchType::kI64},
      {.name = "source", .shape = {s.window()}, .type = BenchType::kI64, .used = used},
      {.name = "overflow", .shape = {1}, .type = BenchType::kI32, .values = {0}},
      {.name = "x_TD", .shape = tokens, .scale = 1},
      {.name = "w_TK", .shape = by_choice, .type = BenchType::kAccum, .scale = 1},
      {.name = "x_RD", .shape = rows, .used = used},
      {.name = "w_R", .shape = {s.window()}, .type = BenchType::kAccum, .used = used},
      {.name = "dx_RD", .shape = rows, .scale = 1, .used = used},
      {.name = "dw_R", .shape = {s.window()}, .type = BenchType::kAccum, .scale = 1, .used = used},
      {.name = "dx_TD", .shape = tokens},
      {.name = "dw_TK", .shape = by_choice, .type = BenchType::kAccum},
  };
  op.calls = {
      {.name = "plan",
       .run =
           [](const BenchRun& r) {
             PermutePlan(r.stream(),
                         {.idx = r["idx"], .offsets = r["offsets"], .slot = r["slot"], .source = r["source"]},
                         r["overflow"], r.work());
           },
       .outputs = {"offsets", "slot", "source", "overflow"},
       .moves = {{"idx"}, {"offsets"}, {"slot"}, {"source"}}},
      {.name = "forward",
       .run =
           [top_k](const BenchRun& r) {
             Permute(r.stream(), {.x_TD = r["x_TD"],
                                  .w_TK = r["w_TK"],
                                  .source = r["source"],
                                  .offsets = r["offsets"],
                                  .x_RD = r["x_RD"],
                                  .w_R = r["w_R"],
                                  .top_k = top_k,
                                  .slot = r["slot"]});
           },
       .outputs = {"x_RD", "w_R"},
       .moves = {{"x_TD"}, {"w_TK"}, {"slot"}, {"x_RD"}, {"w_R"}}},
      {.name = "backward",
       .run =
           [](const BenchRun& r) {
             Unpermute(r.stream(), {.y_RD = r["dx_RD"],
                                    .slot = r["slot"],
                                    .dw_R = r["dw_R"],
                                    .y_TD = r["dx_TD"],
                                    .dw_TK = r["dw_TK"]});
           },
       .outputs = {"dx_TD", "dw_TK"},
       .moves = {{"dx_RD"}, {"dw_R"}, {"slot"}, {"dx_TD"}, {"dw_TK"}}},
  };
  return op;
}

BenchOp BenchUnpermute(const BenchSizes& s) {
  const Shape tokens{s.T(), s.hidden}, rows{s.window(), s.hidden};
  const int64_t used = s.routed(), top_k = s.top_k;
  const ExpertRows plan = RowsOfExperts(s, RandomExperts(s));
  BenchOp op;
  op.sizes = SizesOf(s);
  op.buffers = {
      {.name = "offsets", .shape = {s.experts + 1}, .type = BenchType::kI64, .values = plan.offsets},
      {.name = "slot", .shape = {s.T(), top_k}, .type = BenchType::kI64, .values = plan.slot},
      {.name = "source", .shape = {s.window()}, .type = BenchType::kI64, .values = plan.source, .used = used},
      {.name = "y_RD", .shape = rows, .scale = 1, .used = used},
      {.name = "residual", .shape = tokens, .scale = 1},
      {.name = "shared", .shape = tokens, .scale = 1},
      {.name = "y_TD", .shape = tokens},
      {.name = "dy_TD", .shape = tokens, .scale = 1},
      {.name = "dy_RD", .shape = rows, .used = used},
  };
  op.calls = {
      {.name = "forward",
       .run =
           [](const BenchRun& r) {
             Unpermute(r.stream(), {.y_RD = r["y_RD"],
                                    .slot = r["slot"],
                                    .residual = r["residual"],
                                    .addend = r["shared"],
                                    .y_TD = r["y_TD"]});
           },
       .outputs = {"y_TD"},
       .moves = {{"y_RD"}, {"slot"}, {"residual"}, {"shared"}, {"y_TD"}}},
      {.name = "backward",
       .run =
           [top_k](const BenchRun& r) {
             Permute(r.stream(), {.x_TD = r["dy_TD"],
                                  .source = r["source"],
                                  .offsets = r["offsets"],
                                  .x_RD = r["dy_RD"],
                                  .top_k = top_k,
                                  .slot = r["slot"]});
           },
       .outputs = {"dy_RD"},
       .moves = {{"dy_TD"}, {"slot"}, {"dy_RD"}}},
  };
  return op;
}

BenchOp BenchPadRows(const BenchSizes& s) {
  const ExpertRows plan = RowsOfExperts(s, RandomExperts(s));
  double most = 0;
  for (size_t e = 0; e + 1 < plan.offsets.size(); ++e)
    most = std::max(most, plan.offsets[e + 1] - plan.offsets[e]);
  const Shape ragged{s.window(), s.hidden}, padded{s.experts * static_cast<int64_t>(most), s.hidden};
  BenchOp op;
  op.sizes = StrCat(s.routed(), " of ", s.window(), " rows x ", s.hidden, " to ", most, " for each of ",
                    s.experts, " experts");
  op.buffers = {
      {.name = "offsets", .shape = {s.experts + 1}, .type = BenchType::kI64, .values = plan.offsets},
      {.name = "ragged", .shape = ragged, .scale = 1, .used = s.routed()},
      {.name = "padded", .shape = padded},
      {.name = "dpadded", .shape = padded, .scale = 1},
      {.name = "dragged", .shape = ragged, .used = s.routed()},
  };
  op.calls = {
      {.name = "pad",
       .run =
           [](const BenchRun& r) {
             PadRows(r.stream(), {.ragged = r["ragged"], .offsets = r["offsets"], .padded = r["padded"]});
           },
       .outputs = {"padded"},
       .moves = {{"ragged"}, {"offsets"}, {"padded"}}},
      {.name = "unpad",
       .run =
           [](const BenchRun& r) {
             UnpadRows(r.stream(),
                       {.ragged = r["dragged"], .offsets = r["offsets"], .padded = r["dpadded"]});
           },
       .outputs = {"dragged"},
       .moves = {{"dpadded", static_cast<double>(s.routed()) / static_cast<double>(padded[0])},
                 {"offsets"},
                 {"dragged"}}},
  };
  return op;
}

}  // namespace yardmaster
