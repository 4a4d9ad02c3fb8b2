// Operands that begin and end a mapped range, with nothing mapped around it: what a kernel or the copy engine
// touches beside them is an illegal address, which allocations that lie next to each other hide.
#include "tests/cuda/gpu.h"

#if YM_HAVE_CUDA
#include <cudaTypedefs.h>

#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/grouped_gemm.h"

namespace yardmaster::testing {
namespace {

template <class F>
F Driver(const char* name, int version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  REQUIRE(cudaGetDriverEntryPointByVersion(name, &function, static_cast<unsigned>(version), cudaEnableDefault,
                                           &found) == cudaSuccess);
  REQUIRE(found == cudaDriverEntryPointSuccess);
  return reinterpret_cast<F>(function);
}

// Memory between two unmapped ranges.
class LonePage {
 public:
  LonePage() {
    const auto granularity =
        Driver<PFN_cuMemGetAllocationGranularity_v10020>("cuMemGetAllocationGranularity", 10020);
    const auto reserve = Driver<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve", 10020);
    const auto create = Driver<PFN_cuMemCreate_v10020>("cuMemCreate", 10020);
    const auto map = Driver<PFN_cuMemMap_v10020>("cuMemMap", 10020);
    const auto access = Driver<PFN_cuMemSetAccess_v10020>("cuMemSetAccess", 10020);
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    REQUIRE(granularity(&bytes_, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
    REQUIRE(reserve(&range_, 3 * bytes_, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(create(&memory_, bytes_, &prop, 0) == CUDA_SUCCESS);
    REQUIRE(map(range_ + bytes_, bytes_, 0, memory_, 0) == CUDA_SUCCESS);
    const CUmemAccessDesc both = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    REQUIRE(access(range_ + bytes_, bytes_, &both, 1) == CUDA_SUCCESS);
  }
  LonePage(const LonePage&) = delete;
  LonePage& operator=(const LonePage&) = delete;
  ~LonePage() {
    Driver<PFN_cuMemUnmap_v10020>("cuMemUnmap", 10020)(range_ + bytes_, bytes_);
    Driver<PFN_cuMemRelease_v10020>("cuMemRelease", 10020)(memory_);
    Driver<PFN_cuMemAddressFree_v10020>("cuMemAddressFree", 10020)(range_, 3 * bytes_);
  }

  // A copy of `t` at the beginning or the end of the page.
  Tensor Copy(const Tensor& t, bool at_end) const {
    const size_t bytes = static_cast<size_t>(t.bytes());
    REQUIRE(bytes <= bytes_);
    char* const begin = reinterpret_cast<char*>(range_) + bytes_;
    const Tensor copy(at_end ? begin + bytes_ - bytes : begin, t.dtype(), t.shape());
    REQUIRE(cudaMemcpy(copy.data(), t.data(), bytes, cudaMemcpyDeviceToDevice) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);  // the streams of ops do not wait for that of the copy
    return copy;
  }

 private:
  size_t bytes_ = 0;
  CUdeviceptr range_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
};

// Every operand on a page of its own gives the bits that it gives amid other memory.
void CheckExperts(Gpu& gpu, const std::vector<int64_t>& counts, int64_t N, int64_t K, bool at_end) {
  INFO("N " << N << " K " << K << (at_end ? ", at the end" : ", at the beginning"));
  const auto L = static_cast<int64_t>(counts.size());
  std::vector<double> ends = {0};
  for (const int64_t n : counts) ends.push_back(ends.back() + static_cast<double>(n));
  const auto R = static_cast<int64_t>(ends.back());
  const Tensor x = gpu.Make(DType::kBF16, {R, K}, RandomValues("x", R * K, -1, 1));
  const Tensor w = gpu.Make(DType::kBF16, {L, N, K}, RandomValues("w", L * N * K, -1, 1));
  const Tensor dy = gpu.Make(DType::kBF16, {R, N}, RandomValues("dy", R * N, -1, 1));
  const Tensor offsets = gpu.Make(DType::kI64, {L + 1}, ends);
  const Tensor y = gpu.Make(DType::kBF16, {R, N}), dx = gpu.Make(DType::kBF16, {R, K});
  const Tensor dw = gpu.Make(DType::kF32, {L, N, K});
  const auto run = [&](const Tensor& x_, const Tensor& w_, const Tensor& dy_, const Tensor& y_,
                       const Tensor& dx_, const Tensor& dw_) {
    GroupedGemmForward(gpu.stream(), x_, w_, offsets, y_);
    GroupedGemmBackwardInput(gpu.stream(), dy_, w_, offsets, dx_);
    GroupedGemmBackwardWeight(gpu.stream(), dy_, x_, offsets, 0, dw_);
    gpu.stream().Synchronize();
    return std::vector<std::string>{gpu.Bytes(y_), gpu.Bytes(dx_), gpu.Bytes(dw_)};
  };
  const std::vector<std::string> amid = run(x, w, dy, y, dx, dw);
  const LonePage pages[6];
  const Tensor alone[6] = {pages[0].Copy(x, at_end), pages[1].Copy(w, at_end),  pages[2].Copy(dy, at_end),
                           pages[3].Copy(y, at_end), pages[4].Copy(dx, at_end), pages[5].Copy(dw, at_end)};
  for (int i = 3; i < 6; ++i) gpu.Poison(alone[i]);
  CHECK(run(alone[0], alone[1], alone[2], alone[3], alone[4], alone[5]) == amid);
}

TEST_CASE("gpu lone page: grouped GEMM touches nothing beside its operands") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 28, size_t{1} << 26);
  for (const bool at_end : {false, true}) {
    CheckExperts(gpu, {8, 15, 14, 17, 16, 12, 5, 9}, 64, 32, at_end);
    CheckExperts(gpu, {1, 0, 130, 3, 64, 300}, 128, 128, at_end);
    CheckExperts(gpu, {1}, 8, 8, at_end);
    CheckExperts(gpu, {0, 257, 65}, 264, 200, at_end);
  }
}

}  // namespace
}  // namespace yardmaster::testing

#endif
