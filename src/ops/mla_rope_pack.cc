#include "src/ops/mla_rope_pack.h"

#include "src/ops/cpu/mla_rope_pack_cpu.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/mla_rope_pack_cuda.h"
#endif

namespace yardmaster {
namespace {

// `q`, `k` [T, H, Q], `v` [T, H, V], `kv` [T, H, N + V], `rope` [T, P]: the same in both directions. Returns T.
int64_t CheckShapes(const OpArgs& check, const Tensor& q_in, const Tensor& kv, const Tensor& rope, const Tensor& positions,
                    const Tensor& table, const Tensor& q_out, const Tensor& k, const Tensor& v) {
  check.Rank("q", q_in, 3);
  check.Rank("k_rope", rope, 2);
  check.Rank("v", v, 3);
  check.Rank("table", table, 3);
  const DType type = check.WorkType("q", q_in);
  const int64_t n_T = q_in.dim(0), H = q_in.dim(1), Q = q_in.dim(2), P = rope.dim(1), V = v.dim(2);
  YM_CHECK(P % 2 == 0 && P <= Q, "MlaRopePack: ", P, " rotated of ", Q, " dimensions");
  check.Contiguous("q", q_in, type, {n_T, H, Q});
  check.Contiguous("q_out", q_out, type, {n_T, H, Q});
  check.Contiguous("k", k, type, {n_T, H, Q});
  check.Contiguous("v", v, type, {n_T, H, V});
  check.Contiguous("kv", kv, type, {n_T, H, Q - P + V});
  check.Strided("k_rope", rope, type, {n_T, P});
  check.Contiguous("positions", positions, DType::kI32, {n_T});
  check.Contiguous("table", table, OpArgs::AccumType(type), {table.dim(0), P / 2, 2});
  return n_T;
}

}  // namespace

void MlaRopePackForward(const Stream& stream, const MlaRopePackArgs& g) {
  const OpArgs check(stream, "MlaRopePackForward");
  const int64_t n_T = CheckShapes(check, g.q, g.kv, g.k_rope, g.positions, g.table, g.q_out, g.k_out, g.v_out);
  check.Traffic({&g.q, &g.q_out, &g.kv, &g.k_rope, &g.k_out, &g.v_out});
  if (stream.dry() || n_T == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::MlaRopePackForward(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::MlaRopePackForward(stream, g);
#endif
  check.NoImplementation();
}

void MlaRopePackBackward(const Stream& stream, const MlaRopePackBackwardArgs& g) {
  const OpArgs check(stream, "MlaRopePackBackward");
  const int64_t n_T = CheckShapes(check, g.dq_out, g.dkv, g.dk_rope, g.positions, g.table, g.dq, g.dk_out, g.dv_out);
  check.Traffic({&g.dq_out, &g.dq, &g.dk_out, &g.dv_out, &g.dkv, &g.dk_rope});
  if (stream.dry() || n_T == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::MlaRopePackBackward(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::MlaRopePackBackward(stream, g);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
