#include "src/ops/attention.h"

#include "src/ops/cpu/attention_cpu.h"
#include "src/ops/cuda/attention_plan.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/attention_cuda.h"
#endif

namespace yardmaster {
namespace {

Tensor CudaWorkspace(Arena& work, const AttentionArgs& g, bool backward, bool deterministic) {
  return work.Allocate("attention workspace", DType::kU8,
                       {cuda::AttentionWorkspaceBytes(cuda::AttentionShape(g), backward, deterministic)});
}

// A causal mask needs half of the products; backward, without what it computes again, twice as many.
double CausalFlops(const AttentionArgs& g) {
  return static_cast<double>(g.q.elements() + g.o.elements()) * static_cast<double>(g.q.dim(1));
}
double Bytes(const AttentionArgs& g) {
  return static_cast<double>(g.q.bytes() + g.k.bytes() + g.v.bytes() + g.o.bytes());
}

void CheckForward(const OpArgs& check, const AttentionArgs& g) {
  check.Rank("q", g.q, 4);
  check.Rank("k", g.k, 4);
  check.Rank("v", g.v, 4);
  const DType type = check.WorkType("q", g.q);
  const int64_t B = g.q.dim(0), S = g.q.dim(1), H = g.q.dim(2), Q = g.q.dim(3), G = g.k.dim(2), V = g.v.dim(3);
  YM_CHECK(G > 0 && H % G == 0, "Attention: ", H, " query heads share ", G, " key heads");
  check.Contiguous("q", g.q, type, {B, S, H, Q});
  check.Contiguous("k", g.k, type, {B, S, G, Q});
  check.Contiguous("v", g.v, type, {B, S, G, V});
  check.Contiguous("o", g.o, type, {B, S, H, V});
  check.Contiguous("lse", g.lse, OpArgs::AccumType(type), {B, H, S});
  if (g.document_start.defined()) check.Contiguous("document_start", g.document_start, DType::kI32, {B, S});
}

}  // namespace

void AttentionForward(const Stream& stream, const AttentionArgs& g, Arena& work) {
  const OpArgs check(stream, "AttentionForward");
  CheckForward(check, g);
  check.Cost(CausalFlops(g), Bytes(g), {g.q.dim(0), g.q.dim(1), g.q.dim(2), g.k.dim(2)});
  ArenaScope scope(work);
  const bool nothing = stream.dry() || g.q.dim(0) * g.q.dim(1) * g.q.dim(2) == 0;
  if (stream.target() == DeviceKind::kCuda) {
    [[maybe_unused]] const Tensor bytes = CudaWorkspace(work, g, /*backward=*/false, /*deterministic=*/true);
    if (nothing) return;
#if YM_HAVE_CUDA
    return cuda::AttentionForward(stream, g, bytes);
#endif
  }
  const Tensor p = work.Allocate("attention p", g.q.dtype(), {cpu::kAttentionChunks, cpu::kAttentionRows, g.q.dim(1)});
  if (nothing) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::AttentionForward(stream, g, p);
  check.NoImplementation();
}

void AttentionBackward(const Stream& stream, const AttentionBackwardArgs& g, Arena& work) {
  const OpArgs check(stream, "AttentionBackward");
  const AttentionArgs& f = g.forward;
  CheckForward(check, f);
  check.Contiguous("do", g.do_, f.q.dtype(), f.o.shape());
  check.Contiguous("dq", g.dq, f.q.dtype(), f.q.shape());
  check.Contiguous("dk", g.dk, f.q.dtype(), f.k.shape());
  check.Contiguous("dv", g.dv, f.q.dtype(), f.v.shape());
  check.Cost(2 * CausalFlops(f), 2 * Bytes(f), {f.q.dim(0), f.q.dim(1), f.q.dim(2), f.k.dim(2)});
  ArenaScope scope(work);
  const bool nothing = stream.dry() || f.q.dim(0) * f.q.dim(1) * f.q.dim(2) == 0;
  if (stream.target() == DeviceKind::kCuda) {
    [[maybe_unused]] const Tensor bytes = CudaWorkspace(work, f, /*backward=*/true, g.deterministic);
    if (nothing) return;
#if YM_HAVE_CUDA
    return cuda::AttentionBackward(stream, g, bytes);
#endif
  }
  const Shape blocks{cpu::kAttentionChunks, cpu::kAttentionRows, f.q.dim(1)};
  const Tensor p = work.Allocate("attention p", f.q.dtype(), blocks);
  const Tensor ds = work.Allocate("attention ds", f.q.dtype(), blocks);
  if (nothing) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::AttentionBackward(stream, g, p, ds);
  check.NoImplementation();
}

std::string AttentionPlans([[maybe_unused]] const Stream& stream) {
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::AttentionPlans(stream);
#endif
  return "";
}

}  // namespace yardmaster
