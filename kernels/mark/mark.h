// File: kernels/mark/mark.h
//
// A note in host memory of how far a stream has come, for operations within a CUDA graph, whose events the
// host cannot ask for.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

// *mark = value once everything before it on the stream is done. `mark` is the device's address of pinned
// host memory. One thread, about 2 microseconds.
cudaError_t WriteMark(int64_t* mark, int64_t value, cudaStream_t stream);

}  // namespace yardmaster
