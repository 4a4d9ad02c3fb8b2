#include "src/ops/gemm.h"

#include "src/ops/cpu/gemm_cpu.h"
#include "src/ops/op_args.h"

namespace yardmaster {

void Gemm(const Stream& stream, const GemmArgs& g) {
  const OpArgs check(stream, "Gemm");
  const DType type = check.ComputeType("a", g.a);
  check.Rank("a", g.a, 2);
  check.Rank("d", g.d, 2);
  const int64_t m = g.d.dim(0), n = g.d.dim(1), k = g.a.dim(g.trans_a ? 0 : 1);
  check.Strided("a", g.a, type, g.trans_a ? Shape{k, m} : Shape{m, k});
  check.Strided("b", g.b, type, g.trans_b ? Shape{n, k} : Shape{k, n});
  check.Strided("d", g.d, type, {m, n});
  if (g.c.defined()) check.Strided("c", g.c, type, {m, n});
  if (stream.dry() || m == 0 || n == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::Gemm(stream, g);
  check.NoImplementation();
}

}  // namespace yardmaster
