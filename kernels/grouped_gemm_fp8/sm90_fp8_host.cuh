// File: kernels/grouped_gemm_fp8/sm90_fp8_host.cuh
//
// What the launchers of the FP8 grouped GEMM share.
#pragma once

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
cudaError_t LaunchKernel(void (*kernel)(Maps, Params), int shared_bytes, const Maps& maps,
                         const Params& params, const Config& config, cudaStream_t stream) {
  if (config.clusters < 1 || config.clusters > sm90::kMaxClusters) return cudaErrorInvalidValue;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
      error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t launch = {};
  launch.blockDim = dim3(kThreads);
  launch.dynamicSmemBytes = shared_bytes;
  launch.stream = stream;
  launch.attrs = &cluster;
  launch.numAttrs = 1;
  launch.gridDim = dim3(config.clusters * kCluster);
  return cudaLaunchKernelEx(&launch, kernel, maps, params);
}

// The configuration for this device; cudaErrorNotSupported where the kernels do not run.
inline cudaError_t ConfigOfDevice(const Fp8Options& options, Config* config) {
  int device = 0, sm_count = 0, major = 0, minor = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (major != 9 || minor != 0) return cudaErrorNotSupported;
  *config = SelectConfig(sm_count, options.free_sms);
  return cudaSuccess;
}

}  // namespace yardmaster::sm90fp8
