#include "src/ops/gqa_rope.h"

#include "src/ops/cpu/gqa_rope_cpu.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/gqa_rope_cuda.h"
#endif

namespace yardmaster {
namespace {

void Run(const Stream& stream, const char* op, const GqaRopeArgs& g, bool backward) {
  const OpArgs check(stream, op);
  check.Rank("q", g.q, 3);
  check.Rank("k", g.k, 3);
  check.Rank("table", g.table, 3);
  const DType type = check.WorkType("q", g.q);
  const int64_t n_T = g.q.dim(0), Q = g.q.dim(2);
  YM_CHECK(Q % 2 == 0, op, ": heads of ", Q);
  check.Contiguous("q", g.q, type, g.q.shape());
  check.Contiguous("k", g.k, type, {n_T, g.k.dim(1), Q});
  check.Contiguous("positions", g.positions, DType::kI32, {n_T});
  check.Contiguous("table", g.table, OpArgs::AccumType(type), {g.table.dim(0), Q / 2, 2});
  check.Traffic({&g.q, &g.q, &g.k, &g.k});  // in place
  if (stream.dry() || n_T == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::GqaRope(stream, g, backward);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::GqaRope(stream, op, g, backward);
#endif
  check.NoImplementation();
}

}  // namespace

void GqaRopeForward(const Stream& stream, const GqaRopeArgs& args) {
  Run(stream, "GqaRopeForward", args, /*backward=*/false);
}
void GqaRopeBackward(const Stream& stream, const GqaRopeArgs& gradients) {
  Run(stream, "GqaRopeBackward", gradients, /*backward=*/true);
}

}  // namespace yardmaster
