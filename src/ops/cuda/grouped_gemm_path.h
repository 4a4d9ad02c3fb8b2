// File: src/ops/cuda/grouped_gemm_path.h
//
// Which kernels take a grouped GEMM. Pure: the dry device plans with it in every build.
#pragma once

#include "src/ops/grouped_gemm.h"

namespace yardmaster::cuda {

inline constexpr int64_t kMaxGroupedExperts = 512;  // of one architecture's kernels

enum class GroupedGemmPath : uint8_t { kHopper, kBlackwell, kPortable, kLoop };

// The whole choice. Throws ConfigError for kHopper where its kernels do not take the problem.
// `beta_one_or_zero`: the kernels of one architecture accumulate or overwrite, nothing else. `lt_grouped`:
// whether the cuBLASLt that runs has grouped matmuls.
GroupedGemmPath ChooseGroupedGemm(GroupedGemmMode mode, DType type, int sm, int64_t experts, int64_t n,
                                  int64_t k, bool beta_one_or_zero, bool lt_grouped = false);

}  // namespace yardmaster::cuda
