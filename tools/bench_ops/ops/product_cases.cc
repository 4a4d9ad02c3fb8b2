// The ops that are bound by arithmetic: products, attention, the output head.
#include <algorithm>
#include <cmath>

#include "src/base/strings.h"
#include "src/ops/attention.h"
#include "src/ops/gemm.h"
#include "src/ops/grouped_gemm.h"
#include "src/ops/linear_cross_entropy.h"
#include "tools/bench_ops/ops/op_cases.h"
#include "tools/bench_ops/ops/random_inputs.h"

namespace yardmaster {
namespace {

double Product(int64_t a, int64_t b, int64_t c) {
  return 2.0 * static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

// Heads H of width Q (values V), keys of G heads. Pairs (i, j <= i) alone are counted. Backward: p again, dp,
// dv, dq, dk.
BenchOp Attention(const BenchSizes& s, int64_t H, int64_t G, int64_t Q, int64_t V) {
  // Where few keys share a row, gradients are differences of nearly equal numbers.
  const int64_t S = std::max<int64_t>(s.S, 32);
  const Shape q{s.B, S, H, Q}, k{s.B, S, G, Q}, v{s.B, S, G, V}, o{s.B, S, H, V};
  const double pairs =
      0.5 * static_cast<double>(s.B * H) * static_cast<double>(S) * static_cast<double>(S + 1);
  const double scale = 1 / std::sqrt(static_cast<double>(Q));
  BenchOp op;
  op.sizes = StrCat(s.B, " x ", S, ", ", H, " heads of ", Q, " and ", V, ", ", G, " of keys, causal");
  op.buffers = {
      {.name = "q", .shape = q, .scale = 1},
      {.name = "k", .shape = k, .scale = 1},
      {.name = "v", .shape = v, .scale = 1},
      {.name = "o", .shape = o},
      {.name = "lse", .shape = {s.B, H, S}, .type = BenchType::kAccum},
      {.name = "do", .shape = o, .scale = 1},
      {.name = "dq", .shape = q},
      {.name = "dk", .shape = k},
      {.name = "dv", .shape = v},
  };
  const auto args = [scale](const BenchRun& r) {
    return AttentionArgs{.q = r["q"], .k = r["k"], .v = r["v"], .scale = scale, .o = r["o"], .lse = r["lse"]};
  };
  op.calls = {
      {.name = "forward",
       .run = [=](const BenchRun& r) { AttentionForward(r.stream(), args(r), r.work()); },
       .outputs = {"o", "lse"},
       .moves = {{"q"}, {"k"}, {"v"}, {"o"}, {"lse"}},
       .flops = 2 * pairs * static_cast<double>(Q + V)},
      {.name = "backward",
       .run =
           [=](const BenchRun& r) {
             AttentionBackward(
                 r.stream(),
                 {.forward = args(r), .do_ = r["do"], .dq = r["dq"], .dk = r["dk"], .dv = r["dv"]}, r.work());
           },
       .outputs = {"dq", "dk", "dv"},
       .moves = {{"q"}, {"k"}, {"v"}, {"o"}, {"lse"}, {"do"}, {"dq"}, {"dk"}, {"dv"}},
       .flops = 2 * pairs * static_cast<double>(3 * Q + 2 * V),
       .tolerance_bf16 = 2e-2},  // o is rounded before <do, o> is taken from sums that nearly equal it
  };
  return op;
}

}  // namespace

BenchOp BenchAttentionMla(const BenchSizes& s) {
  return Attention(s, s.heads, s.heads, s.nope + s.rope, s.v);
}

BenchOp BenchAttentionGqa(const BenchSizes& s) {
  return Attention(s, s.gqa_heads, s.gqa_groups, s.gqa_width, s.gqa_width);
}

// The output projection of latent attention.
BenchOp BenchGemm(const BenchSizes& s) {
  const int64_t M = s.T(), N = s.hidden, K = s.heads * s.v;
  BenchOp op;
  op.sizes = StrCat(M, " x ", N, " x ", K);
  op.buffers = {
      {.name = "x", .shape = {M, K}, .scale = 1},
      {.name = "w", .shape = {N, K}, .scale = 0.02},
      {.name = "y", .shape = {M, N}},
      {.name = "dy", .shape = {M, N}, .scale = 1},
      {.name = "dx", .shape = {M, K}},
      {.name = "dw", .shape = {N, K}, .type = BenchType::kAccum, .scale = 1},
  };
  op.calls = {
      {.name = "forward",
       .run =
           [](const BenchRun& r) {
             Gemm(r.stream(), {.a = r["x"], .b = r["w"], .d = r["y"], .trans_b = true});
           },
       .outputs = {"y"},
       .moves = {{"x"}, {"w"}, {"y"}},
       .flops = Product(M, N, K)},
      {.name = "dgrad",
       .run = [](const BenchRun& r) { Gemm(r.stream(), {.a = r["dy"], .b = r["w"], .d = r["dx"]}); },
       .outputs = {"dx"},
       .moves = {{"dy"}, {"w"}, {"dx"}},
       .flops = Product(M, N, K)},
      {.name = "wgrad, beta 1",
       .run =
           [](const BenchRun& r) {
             Gemm(r.stream(), {.a = r["dy"], .b = r["x"], .d = r["dw"], .trans_a = true, .beta = 1});
           },
       .outputs = {"dw"},
       .moves = {{"dy"}, {"x"}, {"dw"}, {"dw"}},
       .flops = Product(M, N, K)},
  };
  return op;
}

// The gate and up projections of the experts, fused.
BenchOp BenchGroupedGemm(const BenchSizes& s) {
  const int64_t R = s.window(), N = 2 * s.ffn, K = s.hidden, L = s.experts;
  const double flops = Product(s.routed(), N, K);
  BenchOp op;
  op.sizes = StrCat(s.routed(), " of ", R, " rows, ", L, " experts, ", N, " x ", K);
  op.buffers = {
      {.name = "offsets",
       .shape = {L + 1},
       .type = BenchType::kI64,
       .values = RowsOfExperts(s, RandomExperts(s)).offsets},
      {.name = "x", .shape = {R, K}, .scale = 1, .used = s.routed()},
      {.name = "w", .shape = {L, N, K}, .scale = 0.02},
      {.name = "y", .shape = {R, N}, .used = s.routed()},
      {.name = "dy", .shape = {R, N}, .scale = 1, .used = s.routed()},
      {.name = "dx", .shape = {R, K}, .used = s.routed()},
      {.name = "dw", .shape = {L, N, K}, .type = BenchType::kAccum, .scale = 1},
  };
  op.calls = {
      {.name = "forward",
       .run = [](const BenchRun& r) { GroupedGemmForward(r.stream(), r["x"], r["w"], r["offsets"], r["y"]); },
       .outputs = {"y"},
       .moves = {{"x"}, {"w"}, {"y"}},
       .flops = flops},
      {.name = "dgrad",
       .run =
           [](const BenchRun& r) {
             GroupedGemmBackwardInput(r.stream(), r["dy"], r["w"], r["offsets"], r["dx"]);
           },
       .outputs = {"dx"},
       .moves = {{"dy"}, {"w"}, {"dx"}},
       .flops = flops},
      {.name = "wgrad, beta 1",
       .run =
           [](const BenchRun& r) {
             GroupedGemmBackwardWeight(r.stream(), r["dy"], r["x"], r["offsets"], 1, r["dw"]);
           },
       .outputs = {"dw"},
       .moves = {{"dy"}, {"x"}, {"dw"}, {"dw"}},
       .flops = flops},
  };
  return op;
}

BenchOp BenchCrossEntropy(const BenchSizes& s) {
  const Shape tokens{s.T(), s.hidden}, head{s.vocab, s.hidden};
  const double product = Product(s.T(), s.hidden, s.vocab);
  std::vector<double> targets;
  for (const double x : UniformValues(s, "targets", s.T(), 0, 1))
    targets.push_back(x < 0.1 ? -1 : std::floor(x * static_cast<double>(s.vocab)));
  const double grad_scale = 1 / static_cast<double>(s.T());
  BenchOp op;
  op.sizes = StrCat(s.T(), " x ", s.hidden, ", vocabulary ", s.vocab);
  op.buffers = {
      {.name = "x", .shape = tokens, .scale = 1},
      {.name = "head", .shape = head, .scale = 0.02},
      {.name = "targets", .shape = {s.T()}, .type = BenchType::kI32, .values = targets},
      {.name = "loss_sum", .shape = {1}, .type = BenchType::kF64, .values = {0}},
      {.name = "valid", .shape = {1}, .type = BenchType::kI64, .values = {0}},
      {.name = "dx", .shape = tokens},
      {.name = "dhead", .shape = head, .type = BenchType::kAccum},
  };
  op.calls = {
      {.name = "loss alone",
       .run =
           [](const BenchRun& r) {
             LinearCrossEntropy(r.stream(),
                                {.x = r["x"],
                                 .head = r["head"],
                                 .targets = r["targets"],
                                 .loss_sum = r["loss_sum"],
                                 .valid = r["valid"]},
                                r.work());
           },
       .outputs = {"loss_sum", "valid"},
       .moves = {{"x"}, {"head"}, {"targets"}},
       .flops = product},
      {.name = "with gradients",
       .run =
           [grad_scale](const BenchRun& r) {
             LinearCrossEntropy(r.stream(),
                                {.x = r["x"],
                                 .head = r["head"],
                                 .targets = r["targets"],
                                 .grad_scale = grad_scale,
                                 .loss_sum = r["loss_sum"],
                                 .valid = r["valid"],
                                 .dx = r["dx"],
                                 .dhead = r["dhead"]},
                                r.work());
           },
       .outputs = {"loss_sum", "valid", "dx", "dhead"},
       .moves = {{"x"}, {"head"}, {"targets"}, {"dx"}, {"dhead"}},
       .flops = 3 * product},
  };
  return op;
}

}  // namespace yardmaster
