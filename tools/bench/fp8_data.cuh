// File: tools/bench/fp8_data.cuh
//
// Random block-scaled E4M3 operands for the FP8 programs, as quantising normal values makes them:
// codes of magnitudes up to 448, power-of-two or arbitrary scales.
#pragma once

#include <cuda_fp8.h>

#include "tools/bench/gpu_bench.cuh"

namespace yardmaster::bench {

inline constexpr uint8_t kNanCode = 0x7F;

__device__ inline double CodeValue(uint8_t code) {
  return static_cast<double>(__half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3))));
}

__global__ void FillCodesKernel(uint8_t* codes, size_t count, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x)
    codes[i] = __nv_cvt_float_to_fp8(Normal(seed, i, 120.0f), __NV_SATFINITE, __NV_E4M3);
}

__global__ void FillScalesKernel(float* scales, size_t count, uint64_t seed, bool power_of_two,
                                 float size) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    const uint64_t bits = Mix(Mix(seed) ^ i);
    const float power = ldexpf(size, static_cast<int>(bits % 5) - 2);
    scales[i] = power_of_two ? power : power * (1.0f + (bits >> 40) * 0x1p-24f);
  }
}

inline void FillCodes(uint8_t* codes, size_t count, uint64_t seed) {
  if (count == 0) return;
  FillCodesKernel<<<1056, 256>>>(codes, count, seed);
  BENCH_CHECK(cudaGetLastError());
}

// `size`: a power of two about which the scales lie.
inline void FillScales(float* scales, size_t count, uint64_t seed, bool power_of_two, float size) {
  if (count == 0) return;
  FillScalesKernel<<<1056, 256>>>(scales, count, seed, power_of_two, size);
  BENCH_CHECK(cudaGetLastError());
}

// Of a transposed copy [width, padded]: pad columns of a group are 0, those behind the last group
// NaN.
__global__ void PadColumnsKernel(uint8_t* codes, int width, int64_t padded, const int64_t* offsets,
                                 int groups) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= width * padded) return;
  const int64_t column = i % padded;
  int64_t begin = 0;
  for (int e = 0; e < groups; ++e) {
    const int64_t rows = offsets[e + 1] - offsets[e];
    if (column < begin + (rows + 127) / 128 * 128) {
      if (column >= begin + rows) codes[i] = 0;
      return;
    }
    begin += (rows + 127) / 128 * 128;
  }
  codes[i] = kNanCode;
}

inline int64_t RoundUp(int64_t a, int64_t unit) { return (a + unit - 1) / unit * unit; }

}  // namespace yardmaster::bench
