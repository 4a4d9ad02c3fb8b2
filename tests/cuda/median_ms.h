// The time of something that a hidden [probe] test runs on the GPU.
#pragma once

#include "tests/cuda/gpu.h"

#if YM_HAVE_CUDA

#include <algorithm>
#include <functional>
#include <vector>

#include "src/ops/cuda/cuda_stream.h"

namespace yardmaster::testing {

// Median of `runs` of f, an odd number, by events; two more come first, unmeasured.
inline double MedianMs(Gpu& gpu, int runs, const std::function<void()>& f) {
  const cudaStream_t s = CudaStream(gpu.stream());
  CudaEvent begin, end;
  YM_CUDA_CHECK(gpu.stream(), "probe", cudaEventCreate(begin.address()));
  YM_CUDA_CHECK(gpu.stream(), "probe", cudaEventCreate(end.address()));
  std::vector<float> times;
  for (int i = -2; i < runs; ++i) {
    YM_CUDA_CHECK(gpu.stream(), "probe", cudaEventRecord(begin.get(), s));
    f();
    YM_CUDA_CHECK(gpu.stream(), "probe", cudaEventRecord(end.get(), s));
    YM_CUDA_CHECK(gpu.stream(), "probe", cudaEventSynchronize(end.get()));
    float ms = 0;
    YM_CUDA_CHECK(gpu.stream(), "probe", cudaEventElapsedTime(&ms, begin.get(), end.get()));
    if (i >= 0) times.push_back(ms);
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return static_cast<double>(times[static_cast<size_t>(runs / 2)]);
}

}  // namespace yardmaster::testing

#endif  // YM_HAVE_CUDA
