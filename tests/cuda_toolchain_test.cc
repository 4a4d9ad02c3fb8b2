// The CUDA build: libraries link, the program starts without a driver, and with a GPU a kernel
// runs.
#include "tests/catch.h"

#if YM_HAVE_CUDA
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>

#include <vector>

#include "tests/cuda_toolchain.h"

TEST_CASE("the CUDA libraries that run are those compiled against") {
  int runtime = 0;
  CHECK(cudaRuntimeGetVersion(&runtime) == cudaSuccess);
  CHECK(runtime == CUDART_VERSION);
  int nccl = 0;
  CHECK(ncclGetVersion(&nccl) == ncclSuccess);
  CHECK(nccl == NCCL_VERSION_CODE);
  CHECK(cudnnGetVersion() == CUDNN_VERSION);
  CHECK(cublasLtGetVersion() / 10000 == CUBLAS_VER_MAJOR);
}

TEST_CASE("a kernel runs") {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    YM_SKIP("no GPU");
  }
  std::vector<float> host(1000, 41.0f);
  float* data = nullptr;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&data), 4000) == cudaSuccess);
  REQUIRE(cudaMemcpy(data, host.data(), 4000, cudaMemcpyHostToDevice) == cudaSuccess);
  REQUIRE(AddOne(data, 1000, nullptr) == cudaSuccess);
  REQUIRE(cudaMemcpy(host.data(), data, 4000, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(host[0] == 42.0f);
  CHECK(host[999] == 42.0f);
  CHECK(cudaFree(data) == cudaSuccess);
}
#else
TEST_CASE("the CUDA build") { YM_SKIP("built without CUDA"); }
#endif
