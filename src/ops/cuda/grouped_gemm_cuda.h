// File: src/ops/cuda/grouped_gemm_cuda.h
//
// Four ways to the same result: Hopper's kernels (BF16), cuBLASLt's grouped matmul on Blackwell (BF16, where the library
// has it; not run yet), the portable ones (every type, compute capability 8.0 on), and a loop of dense GEMMs that reads
// the counts on the host. The loop is the baseline of benchmarks: it waits for the stream, so
// it can be neither captured nor overlapped.
#pragma once

#include "src/ops/grouped_gemm.h"

namespace yardmaster::cuda {

enum class GroupedGemmPath : uint8_t { kHopper, kBlackwell, kPortable, kLoop };

// The whole choice. Throws ConfigError for kHopper where its kernels do not take the problem.
// `beta_one_or_zero`: the kernels of one architecture accumulate or overwrite, nothing else. `lt_grouped`:
// whether the cuBLASLt that runs has grouped matmuls.
GroupedGemmPath ChooseGroupedGemm(GroupedGemmMode mode, DType type, int sm, int64_t experts, int64_t n, int64_t k,
                                  bool beta_one_or_zero, bool lt_grouped = false);

// Arguments checked.
void GroupedGemmForward(const Stream& stream, const Tensor& x_RK, const Tensor& w_LNK, const Tensor& offsets,
                        const Tensor& y_RN, GroupedGemmMode mode);
void GroupedGemmBackwardInput(const Stream& stream, const Tensor& dy_RN, const Tensor& w_LNK, const Tensor& offsets,
                              const Tensor& dx_RK, GroupedGemmMode mode);
void GroupedGemmBackwardWeight(const Stream& stream, const Tensor& dy_RN, const Tensor& x_RK, const Tensor& offsets,
                               double beta, const Tensor& dw_LNK, GroupedGemmMode mode, int free_sms,
                               const Tensor& squares);
int64_t GroupedGemmNormAddends(const Stream& stream, DType x, const Tensor& dw_LNK, GroupedGemmMode mode);

}  // namespace yardmaster::cuda
