// File: src/ops/cuda/lt_grouped.h
//
// cuBLASLt's grouped matmuls on a stream (kernels/grouped_gemm: sm100_cublaslt). The device's handle; what
// the library reads of shapes and addresses lies at the end of the stream's library workspace, the rest is
// the library's.
#pragma once

#include "kernels/grouped_gemm/grouped_gemm_sm100_cublaslt.h"
#include "src/ops/cuda/cuda_stream.h"

namespace yardmaster::cuda {

class LtGrouped {
 public:
  explicit LtGrouped(CudaDevice& device) : device_(device) {
    const cublasStatus_t status = cublasLtCreate(&handle_);
    if (status != CUBLAS_STATUS_SUCCESS)
      device.Fail(cublasLtGetStatusString(status), "GroupedGemm", "cublasLtCreate");
  }
  LtGrouped(const LtGrouped&) = delete;
  LtGrouped& operator=(const LtGrouped&) = delete;
  ~LtGrouped() { static_cast<void>(cublasLtDestroy(handle_)); }

  GroupedGemmLtResources Resources(cudaStream_t stream, int64_t groups) const {
    const size_t arrays = (GroupedGemmLtArrayBytes(static_cast<int>(groups)) + 255) / 256 * 256;
    char* const workspace = static_cast<char*>(device_.LibraryWorkspace(stream));
    const size_t rest = CudaDevice::kLibraryWorkspace - arrays;
    return {.handle = handle_, .arrays = workspace + rest, .workspace = workspace, .workspace_bytes = rest};
  }

  // False where the library has no algorithm for the problem: other kernels run then.
  bool Done(cublasStatus_t status, const char* op) const {
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
    if (status != CUBLAS_STATUS_SUCCESS)
      device_.Fail(cublasLtGetStatusString(status), op, "cublasLtMatmul (grouped)");
    return true;
  }

 private:
  CudaDevice& device_;
  cublasLtHandle_t handle_ = nullptr;
};

// The device's.
inline LtGrouped& LtGroupedOf(const Stream& stream) { return CudaDeviceOf(stream).Extension<LtGrouped>(); }

}  // namespace yardmaster::cuda
