// File: kernels/grouped_gemm_fp8/sm90_fp8_host.cuh
//
// What the launchers of the FP8 grouped GEMM share.
#pragma once

#include "kernels/common/cluster_launch.h"
#include "kernels/common/tensor_map.h"
#include "kernels/grouped_gemm_fp8/grouped_gemm_fp8.h"
#include "kernels/grouped_gemm_fp8/sm90_fp8_config.h"

namespace yardmaster::sm90fp8 {

inline bool Aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
inline int CeilDiv(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }
inline int64_t RoundUp4(int64_t a) { return (a + 3) / 4 * 4; }

// Scales [blocks, ld], `box` of a block at a time; `rows` of ld are there.
inline TensorMapDesc ScalesMap(const float* scales, int64_t blocks, int64_t rows, int box) {
  TensorMapDesc desc;
  desc.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  desc.base = scales;
  desc.extent[0] = rows;
  desc.extent[1] = blocks;
  desc.stride[0] = RoundUp4(rows) * 4;
  desc.stride[1] = desc.stride[0] * blocks;
  desc.box[0] = box;
  desc.box[1] = 1;
  desc.swizzle128 = false;
  return desc;
}

template <class Maps, class Params>
cudaError_t LaunchKernel(void (*kernel)(Maps, Params), int threads, int shared_bytes,
                         const Maps& maps, const Params& params, const Config& config,
                         cudaStream_t stream) {
  if (config.clusters < 1 || config.clusters > sm90::kMaxClusters) return cudaErrorInvalidValue;
  return sm90::LaunchClusters(kernel, {config.clusters, kCluster, threads, shared_bytes}, stream,
                              maps, params);
}

// The configuration for this device; cudaErrorNotSupported where the kernels do not run.
inline cudaError_t ConfigOfDevice(const Fp8Options& options, Config* config) {
  int sm_count = 0;
  if (const cudaError_t error = sm90::HopperMultiprocessors(&sm_count); error != cudaSuccess)
    return error;
  *config = SelectConfig(sm_count, options.free_sms);
  return cudaSuccess;
}

}  // namespace yardmaster::sm90fp8
