#include "kernels/quantize/ragged_kernel.cuh"

namespace yardmaster {

cudaError_t QuantizeSwigluRows(QuantRule rule, const RaggedRows& rows, const float* w, const QuantCopies& to,
                               cudaStream_t stream) {
  return LaunchRagged(rule, SwigluSource{static_cast<const __nv_bfloat16*>(rows.x), w, rows.ld, rows.C}, rows,
                      to, stream);
}

cudaError_t QuantizeNormedRows(QuantRule rule, const RaggedRows& rows, const float* rstd, const void* weight,
                               const QuantCopies& to, cudaStream_t stream) {
  return LaunchRagged(rule,
                      NormedSource{static_cast<const __nv_bfloat16*>(rows.x), rstd,
                                   static_cast<const __nv_bfloat16*>(weight), rows.ld},
                      rows, to, stream);
}

}  // namespace yardmaster
