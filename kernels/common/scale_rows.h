// File: kernels/common/scale_rows.h
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/kernel_type.h"

namespace yardmaster {

// d[i, j] = beta * c[i, j] for an [m, n] matrix; zeros for beta 0, whatever c holds. c may be d. Memory-bound: reads and
// writes each element once.
cudaError_t ScaleRows(KernelType type, const void* c, int64_t ldc, void* d, int64_t ldd, int64_t m, int64_t n, double beta,
                      cudaStream_t stream);

// d[i, j] = c[i, j] in another type: FP32 rounded to BF16 (to nearest even).
cudaError_t RoundRowsToBf16(const float* c, int64_t ldc, void* d, int64_t ldd, int64_t m, int64_t n, cudaStream_t stream);

}  // namespace yardmaster
