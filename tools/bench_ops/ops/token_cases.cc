// The ops of every token between the products: embedding, norm, rotation, SwiGLU, elementwise.
#include <cmath>
#include <set>

#include "src/base/strings.h"
#include "src/ops/elementwise.h"
#include "src/ops/embedding.h"
#include "src/ops/gqa_rope.h"
#include "src/ops/mla_rope_pack.h"
#include "src/ops/random_normal.h"
#include "src/ops/rmsnorm.h"
#include "src/ops/split_bf16.h"
#include "src/ops/swiglu.h"
#include "tools/bench_ops/ops/op_cases.h"
#include "tools/bench_ops/ops/random_inputs.h"

namespace yardmaster {

BenchOp BenchEmbedding(const BenchSizes& s) {
  const Shape tokens{s.T(), s.hidden}, table{s.vocab, s.hidden};
  std::vector<double> ids;
  for (const double x : UniformValues(s, "ids", s.T(), 0, 1))
    ids.push_back(std::floor(x * x * static_cast<double>(s.vocab)));  // the lower ids more often
  const double read =
      static_cast<double>(std::set<double>(ids.begin(), ids.end()).size()) / static_cast<double>(s.vocab);
  BenchOp op;
  op.sizes = StrCat(s.T(), " tokens, ", s.vocab, " x ", s.hidden);
  op.buffers = {
      {.name = "ids", .shape = {s.T()}, .type = BenchType::kI32, .values = ids},
      {.name = "table", .shape = table, .scale = 1},
      {.name = "x", .shape = tokens},
      {.name = "dx", .shape = tokens, .scale = 1},
      {.name = "dtable", .shape = table, .type = BenchType::kAccum},
  };
  op.calls = {
      {.name = "forward",
       .run = [](const BenchRun& r) { EmbeddingForward(r.stream(), r["ids"], r["table"], r["x"]); },
       .outputs = {"x"},
       .moves = {{"ids"}, {"table", read}, {"x"}}},
      {.name = "backward",
       .run =
           [](const BenchRun& r) {
             EmbeddingBackward(r.stream(), r["ids"], r["dx"], 0, r["dtable"], r.work());
           },
       .outputs = {"dtable"},
       .moves = {{"ids"}, {"dx"}, {"dtable"}}},
  };
  return op;
}

BenchOp BenchRmsNorm(const BenchSizes& s) {
  const Shape tokens{s.T(), s.hidden};
  BenchOp op;
  op.sizes = StrCat(s.T(), " x ", s.hidden, ", with residual");
  op.buffers = {
      {.name = "x", .shape = tokens, .scale = 1},
      {.name = "residual", .shape = tokens, .scale = 1},
      {.name = "w", .shape = {s.hidden}, .scale = 1},
      {.name = "h", .shape = tokens},
      {.name = "y", .shape = tokens},
      {.name = "rstd", .shape = {s.T()}, .type = BenchType::kAccum},
      {.name = "dy", .shape = tokens, .scale = 1},
      {.name = "dresidual", .shape = tokens, .scale = 1},
      {.name = "dh", .shape = tokens},
      {.name = "dw", .shape = {s.hidden}, .type = BenchType::kAccum},
  };
  op.calls = {
      {.name = "forward",
       .run =
           [](const BenchRun& r) {
             RmsNormForward(r.stream(), {.x = r["x"],
                                         .residual = r["residual"],
                                         .w = r["w"],
                                         .h = r["h"],
                                         .y = r["y"],
                                         .rstd = r["rstd"]});
           },
       .outputs = {"h", "y", "rstd"},
       .moves = {{"x"}, {"residual"}, {"w"}, {"h"}, {"y"}, {"rstd"}}},
      {.name = "backward",
       .run =
           [](const BenchRun& r) {
             RmsNormBackward(r.stream(),
                             {.dy = r["dy"],
                              .h = r["h"],
                              .w = r["w"],
                              .rstd = r["rstd"],
                              .dresidual = r["dresidual"],
                              .dh = r["dh"],
                              .dw = r["dw"]},
                             r.work());
           },
       .outputs = {"dh", "dw"},
       .moves = {{"dy"}, {"h"}, {"w"}, {"rstd"}, {"dresidual"}, {"dh"}, {"dw"}}},
  };
  return op;
}

BenchOp BenchMlaRope(const BenchSizes& s) {
  const int64_t Q = s.nope + s.rope;
  const Shape keys{s.T(), s.heads, Q}, latent{s.T(), s.heads, s.nope + s.v}, values{s.T(), s.heads, s.v},
      rotated{s.T(), s.rope};
  BenchOp op;
  op.sizes = StrCat(s.T(), " tokens, ", s.heads, " heads of ", s.nope, " + ", s.rope, " and ", s.v);
  op.buffers = {
      {.name = "q", .shape = keys, .scale = 1},
      {.name = "kv", .shape = latent, .scale = 1},
      {.name = "k_rope", .shape = rotated, .scale = 1},
      {.name = "positions", .shape = {s.T()}, .type = BenchType::kI32, .values = Positions(s)},
      {.name = "table",
       .shape = {s.S, s.rope / 2, 2},
       .type = BenchType::kAccum,
       .values = RopeTable(s.S, s.rope)},
      {.name = "q_out", .shape = keys},
      {.name = "k_out", .shape = keys},
      {.name = "v_out", .shape = values},
      {.name = "dq_out", .shape = keys, .scale = 1},
      {.name = "dk_out", .shape = keys, .scale = 1},
      {.name = "dv_out", .shape = values, .scale = 1},
      {.name = "dq", .shape = keys},
      {.name = "dkv", .shape = latent},
      {.name = "dk_rope", .shape = rotated},
  };
  op.calls = {
      {.name = "forward",
       .run =
           [](const BenchRun& r) {
             MlaRopePackForward(r.stream(), {.q = r["q"],
                                             .kv = r["kv"],
                                             .k_rope = r["k_rope"],
                                             .positions = r["positions"],
                                             .table = r["table"],
                                             .q_out = r["q_out"],
                                             .k_out = r["k_out"],
                                             .v_out = r["v_out"]});
           },
       .outputs = {"q_out", "k_out", "v_out"},
       .moves = {{"q"}, {"kv"}, {"k_rope"}, {"positions"}, {"table"}, {"q_out"}, {"k_out"}, {"v_out"}}},
      {.name = "backward",
       .run =
           [](const BenchRun& r) {
             MlaRopePackBackward(r.stream(), {.dq_out = r["dq_out"],
                                              .dk_out = r["dk_out"],
                                              .dv_out = r["dv_out"],
                                              .positions = r["positions"],
                                              .table = r["table"],
                                              .dq = r["dq"],
                                              .dkv = r["dkv"],
                                              .dk_rope = r["dk_rope"]});
           },
       .outputs = {"dq", "dkv", "dk_rope"},
       .moves = {{"dq_out"}, {"dk_out"}, {"dv_out"}, {"positions"}, {"table"}, {"dq"}, {"dkv"}, {"dk_rope"}}},
  };
  return op;
}

BenchOp BenchGqaRope(const BenchSizes& s) {
  const Shape queries{s.T(), s.gqa_heads, s.gqa_width}, keys{s.T(), s.gqa_groups, s.gqa_width};
  BenchOp op;
  op.sizes = StrCat(s.T(), " tokens, ", s.gqa_heads, " + ", s.gqa_groups, " heads of ", s.gqa_width);
  op.buffers = {
      {.name = "q", .shape = queries, .scale = 1},
      {.name = "k", .shape = keys, .scale = 1},
      {.name = "positions", .shape = {s.T()}, .type = BenchType::kI32, .values = Positions(s)},
      {.name = "table",
       .shape = {s.S, s.gqa_width / 2, 2},
       .type = BenchType::kAccum,
       .values = RopeTable(s.S, s.gqa_width)},
      {.name = "dq", .shape = queries, .scale = 1},
      {.name = "dk", .shape = keys, .scale = 1},
  };
  op.calls = {
      {.name = "forward",
       .run =
           [](const BenchRun& r) {
             GqaRopeForward(r.stream(),
                            {.q = r["q"], .k = r["k"], .positions = r["positions"], .table = r["table"]});
           },
       .outputs = {"q", "k"},
       .moves = {{"q"}, {"q"}, {"k"}, {"k"}, {"positions"}, {"table"}}},
      {.name = "backward",
       .run =
           [](const BenchRun& r) {
             GqaRopeBackward(r.stream(),
                             {.q = r["dq"], .k = r["dk"], .positions = r["positions"], .table = r["table"]});
           },
       .outputs = {"dq", "dk"},
       .moves = {{"dq"}, {"dq"}, {"dk"}, {"dk"}, {"positions"}, {"table"}}},
  };
  return op;
}

BenchOp BenchSwiglu(const BenchSizes& s) {
  const Shape wide{s.window(), 2 * s.ffn}, narrow{s.window(), s.ffn};
  const int64_t used = s.routed();
  BenchOp op;
  op.sizes = StrCat(used, " of ", s.window(), " rows x ", s.ffn, ", weighted");
  op.buffers = {
      {.name = "gate_up", .shape = wide, .scale = 2, .used = used},
      {.name = "w", .shape = {s.window()}, .type = BenchType::kAccum, .scale = 1, .used = used},
      {.name = "num_rows", .shape = {1}, .type = BenchType::kI64, .values = {static_cast<double>(used)}},
      {.name = "act", .shape = narrow, .used = used},
      {.name = "dact", .shape = narrow, .scale = 1, .used = used},
      {.name = "dgate_up", .shape = wide, .used = used},
      {.name = "dw", .shape = {s.window()}, .type = BenchType::kAccum, .used = used},
      {.name = "act_again", .shape = narrow, .used = used},
  };
  op.calls = {
      {.name = "forward",
       .run =
           [](const BenchRun& r) {
             SwigluForward(
                 r.stream(),
                 {.gate_up = r["gate_up"], .w = r["w"], .num_rows = r["num_rows"], .act = r["act"]});
           },
       .outputs = {"act"},
       .moves = {{"gate_up"}, {"w"}, {"act"}}},
      {.name = "backward",
       .run =
           [](const BenchRun& r) {
             SwigluBackward(r.stream(), {.dact = r["dact"],
                                         .gate_up = r["gate_up"],
                                         .w = r["w"],
                                         .num_rows = r["num_rows"],
                                         .dgate_up = r["dgate_up"],
                                         .dw = r["dw"],
                                         .act = r["act_again"]});
           },
       .outputs = {"dgate_up", "dw", "act_again"},
       .moves = {{"dact"}, {"gate_up"}, {"w"}, {"dgate_up"}, {"dw"}, {"act_again"}}},
  };
  return op;
}

BenchOp BenchElementwise(const BenchSizes& s) {
  const Shape tokens{s.T(), s.hidden};
  BenchOp op;
  op.sizes = StrCat(s.T(), " x ", s.hidden);
  op.buffers = {
      {.name = "a", .shape = tokens, .scale = 1},
      {.name = "b", .shape = tokens, .scale = 1},
      {.name = "sum", .shape = tokens},
      {.name = "master", .shape = tokens, .type = BenchType::kAccum, .scale = 1},
      {.name = "rounded", .shape = tokens},
      {.name = "filled", .shape = tokens},
  };
  op.calls = {
      {.name = "add",
       .run = [](const BenchRun& r) { Add(r.stream(), r["a"], r["b"], r["sum"]); },
       .outputs = {"sum"},
       .moves = {{"a"}, {"b"}, {"sum"}}},
      {.name = "copy",
       .run = [](const BenchRun& r) { Copy(r.stream(), r["master"], r["rounded"]); },
       .outputs = {"rounded"},
       .moves = {{"master"}, {"rounded"}}},
      {.name = "fill",
       .run = [](const BenchRun& r) { Fill(r.stream(), 0.5, r["filled"]); },
       .outputs = {"filled"},
       .moves = {{"filled"}}},
  };
  return op;
}

// The router's operands: hidden states in, scores out.
BenchOp BenchSplitBf16(const BenchSizes& s) {
  const Shape tokens{s.T(), s.hidden}, scores{s.T(), s.experts};
  BenchOp op;
  op.sizes = StrCat(s.T(), " x ", s.hidden, " and ", s.experts);
  op.buffers = {
      {.name = "x", .shape = tokens, .type = BenchType::kF32, .scale = 1},
      {.name = "first", .shape = tokens, .type = BenchType::kBF16},
      {.name = "second", .shape = tokens, .type = BenchType::kBF16},
      {.name = "third", .shape = tokens, .type = BenchType::kBF16},
      {.name = "a", .shape = scores, .type = BenchType::kF32, .scale = 1},
      {.name = "b", .shape = scores, .type = BenchType::kF32, .scale = 1e-2},
      {.name = "sum", .shape = scores, .type = BenchType::kF32, .scale = 1},
  };
  op.calls = {
      {.name = "split",
       .run =
           [](const BenchRun& r) {
             SplitBf16(r.stream(), r["x"],
                       {{.y = r["first"], .term = 0}, {.y = r["second"], .term = 1}, {.y = r["third"], .term = 2}});
           },
       .outputs = {"first", "second", "third"},
       .moves = {{"x"}, {"first"}, {"second"}, {"third"}}},
      {.name = "add terms",
       .run = [](const BenchRun& r) { AddTerms(r.stream(), {r["a"], r["b"]}, 1, r["sum"]); },
       .outputs = {"sum"},
       .moves = {{"a"}, {"b"}, {"sum"}, {"sum"}}},
  };
  return op;
}

BenchOp BenchRandomNormal(const BenchSizes& s) {
  const Shape shape{2 * s.ffn, s.hidden};
  const uint64_t seed = s.seed;
  BenchOp op;
  op.sizes = StrCat(shape[0], " x ", shape[1]);
  op.buffers = {{.name = "master", .shape = shape, .type = BenchType::kAccum}, {.name = "weight", .shape = shape}};
  op.calls = {{.name = "values",
               .run =
                   [=](const BenchRun& r) {
                     RandomNormal(r.stream(), {.seed = seed,
                                               .number_stream = 7,
                                               .scale = 0.02,
                                               .spec = ShardSpec::Replicated({shape[0], shape[1]}),
                                               .y = r["master"],
                                               .copy = r["weight"]});
                   },
               .outputs = {"master", "weight"},
               .moves = {{"master"}, {"weight"}}}};
  return op;
}

}  // namespace yardmaster
