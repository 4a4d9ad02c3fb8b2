#include "src/base/philox.h"
#include "tools/bench_ops/bench_op.h"
#include "tools/bench_ops/ops/op_cases.h"

namespace yardmaster {

BenchSizes ProxySizes(int64_t tokens) {
  BenchSizes s;
  s.B = tokens % 2 == 0 ? 2 : 1;
  s.S = tokens / s.B;
  return s;
}

BenchSizes RandomSizes(uint64_t seed) {
  uint64_t drawn = 0;
  const auto pick = [&](std::initializer_list<int64_t> of) {
    const double u = PhiloxUniform(seed, StreamOf("sizes"), drawn++);
    return *(of.begin() + static_cast<int64_t>(u * static_cast<double>(of.size())));
  };
  BenchSizes s;
  s.seed = seed;
  s.B = pick({1, 2, 3});
  s.S = pick({1, 7, 31, 64, 101, 130});
  s.hidden = pick({64, 72, 136, 257, 384, 520});
  s.experts = pick({8, 16, 40, 64});
  s.groups = pick({1, 4, 8});
  s.topk_groups = s.groups == 1 ? 1 : s.groups / 2;
  s.top_k = pick({1, 2, 3, 4});  // at most the experts of the groups that stay: 8 / 2
  s.ffn = pick({32, 40, 129, 192});
  s.heads = pick({1, 2, 5});
  s.gqa_groups = pick({1, 2});
  s.gqa_heads = s.gqa_groups * pick({2, 4});
  s.vocab = pick({97, 257, 1000, 2056});
  s.spare_rows = pick({0, 1, 77});
  return s;
}

const std::vector<BenchOpEntry>& BenchOps() {
  static const std::vector<BenchOpEntry> ops = {
      {"embedding", "rows of the table by token, and their gradient", BenchEmbedding},
      {"rmsnorm", "RMSNorm behind a residual", BenchRmsNorm},
      {"gemm", "dense products (attention's output projection)", BenchGemm},
      {"mla-rope", "rotation and packing of latent attention", BenchMlaRope},
      {"gqa-rope", "rotation of grouped queries and keys", BenchGqaRope},
      {"attention-mla", "causal attention, heads of 192 and 128", BenchAttentionMla},
      {"attention-gqa", "causal attention, grouped queries of 128", BenchAttentionGqa},
      {"router", "scores, groups, top-k, weights, counts", BenchRouter},
      {"router-balance", "balance losses and the z-loss", BenchRouterBalance},
      {"router-capacity", "pairs over an expert's capacity", BenchRouterCapacity},
      {"permute", "token rows to experts' rows on one rank", BenchPermute},
      {"pad-rows", "experts' rows padded to capacity, and back", BenchPadRows},
      {"grouped-gemm", "the experts' products over ragged rows", BenchGroupedGemm},
      {"swiglu", "SwiGLU with the router's weights", BenchSwiglu},
      {"unpermute", "experts' rows to tokens on one rank, with residual and shared expert", BenchUnpermute},
      {"cross-entropy", "the output head and its loss, in chunks", BenchCrossEntropy},
      {"mtp-targets", "targets of multi-token prediction", BenchMtpTargets},
      {"norm", "squares of gradients, and the step's verdict", BenchNorm},
      {"adamw", "the update of many tensors", BenchAdamW},
      {"router-bias", "the bias that balances the experts", BenchRouterBias},
      {"elementwise", "add, convert, fill", BenchElementwise},
      {"split-bf16", "an F32 matrix as BF16 terms, and sums of F32 terms", BenchSplitBf16},
      {"random-normal", "initial weights", BenchRandomNormal},
  };
  return ops;
}

}  // namespace yardmaster
