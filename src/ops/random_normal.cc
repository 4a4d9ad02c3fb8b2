#include "src/ops/random_normal.h"

#include "src/ops/cpu/random_normal_cpu.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/random_normal_cuda.h"
#endif

namespace yardmaster {

void RandomNormal(const Stream& stream, const RandomNormalArgs& g) {
  const OpArgs check(stream, "RandomNormal");
  const DType type = check.ComputeType("y", g.y);
  YM_CHECK(g.spec.global_shape.rank() <= 3, "RandomNormal of ", g.spec.global_shape);
  check.Contiguous("y", g.y, type, Shape(g.spec.box.extent));
  if (g.copy.defined()) {
    YM_CHECK(g.copy.dtype() == type || g.copy.dtype() == DType::kBF16, "RandomNormal: copy is ",
             DTypeName(g.copy.dtype()));
    check.Contiguous("copy", g.copy, g.copy.dtype(), g.y.shape());
  }
  if (stream.dry() || g.y.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::RandomNormal(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::RandomNormal(stream, g);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
