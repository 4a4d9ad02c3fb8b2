#include "src/ops/gemm.h"

#include "src/ops/cpu/gemm_cpu.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/gemm_cuda.h"
#endif

namespace yardmaster {

void Gemm(const Stream& stream, const GemmArgs& g) {
  const OpArgs check(stream, "Gemm");
  const DType type = check.WorkType("a", g.a);
  check.Rank("a", g.a, 2);
  check.Rank("d", g.d, 2);
  const int64_t m = g.d.dim(0), n = g.d.dim(1), k = g.a.dim(g.trans_a ? 0 : 1);
  check.Strided("a", g.a, type, g.trans_a ? Shape{k, m} : Shape{m, k});
  check.Strided("b", g.b, type, g.trans_b ? Shape{n, k} : Shape{k, n});
  const DType out = g.d.dtype() == DType::kF32 ? OpArgs::AccumType(type) : type;  // BF16 operands may give F32
  check.Strided("d", g.d, out, {m, n});
  if (g.c.defined()) check.Strided("c", g.c, out, {m, n});
  const double a_bytes = static_cast<double>(g.a.bytes()), b_bytes = static_cast<double>(g.b.bytes());
  check.Cost(2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
             a_bytes + b_bytes + static_cast<double>(g.d.bytes()) * (g.beta != 0 ? 2 : 1), {m, n, k});
  if (stream.dry() || m == 0 || n == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::Gemm(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::Gemm(stream, g);
#endif
  check.NoImplementation();
}

std::string GemmAlgorithms([[maybe_unused]] const Stream& stream) {
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::GemmAlgorithms(stream);
#endif
  return "";
}

}  // namespace yardmaster
