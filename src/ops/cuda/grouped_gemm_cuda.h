// File: src/ops/cuda/grouped_gemm_cuda.h
//
// Four ways to the same result: Hopper's kernels (BF16), cuBLASLt's grouped matmul on Blackwell (BF16, where the library
// has it; not run yet), the portable ones (every type, compute capability 8.0 on), and a loop of dense GEMMs that reads
// the counts on the host. The loop is the baseline of benchmarks: it waits for the stream, so
// it can be neither captured nor overlapped.
#pragma once

#include "src/ops/cuda/grouped_gemm_path.h"

namespace yardmaster::cuda {

// Arguments checked.
void GroupedGemmForward(const Stream& stream, const Tensor& x_RK, const Tensor& w_LNK, const Tensor& offsets,
                        const Tensor& y_RN, GroupedGemmMode mode);
void GroupedGemmBackwardInput(const Stream& stream, const Tensor& dy_RN, const Tensor& w_LNK, const Tensor& offsets,
                              const Tensor& dx_RK, GroupedGemmMode mode);
void GroupedGemmBackwardWeight(const Stream& stream, const Tensor& dy_RN, const Tensor& x_RK, const Tensor& offsets,
                               double beta, const Tensor& dw_LNK, GroupedGemmMode mode, int free_sms,
                               const Tensor& squares);
int ComputeCapability(const Stream& stream);  // of its GPU, 90 for 9.0

}  // namespace yardmaster::cuda
