#include "src/ops/router_capacity.h"

#include <algorithm>
#include <cmath>

#include "src/ops/pad_rows.h"
#include "src/ops/permute.h"
#include "src/ops/router.h"
#include "src/tensor/safetensors.h"
#include "tests/catch.h"
#include "tests/ops/op_check.h"

namespace yardmaster::testing {
namespace {

TEST_CASE("router capacity: the balanced load times the factor, rounded up, at most every token") {
  CHECK(ExpertCapacity(96, 4, 16, 1.0) == 24);
  CHECK(ExpertCapacity(96, 4, 16, 1.25) == 30);
  CHECK(ExpertCapacity(7, 2, 4, 1.0) == 4);
  CHECK(ExpertCapacity(10, 2, 4, 100) == 10);
}

struct Kept {
  std::vector<double> idx;
  double dropped = 0;
};

Kept Drop(const std::vector<double>& idx, const std::vector<double>& w, int64_t K, int64_t E, int64_t C,
          DropPolicy policy) {
  CpuFixture cpu;
  const Shape shape{static_cast<int64_t>(idx.size()) / K, K};
  const RouterCapacityArgs args{.idx = cpu.Make(DType::kI32, shape, idx),
                                .w = cpu.Make(DType::kF32, shape, w),
                                .num_experts = E,
                                .capacity = C,
                                .policy = policy,
                                .kept_idx = cpu.Make(DType::kI32, shape),
                                .dropped = cpu.Make(DType::kF64, {1}, {10})};
  RouterCapacity(cpu.stream(), args, cpu.work());
  return {ValuesOf(args.kept_idx), ValuesOf(args.dropped)[0] - 10};
}

TEST_CASE("router capacity: the largest weights or the first tokens stay; ties: the lower token") {
  using V = std::vector<double>;
  const V idx = {0, 1, 0, 2, 0, 1, 0, 2};
  const V w = {0.1, 0.9, 0.5, 0.5, 0.5, 0.5, 0.7, 0.3};
  Kept k = Drop(idx, w, 2, 3, 2, DropPolicy::kProbs);
  CHECK(k.idx == V{-1, 1, 0, 2, -1, 1, 0, 2});
  CHECK(k.dropped == 2);
  k = Drop(idx, w, 2, 3, 2, DropPolicy::kPosition);
  CHECK(k.idx == V{0, 1, 0, 2, -1, 1, -1, 2});
  CHECK(k.dropped == 2);
  CHECK(Drop(idx, w, 2, 3, 4, DropPolicy::kProbs).idx == idx);
  CHECK(Drop(idx, w, 2, 3, 0, DropPolicy::kPosition).dropped == 8);
  const V nan(8, std::nan(""));
  CHECK(Drop(idx, nan, 2, 3, 1, DropPolicy::kProbs).dropped == 5);
}

// The rows that each expert computes when the kept pairs are dispatched and padded to C: [E, C], the token of a
// row, -1 for a row of padding, and its weight.
struct PaddedExperts {
  std::vector<double> token, w;
};

PaddedExperts Pad(CpuFixture& cpu, const Tensor& kept, const Tensor& w, int64_t E, int64_t C) {
  const int64_t n_T = kept.dim(0), K = kept.dim(1), R = n_T * K;
  const Tensor offsets = cpu.Make(DType::kI64, {E + 1}), source = cpu.Make(DType::kI64, {R});
  PermutePlan(cpu.stream(),
              {.idx = kept, .offsets = offsets, .slot = cpu.Make(DType::kI64, {n_T, K}), .source = source},
              cpu.Make(DType::kI32, {1}), cpu.work());
  // Numbered from 1, so that a row of zeros is none of them.
  std::vector<double> numbers(static_cast<size_t>(n_T));
  for (size_t t = 0; t < numbers.size(); ++t) numbers[t] = static_cast<double>(t) + 1;
  const Tensor rows = cpu.Make(DType::kF32, {R, 1}), w_R = cpu.Make(DType::kF32, {R});
  const Tensor tokens = cpu.Make(DType::kF32, {E * C, 1}), weights = cpu.Make(DType::kF32, {E * C});
  Permute(cpu.stream(), {.x_TD = cpu.Make(DType::kF32, {n_T, 1}, numbers),
                         .w_TK = w,
                         .source = source,
                         .offsets = offsets,
                         .x_RD = rows,
                         .w_R = w_R,
                         .top_k = K});
  PadRows(cpu.stream(), {.ragged = rows, .offsets = offsets, .padded = tokens});
  PadRows(cpu.stream(), {.ragged = w_R, .offsets = offsets, .padded = weights});
  PaddedExperts out{ValuesOf(tokens), ValuesOf(weights)};
  for (double& t : out.token) t -= 1;
  return out;
}

// Against the reference's padded map and probabilities. It fills up with tokens that did not choose the
// expert, at probability zero and in an order it leaves open; here rows of zeros take their place.
void CheckPadded(const PaddedExperts& ours, const std::vector<double>& chosen, const std::vector<double>& map,
                 const std::vector<double>& probs, int64_t n_T, int64_t E, int64_t C) {
  std::vector<double> our_map(map.size()), our_probs(map.size()), their_map = map;
  std::vector<int64_t> our_padding(static_cast<size_t>(E)), their_padding(static_cast<size_t>(E));
  for (int64_t e = 0; e < E; ++e) {
    for (int64_t i = 0; i < C; ++i) {
      const auto row = static_cast<size_t>(e * C + i);
      if (ours.token[row] < 0) {
        CHECK(ours.w[row] == 0);
        ++our_padding[static_cast<size_t>(e)];
        continue;
      }
      const size_t at = static_cast<size_t>(ours.token[row]) * static_cast<size_t>(E) + static_cast<size_t>(e);
      our_map[at] = 1;
      our_probs[at] = ours.w[row];
    }
    int64_t rows = 0;
    for (int64_t t = 0; t < n_T; ++t) {
      const auto at = static_cast<size_t>(t * E + e);
      rows += map[at] != 0;
      if (map[at] == 0 || chosen[at] != 0) continue;
      CHECK(probs[at] == 0);
      their_map[at] = 0;
      ++their_padding[static_cast<size_t>(e)];
    }
    CHECK(rows == C);
  }
  CHECK(our_map == their_map);
  CHECK(our_padding == their_padding);
  CHECK(RelativeL2(our_probs, probs) < 1e-6);
}

// Plainly: how many pairs of the same expert come before this one decides.
void CheckCapacity(int64_t E, int64_t K, int64_t C, DropPolicy policy, const std::vector<double>& idx,
                   const std::vector<double>& w) {
  const Shape shape{static_cast<int64_t>(idx.size()) / K, K};
  OpDeclaration op;
  op.name = "router capacity";
  op.inputs = {{"idx", shape, idx, false, DType::kI32}, {"w", shape, w, false}};
  op.outputs = {{"kept_idx", shape, false, DType::kI32}, {"dropped", {1}, false}};
  op.forward = [=](const OpRun& r) {
    const Tensor dropped = r.Scratch(DType::kF64, {1}, {10});
    RouterCapacity(r.stream(),
                   {.idx = r["idx"],
                    .w = r["w"],
                    .num_experts = E,
                    .capacity = C,
                    .policy = policy,
                    .kept_idx = r["kept_idx"],
                    .dropped = dropped},
                   r.work());
    r.Set(r["dropped"], r.Values(dropped));
  };
  op.reference = [=](const OpValues& in, OpValues& out) {
    const std::vector<double>& v = in.at("w");
    double dropped = 10;
    for (size_t p = 0; p < idx.size(); ++p) {
      int64_t before = 0;
      for (size_t q = 0; q < idx.size(); ++q) {
        if (q == p || idx[q] != idx[p]) continue;
        const bool nan_p = std::isnan(v[p]), nan_q = std::isnan(v[q]);
        const bool equal = (nan_p && nan_q) || v[p] == v[q];
        const bool larger = nan_p ? !nan_q : !nan_q && v[q] > v[p];
        before += policy == DropPolicy::kPosition || equal ? q < p : larger;
      }
      out["kept_idx"].push_back(before < C ? idx[p] : -1);
      dropped += before < C ? 0 : 1;
    }
    out["dropped"] = {dropped};
  };
  CheckOp(op);
}

TEST_CASE("router capacity: random loads, ties, NaN, both signs, one expert with everything") {
  const int64_t n_T = 900, E = 16, K = 4;
  std::vector<double> idx, one;
  for (int64_t t = 0; t < n_T; ++t) {
    const int64_t first = t * t % 97 % 13, step = t % 4 == 0 ? 2 : 1;  // ascending; the lower experts more often
    for (int64_t k = 0; k < K; ++k) idx.push_back(static_cast<double>((first % 10) + k * step));
    one.push_back(5);
  }
  const std::vector<double> fine = RandomValues("w", n_T * K, -1, 1);
  std::vector<double> coarse = fine, broken = fine;
  for (double& x : coarse) x = std::round(4 * x) / 4;  // -0 among them
  for (size_t i = 0; i < broken.size(); i += 3) broken[i] = std::nan("");
  for (const DropPolicy policy : {DropPolicy::kProbs, DropPolicy::kPosition}) {
    for (const int64_t C : {int64_t{0}, int64_t{1}, int64_t{128}, int64_t{225}, n_T}) {
      INFO("capacity " << C << (policy == DropPolicy::kProbs ? ", probs" : ", position"));
      CheckCapacity(E, K, C, policy, idx, fine);
      CheckCapacity(E, K, C, policy, idx, coarse);
      CheckCapacity(E, K, C, policy, idx, broken);
      CheckCapacity(E, 1, C, policy, one, RandomValues("one", n_T, -1, 1));
    }
  }
}

void CheckGolden(const std::string& name, RouterSpec spec) {
  const SafetensorsFile file("tests/golden/router/router.safetensors", ExitCode::kData);
  const auto get = [&](const std::string& what) { return ValuesOf(file.Get(name + "." + what)); };
  const int64_t n_T = file.Get(name + ".logits").dim(0), E = spec.num_experts, K = spec.top_k;
  const std::vector<double> dprobs = get("dprobs");
  int checked = 0, padded = 0;
  for (const double factor : {0.5, 1.0, 1.25}) {
    for (const DropPolicy policy : {DropPolicy::kProbs, DropPolicy::kPosition}) {
      const std::string which = std::string("capacity") +
                                (factor == 0.5   ? "0.5"
                                 : factor == 1.0 ? "1.0"
                                                 : "1.25") +
                                (policy == DropPolicy::kProbs ? ".probs" : ".position");
      INFO(name << " " << which);
      CpuFixture cpu;
      const RouterArgs args{
          .logits = cpu.Make(DType::kF32, {n_T, E}, get("logits")),
          .bias = file.Has(name + ".bias") ? cpu.Make(DType::kF32, {E}, get("bias")) : Tensor(),
          .scores = cpu.Make(DType::kF32, {n_T, E}),
          .idx = cpu.Make(DType::kI32, {n_T, K}),
          .w = cpu.Make(DType::kF32, {n_T, K})};
      RouterForward(cpu.stream(), spec, args);
      const Tensor kept = cpu.Make(DType::kI32, {n_T, K}), dropped = cpu.Make(DType::kF64, {1});
      RouterCapacity(cpu.stream(),
                     {.idx = args.idx,
                      .w = args.w,
                      .num_experts = E,
                      .capacity = ExpertCapacity(n_T, K, E, factor),
                      .policy = policy,
                      .kept_idx = kept,
                      .dropped = dropped},
                     cpu.work());
      const std::vector<double> idx = ValuesOf(kept), w = ValuesOf(args.w);
      std::vector<double> map(static_cast<size_t>(n_T * E)), probs(map.size()), dw;
      for (int64_t p = 0; p < n_T * K; ++p) {
        const double e = idx[static_cast<size_t>(p)];
        const size_t at = e < 0 ? 0 : static_cast<size_t>(p / K * E + static_cast<int64_t>(e));
        if (e >= 0) map[at] = 1, probs[at] = w[static_cast<size_t>(p)];
        dw.push_back(e >= 0 ? dprobs[at] : 0);
      }
      CHECK(map == get(which + ".map"));
      CHECK(RelativeL2(probs, get(which + ".probs")) < 1e-6);
      double in_map = 0;
      for (const double m : map) in_map += m;
      CHECK(ValuesOf(dropped)[0] == static_cast<double>(n_T * K) - in_map);
      ++checked;
      const std::string pad = which + ".pad";
      if (policy == DropPolicy::kProbs) {
        const int64_t C = ExpertCapacity(n_T, K, E, factor);
        CheckPadded(Pad(cpu, kept, args.w, E, C), get("map"), get(pad + ".map"), get(pad + ".probs"), n_T, E,
                    C);
        ++padded;
      }
      if (!file.Has(name + "." + which + ".dlogits")) continue;
      const Tensor d = cpu.Make(DType::kF32, {n_T, E});
      RouterBackward(
          cpu.stream(), spec,
          {.dw = cpu.Make(DType::kF32, {n_T, K}, dw), .scores = args.scores, .idx = args.idx, .dlogits = d});
      CHECK(RelativeL2(ValuesOf(d), get(which + ".dlogits")) < 1e-5);
      // Padding has weight zero and no way back to a logit.
      if (policy == DropPolicy::kProbs) CHECK(RelativeL2(ValuesOf(d), get(pad + ".dlogits")) < 1e-5);
    }
  }
  CHECK(checked == 6);
  CHECK(padded == 3);
}

TEST_CASE("router capacity: Megatron-Core's results") {
  CheckGolden("v3", {.num_experts = 16, .top_k = 4, .num_groups = 4, .topk_groups = 2, .scaling = 2.5});
  CheckGolden("sigmoid_nogroup", {.num_experts = 16, .top_k = 2});
  CheckGolden("softmax_topk_then_softmax", {.num_experts = 8, .top_k = 2, .score = RouterScore::kSoftmax});
  CheckGolden("softmax_then_topk",
              {.num_experts = 16, .top_k = 4, .score = RouterScore::kSoftmax, .normalise = false});
}

}  // namespace
}  // namespace yardmaster::testing
