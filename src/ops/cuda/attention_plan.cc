#include "src/ops/cuda/attention_plan.h"

#include <algorithm>

namespace yardmaster::cuda {
namespace {

constexpr int64_t kUnfusedGoal = int64_t{256} << 20;
constexpr int64_t kUnfusedRows = 512;
constexpr int64_t kCudnnFixed = int64_t{32} << 20;  // counters and alignment inside cuDNN; the forward needs nothing else

int64_t RoundUp(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// The largest divisor of n that is at most `limit` (and at least 1).
int64_t DivisorUpTo(int64_t n, int64_t limit) {
  for (int64_t d = std::min(n, limit); d > 1; --d) {
    if (n % d == 0) return d;
  }
  return 1;
}

}  // namespace

AttentionShape::AttentionShape(const AttentionArgs& g)
    : B(g.q.dim(0)),
      S(g.q.dim(1)),
      H(g.q.dim(2)),
      G(g.k.dim(2)),
      Q(g.q.dim(3)),
      V(g.v.dim(3)),
      type(g.q.dtype()),
      documents(g.document_start.defined()),
      max_workspace(g.max_workspace) {}

bool CudnnMayRun(const AttentionShape& a) {
  return a.type == DType::kBF16 && !a.documents && a.Q % 8 == 0 && a.V % 8 == 0 && a.Q <= 256 && a.V <= 256 && a.S >= 2;
}

bool CudnnRunsOn(const AttentionShape& a, int sm) {
  const bool wide = a.Q > 128 || a.V > 128;  // before Hopper, and on its consumer successors, heads are at most 128 wide
  return CudnnMayRun(a) && (!wide || sm == 90 || sm == 100 || sm == 103);
}

CudnnCut CutCudnnForward(const AttentionShape& a) {
  return {.samples = a.B, .key_heads = a.G, .workspace = kCudnnFixed + a.B * a.H * a.S * 8};
}

CudnnCut CutCudnnBackward(const AttentionShape& a, bool deterministic) {
  const int64_t s = RoundUp(a.S, 128);
  // Per query head: dP in BF16, or dq in FP32; <do, o>; and dk, dv per query head where several share a key head.
  int64_t head = (deterministic ? s * s * 2 : s * a.Q * 4) + s * 16;
  if (a.rep() > 1) head += s * (a.Q + a.V) * 4;
  const int64_t key_head = head * a.rep(), room = a.max_workspace - kCudnnFixed;
  CudnnCut cut;
  cut.key_heads = DivisorUpTo(a.G, std::max<int64_t>(1, room / key_head));
  if (cut.key_heads == a.G) cut.samples = std::clamp<int64_t>(room / (key_head * a.G), 1, a.B);
  cut.workspace = kCudnnFixed + cut.samples * cut.key_heads * key_head;
  return cut;
}

UnfusedCut CutUnfused(const AttentionShape& a, bool backward) {
  const int64_t accum = a.type == DType::kF64 ? 8 : 4, matrices = backward ? 2 : 1;
  UnfusedCut cut;
  cut.rows = std::min(a.S, kUnfusedRows);
  cut.ld = RoundUp(a.S, 8);
  const int64_t scores = cut.rows * cut.ld * accum, probabilities = a.type == DType::kBF16 ? cut.rows * cut.ld * 2 : 0;
  const int64_t gradients = backward && a.type == DType::kBF16 ? a.S * (a.Q + a.V) * accum : 0;
  const int64_t head = matrices * (scores + probabilities) + gradients;
  cut.key_heads = std::clamp<int64_t>(kUnfusedGoal / std::max<int64_t>(head, 1), 1, a.G);
  cut.scores = RoundUp(cut.key_heads * scores, 256);
  cut.probabilities = RoundUp(cut.key_heads * probabilities, 256);
  cut.gradients = RoundUp(cut.key_heads * gradients, 256);
  cut.workspace = matrices * (cut.scores + cut.probabilities) + cut.gradients;
  return cut;
}

int64_t AttentionWorkspaceBytes(const AttentionShape& a, bool backward, bool deterministic) {
  if (a.B * a.S * a.H == 0) return 0;
  int64_t bytes = CutUnfused(a, backward).workspace;
  if (CudnnMayRun(a)) {
    bytes = std::max(bytes, backward ? CutCudnnBackward(a, deterministic).workspace : CutCudnnForward(a).workspace);
  }
  return bytes;
}

}  // namespace yardmaster::cuda
