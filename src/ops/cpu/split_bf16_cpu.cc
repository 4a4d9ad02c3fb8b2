#include "src/ops/cpu/split_bf16_cpu.h"

namespace yardmaster::cpu {

void SplitBf16(const Tensor& x, const std::vector<SplitOutput>& outputs) {
  for (int64_t r = 0; r < x.dim(0); ++r) {
    for (int64_t c = 0; c < x.dim(1); ++c) {
      float rest = x.as<float>()[r * x.ld() + c];
      BFloat16 terms[3];
      for (BFloat16& term : terms) {
        term = BFloat16(rest);
        rest -= static_cast<float>(term);  // exact
      }
      for (const auto& [y, term] : outputs) y.as<BFloat16>()[r * y.ld() + c] = terms[term];
    }
  }
}

void AddTerms(const std::vector<Tensor>& terms, double beta, const Tensor& y) {
  for (int64_t r = 0; r < y.dim(0); ++r) {
    for (int64_t c = 0; c < y.dim(1); ++c) {
      float& at = y.as<float>()[r * y.ld() + c];
      float sum = beta == 0 ? 0.0f : static_cast<float>(beta) * at;
      for (const Tensor& term : terms) sum += term.as<float>()[r * term.ld() + c];
      at = sum;
    }
  }
}

}  // namespace yardmaster::cpu
