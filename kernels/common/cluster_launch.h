// File: kernels/common/cluster_launch.h
//
// How persistent kernels of Hopper are launched: clusters of blocks, one block per multiprocessor.
#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace yardmaster::sm90 {

struct ClusterLaunch {
  int clusters, cluster_blocks, threads, shared_bytes;
};

// Queues `kernel` on the stream. Errors: what the launch returned.
template <class... Parameters, class... Arguments>
cudaError_t LaunchClusters(void (*kernel)(Parameters...), const ClusterLaunch& how,
                           cudaStream_t stream, Arguments&&... arguments) {
  if (const cudaError_t error = cudaFuncSetAttribute(
          kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, how.shared_bytes);
      error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(how.cluster_blocks), 1, 1};
  cudaLaunchConfig_t launch = {};
  launch.blockDim = dim3(how.threads);
  launch.dynamicSmemBytes = how.shared_bytes;
  launch.stream = stream;
  launch.attrs = &cluster;
  launch.numAttrs = 1;
  launch.gridDim = dim3(how.clusters * how.cluster_blocks);
  return cudaLaunchKernelEx(&launch, kernel, std::forward<Arguments>(arguments)...);
}

// The multiprocessors of the current device; cudaErrorNotSupported unless it is of capability 9.0.
inline cudaError_t HopperMultiprocessors(int* count) {
  int device = 0, major = 0, minor = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return major == 9 && minor == 0 ? cudaSuccess : cudaErrorNotSupported;
}

}  // namespace yardmaster::sm90
