#include "src/ops/cuda/split_bf16_cuda.h"

#include "kernels/split/split_bf16.h"
#include "src/ops/cuda/cuda_stream.h"

namespace yardmaster::cuda {

void SplitBf16(const Stream& stream, const Tensor& x, const std::vector<SplitOutput>& outputs) {
  SplitOutputs out;
  for (const auto& [y, term] : outputs) {
    out.y[out.count] = y.data();
    out.ld[out.count] = y.ld();
    out.term[out.count++] = term;
  }
  YM_CUDA_CHECK(stream, "SplitBf16",
                SplitToBf16(x.as<float>(), x.ld(), x.dim(0), x.dim(1), out, CudaStream(stream)));
}

void AddTerms(const Stream& stream, const std::vector<Tensor>& terms, double beta, const Tensor& y) {
  SumTerms sum;
  for (const Tensor& term : terms) {
    sum.x[sum.count] = term.as<float>();
    sum.ld[sum.count++] = term.ld();
  }
  YM_CUDA_CHECK(stream, "AddTerms",
                AddMatrices(sum, beta, y.as<float>(), y.ld(), y.dim(0), y.dim(1), CudaStream(stream)));
}

}  // namespace yardmaster::cuda
