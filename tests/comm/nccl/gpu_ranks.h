// The ranks of a test program with a GPU each, or sharing one: MPI's world, this rank's cuda device, NCCL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/nccl/nccl_world.h"
#include "src/device/cuda/make_cuda_device.h"
#include "tests/catch.h"
#include "tests/comm/mpi_fixture.h"

namespace yardmaster::testing {

struct GpuRanks {
  GpuRanks()
      : agreement(World().MakeAgreement()),
        device(MakeCudaDevice(
            {.index = World().local_rank() % CudaAvailability().usable, .rank = World().rank()})),
        stream(device.get()),
        nccl(&World(), agreement.get(), device.get(),
             {.share_device = World().local_size() > CudaAvailability().usable, .timeout_seconds = 60,
              .copy_staging_bytes = 1 << 20}) {}  // many segments of what tests send
  std::unique_ptr<Agreement> agreement;
  std::unique_ptr<Device> device;
  Stream stream;
  NcclWorld nccl;
};

inline GpuRanks& Ranks() {
  World();  // made first, so that it ends last
  static GpuRanks ranks;
  return ranks;
}

inline std::vector<int64_t> AllRanks() {
  std::vector<int64_t> ranks;
  for (int r = 0; r < World().size(); ++r) ranks.push_back(r);
  return ranks;
}

// A tensor in the GPU's memory with the host's values, and back.
template <class T>
class OnGpu {
 public:
  explicit OnGpu(const std::vector<T>& values) : OnGpu(values, {static_cast<int64_t>(values.size())}) {}
  OnGpu(const std::vector<T>& values, const Shape& shape) {
    void* data = Ranks().device->Allocate(values.size() * sizeof(T) + 1);
    tensor_ = Tensor(data, DTypeOf<T>::value, shape);
    if (!values.empty()) Ranks().device->CopyFromHost(data, values.data(), values.size() * sizeof(T));
  }
  ~OnGpu() { Ranks().device->Free(tensor_.data()); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  const Tensor& tensor() const { return tensor_; }
  std::vector<T> Values() const {
    std::vector<T> out(static_cast<size_t>(tensor_.elements()));
    if (!out.empty()) Ranks().device->CopyToHost(out.data(), tensor_.data(), out.size() * sizeof(T));
    return out;
  }

 private:
  Tensor tensor_;
};

}  // namespace yardmaster::testing

#define YM_NEEDS_GPU_RANKS()                                                      \
  do {                                                                            \
    const ::yardmaster::CudaStatus ym_status_ = ::yardmaster::CudaAvailability(); \
    if (ym_status_.usable == 0) YM_SKIP("needs a GPU: " + ym_status_.reason);     \
  } while (false)
