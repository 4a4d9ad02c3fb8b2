// A kernel launcher in the form that kernels/ uses: primitives in, an error code out.
#pragma once

#include <cuda_runtime_api.h>

// data[i] += 1 for i < n, on `stream`.
cudaError_t AddOne(float* data, int n, cudaStream_t stream);
