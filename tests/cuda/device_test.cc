#include "src/device/cuda/make_cuda_device.h"

#include "tests/cuda/gpu.h"

#if YM_HAVE_CUDA
#include "src/ops/cuda/cuda_stream.h"
#endif

namespace yardmaster::testing {
namespace {

[[maybe_unused]] bool HasAll(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos) return false;
  }
  return true;
}

TEST_CASE("cuda device: availability is a sentence and never an exception") {
  const CudaStatus status = CudaAvailability();
  CHECK(status.usable >= 0);
  CHECK_FALSE(status.reason.empty());
#if !YM_HAVE_CUDA
  CHECK(status.usable == 0);
#endif
}

TEST_CASE("cuda device: one that is not there is a config error with the reason") {
  const int index = CudaAvailability().usable;
  CHECK_THROWS_AS(MakeCudaDevice({.index = index, .rank = 3}), Error);
  CHECK_THROWS_AS(MakeCudaDevice({.index = -1}), Error);
}

TEST_CASE("dry device: plans for cuda without one") {
  const auto dry = MakeDryDevice(DeviceKind::kCuda);
  CHECK(dry->kind() == DeviceKind::kDry);
  CHECK(Stream(dry.get()).target() == DeviceKind::kCuda);
  CHECK(Stream(MakeDryDevice().get()).target() == DeviceKind::kCpu);
}

#if YM_HAVE_CUDA

TEST_CASE("cuda device: copies of every length come back, new memory is zero") {
  YM_NEEDS_GPU();
  const auto device = MakeCudaDevice({});
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{255}, (size_t{16} << 20) - 1, size_t{16} << 20, (size_t{48} << 20) + 7}) {
    void* p = device->Allocate(bytes + 1);
    std::vector<unsigned char> host(bytes + 1), back(bytes + 1, 9);
    device->CopyToHost(back.data(), p, bytes + 1);
    CHECK(back == std::vector<unsigned char>(bytes + 1, 0));
    for (size_t i = 0; i < bytes; ++i) host[i] = static_cast<unsigned char>(i * 7 + i / 251);
    device->CopyFromHost(p, host.data(), bytes);
    device->CopyToHost(back.data(), p, bytes + 1);
    CHECK(back == host);
    device->Free(p);
  }
}

// More staged copies than are kept under way, of growing lengths, each read back in the stream's order, late.
TEST_CASE("cuda device: staged copies and host copies keep the order of the stream") {
  YM_NEEDS_GPU();
  const auto device = MakeCudaDevice({});
  CHECK(device->runs_behind());
  const Stream stream(device.get());
  constexpr size_t kMost = 1000 * 1000;
  void* p = device->Allocate(kMost);
  std::vector<std::unique_ptr<HostCopy>> copies;
  std::vector<unsigned char> host;
  const auto length = [](int i) { return i < 9 ? size_t{1000} * static_cast<size_t>(i + 1) : kMost; };
  for (int i = 0; i < 12; ++i) {
    host.assign(length(i), static_cast<unsigned char>(i + 1));
    device->StageFromHost(p, host.data(), host.size());
    host.assign(host.size(), 99);  // ours again
    copies.push_back(device->MakeHostCopy(kMost));
    copies.back()->Enqueue(stream, p, length(i));
  }
  for (int i = 0; i < 12; ++i) {
    const auto* there = static_cast<const unsigned char*>(copies[static_cast<size_t>(i)]->Wait());
    CHECK(std::vector<unsigned char>(there, there + length(i)) ==
          std::vector<unsigned char>(length(i), static_cast<unsigned char>(i + 1)));
  }
  device->Free(p);
}

TEST_CASE("cuda device: errors name the op, the call, the device and the rank") {
  YM_NEEDS_GPU();
  const auto device = MakeCudaDevice({.index = 0, .rank = 5});
  const Stream stream(device.get());
  try {
    YM_CUDA_CHECK(stream, "SomeOp", cudaMemcpyAsync(nullptr, nullptr, 16, cudaMemcpyDeviceToDevice, CudaStream(stream)));
    FAIL("no error");
  } catch (const Error& e) {
    INFO(e.what());
    CHECK(HasAll(e.what(), {"SomeOp", "cudaMemcpyAsync", "cuda device 0", "rank 5"}));
  }
  CHECK_NOTHROW(stream.Synchronize());  // the error was not sticky
  try {
    device->Allocate(size_t{1} << 50);
    FAIL("a pebibyte");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::kConfig);
    INFO(e.what());
    CHECK(HasAll(e.what(), {"rank 5", "free"}));
  }
}

TEST_CASE("cuda device: every stream has a workspace of its own, and the plan knows them") {
  YM_NEEDS_GPU();
  CudaDevice device({});
  const Stream first(&device), second = device.AddStream();
  CHECK(CudaStream(first) == device.compute_stream());
  CHECK(CudaStream(first) != CudaStream(second));
  CHECK(device.LibraryWorkspace(CudaStream(first)) != device.LibraryWorkspace(CudaStream(second)));
  CHECK(device.library_bytes() == 2 * CudaDevice::kLibraryWorkspace);
  CHECK_THROWS_AS(device.LibraryWorkspace(nullptr), InternalError);
}

#endif

}  // namespace
}  // namespace yardmaster::testing
