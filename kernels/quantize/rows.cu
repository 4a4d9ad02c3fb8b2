#include "kernels/common/float_types.cuh"
#include "kernels/quantize/ragged_kernel.cuh"

namespace yardmaster {

cudaError_t QuantizeRaggedRows(KernelType type, QuantRule rule, const RaggedRows& rows, const QuantCopies& to,
                               cudaStream_t stream) {
  return DispatchSource(type, [&]<class T>() {
    return LaunchRagged(rule, PlainSource<T>{static_cast<const T*>(rows.x), rows.ld}, rows, to, stream);
  });
}

}  // namespace yardmaster
