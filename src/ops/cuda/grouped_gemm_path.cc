#include "src/ops/cuda/grouped_gemm_path.h"

#include "src/base/error.h"
#include "src/base/strings.h"

namespace yardmaster::cuda {

GroupedGemmPath ChooseGroupedGemm(GroupedGemmMode mode, DType type, int sm, int64_t experts, int64_t n,
                                  int64_t k, bool beta_one_or_zero, bool lt_grouped) {
  if (mode == GroupedGemmMode::kLoop) return GroupedGemmPath::kLoop;
  const bool special = mode != GroupedGemmMode::kPortable && type == DType::kBF16 &&
                       experts <= kMaxGroupedExperts && n > 0 && k > 0 && n % 8 == 0 && k % 8 == 0 &&
                       beta_one_or_zero;
  if (special && sm == 90) return GroupedGemmPath::kHopper;
  if (mode == GroupedGemmMode::kHopper) {
    throw ConfigError(StrCat("the grouped GEMM of sm_90 does not take ", DTypeName(type), ", ", experts,
                             " experts of ", n, " x ", k, " on sm_", sm),
                      "moe.gemm", "set it to auto");
  }
  if (special && sm >= 100 && sm < 110 && lt_grouped) return GroupedGemmPath::kBlackwell;
  return GroupedGemmPath::kPortable;
}

}  // namespace yardmaster::cuda
