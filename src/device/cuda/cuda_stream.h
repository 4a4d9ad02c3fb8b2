// File: src/device/cuda/cuda_stream.h
//
// What CUDA code of an op or a collective starts with: the stream as CUDA knows it, and checks that name the op,
// rank and device.
#pragma once

#include <cuda_runtime.h>

#include "src/base/check.h"
#include "src/device/cuda/cuda_device.h"

namespace yardmaster {

inline CudaDevice& CudaDeviceOf(const Stream& stream) {
  YM_CHECK(stream.kind() == DeviceKind::kCuda, "a cuda op on the ", DeviceKindName(stream.kind()), " device");
  return static_cast<CudaDevice&>(stream.device());
}

inline cudaStream_t CudaStream(const Stream& stream) { return CudaDeviceOf(stream).StreamOf(stream.handle()); }

}  // namespace yardmaster

// YM_CUDA_CHECK(stream, "SwigluForward", LaunchSwiglu(...)): `call` returns cudaError_t; throws Error if it failed.
#define YM_CUDA_CHECK(stream, op, call) ::yardmaster::CudaDeviceOf(stream).Check((call), (op), #call)
