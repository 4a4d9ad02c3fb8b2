#include "src/ops/cpu/quantize_fused_cpu.h"

#include "src/device/cpu_parallel.h"

namespace yardmaster::cpu {

void Normed(const Stream& stream, const QuantizeNormedArgs& g, const Tensor& y) {
  const int64_t R = y.dim(0), D = y.dim(1);
  ParallelFor(stream, R, GrainFor(R, 16), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* h = g.h.as<float>() + r * g.h.ld();
      for (int64_t d = 0; d < D; ++d)
        y.as<float>()[r * D + d] = h[d] * g.rstd.as<float>()[r] * g.weight.as<float>()[d];
    }
  });
}

}  // namespace yardmaster::cpu
