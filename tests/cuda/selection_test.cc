// What is chosen, from the shape alone: no GPU needed.
#include "src/ops/cuda/attention_plan.h"

#include "tests/catch.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/grouped_gemm_cuda.h"
#include "src/ops/cuda/scaled_gemm_cuda.h"
#endif

namespace yardmaster::testing {
namespace {

using cuda::AttentionShape;

AttentionShape ShapeOf(int64_t B, int64_t S, int64_t H, int64_t G, int64_t Q, int64_t V, DType type = DType::kBF16) {
  AttentionArgs args;
  args.q = Tensor(nullptr, type, {B, S, H, Q});
  args.k = Tensor(nullptr, type, {B, S, G, Q});
  args.v = Tensor(nullptr, type, {B, S, G, V});
  return AttentionShape(args);
}

TEST_CASE("attention plan: cuDNN takes BF16 with even widths") {
  CHECK(cuda::CudnnRunsOn(ShapeOf(1, 4096, 128, 128, 192, 128), 90));
  CHECK(cuda::CudnnRunsOn(ShapeOf(1, 4096, 32, 4, 128, 128), 80));
  CHECK_FALSE(cuda::CudnnRunsOn(ShapeOf(1, 4096, 128, 128, 192, 128), 80));
  CHECK_FALSE(cuda::CudnnRunsOn(ShapeOf(1, 64, 4, 4, 24, 12), 90));
  CHECK_FALSE(cuda::CudnnRunsOn(ShapeOf(1, 64, 4, 4, 128, 128, DType::kF32), 90));
  AttentionShape documents = ShapeOf(1, 64, 4, 4, 128, 128);
  documents.documents = true;
  CHECK_FALSE(cuda::CudnnRunsOn(documents, 90));
}

TEST_CASE("attention plan: the backward stays within two gibibytes, in groups that divide the heads") {
  for (const int64_t S : {1, 100, 2048, 4096, 8192, 16384}) {
    for (const bool deterministic : {true, false}) {
      const AttentionShape a = ShapeOf(2, S, 128, 128, 192, 128);
      const cuda::CudnnCut cut = cuda::CutCudnnBackward(a, deterministic);
      INFO("S " << S << " deterministic " << deterministic << ": samples " << cut.samples << " key heads " << cut.key_heads);
      CHECK(cut.workspace <= kAttentionWorkspace);
      CHECK(a.G % cut.key_heads == 0);
      CHECK((cut.samples == 1 || cut.key_heads == a.G));
      // Not smaller than it needs to be: twice as much would not fit.
      const bool all = cut.key_heads == a.G && cut.samples == a.B;
      CHECK((all || cut.workspace > kAttentionWorkspace / 3));
    }
  }
  // One head that needs more gets it.
  CHECK(cuda::CutCudnnBackward(ShapeOf(1, 65536, 2, 2, 192, 128), true).key_heads == 1);
  CHECK(cuda::AttentionWorkspaceBytes(ShapeOf(0, 8, 2, 2, 16, 16), true, true) == 0);
}

TEST_CASE("attention plan: the unfused path fits its goal and covers the sequence") {
  const cuda::UnfusedCut small = cuda::CutUnfused(ShapeOf(2, 13, 3, 3, 5, 4, DType::kF32), true);
  CHECK(small.rows == 13);
  CHECK(small.ld == 16);
  CHECK(small.key_heads == 3);
  CHECK(small.probabilities == 0);  // in place of the scores
  const cuda::UnfusedCut large = cuda::CutUnfused(ShapeOf(1, 4096, 128, 128, 192, 128), true);
  CHECK(large.workspace <= (int64_t{256} << 20) + 2048);
  CHECK(large.probabilities > 0);
  CHECK(large.gradients > 0);
}

TEST_CASE("attention plan: the dry device plans the GPU's workspace") {
  const auto dry = MakeDryDevice(DeviceKind::kCuda);
  const Stream stream(dry.get());
  Arena work("work", dry.get());
  const Shape q{2, 4096, 128, 192}, v{2, 4096, 128, 128};
  const auto t = [](DType type, const Shape& s) { return Tensor(nullptr, type, s); };
  const AttentionArgs args{.q = t(DType::kBF16, q), .k = t(DType::kBF16, q), .v = t(DType::kBF16, v), .o = t(DType::kBF16, v),
                           .lse = t(DType::kF32, {2, 128, 4096})};
  AttentionBackward(stream, {.forward = args, .do_ = args.o, .dq = args.q, .dk = args.k, .dv = args.v}, work);
  const AttentionShape shape(args);
  CHECK(static_cast<int64_t>(work.high_water()) >= cuda::AttentionWorkspaceBytes(shape, true, true));
  CHECK(static_cast<int64_t>(work.high_water()) <= kAttentionWorkspace + 256);
}

#if YM_HAVE_CUDA
TEST_CASE("grouped gemm path: Hopper's kernels for BF16 in multiples of 8, else the portable ones, a loop on request") {
  using cuda::ChooseGroupedGemm;
  using Path = cuda::GroupedGemmPath;
  const auto choose = [](GroupedGemmMode mode, DType type, int sm, int64_t L, int64_t n, int64_t k, bool simple = true) {
    return ChooseGroupedGemm(mode, type, sm, L, n, k, simple);
  };
  CHECK(choose(GroupedGemmMode::kAuto, DType::kBF16, 90, 32, 4096, 7168) == Path::kHopper);
  CHECK(choose(GroupedGemmMode::kAuto, DType::kBF16, 80, 32, 4096, 7168) == Path::kPortable);
  CHECK(choose(GroupedGemmMode::kAuto, DType::kBF16, 100, 32, 4096, 7168) == Path::kPortable);
  CHECK(choose(GroupedGemmMode::kAuto, DType::kF32, 90, 32, 4096, 7168) == Path::kPortable);
  CHECK(choose(GroupedGemmMode::kAuto, DType::kBF16, 90, 32, 4100, 7168) == Path::kPortable);
  CHECK(choose(GroupedGemmMode::kAuto, DType::kBF16, 90, 513, 4096, 7168) == Path::kPortable);
  CHECK(choose(GroupedGemmMode::kAuto, DType::kBF16, 90, 32, 4096, 7168, false) == Path::kPortable);
  CHECK(ChooseGroupedGemm(GroupedGemmMode::kAuto, DType::kBF16, 100, 32, 4096, 7168, true, true) == Path::kBlackwell);
  CHECK(ChooseGroupedGemm(GroupedGemmMode::kAuto, DType::kBF16, 100, 32, 4096, 7168, false, true) == Path::kPortable);
  CHECK(ChooseGroupedGemm(GroupedGemmMode::kAuto, DType::kF32, 100, 32, 4096, 7168, true, true) == Path::kPortable);
  CHECK(ChooseGroupedGemm(GroupedGemmMode::kAuto, DType::kBF16, 90, 32, 4096, 7168, true, true) == Path::kHopper);
  CHECK(choose(GroupedGemmMode::kPortable, DType::kBF16, 90, 32, 4096, 7168) == Path::kPortable);
  CHECK(choose(GroupedGemmMode::kLoop, DType::kF32, 90, 32, 4096, 7168) == Path::kLoop);
}

TEST_CASE("mxfp8 path: cuBLASLt on 10.x for widths in whole runs, else through BF16") {
  const auto takes = [](int sm, int64_t L, int64_t n, int64_t k,
                        GroupedGemmMode mode = GroupedGemmMode::kAuto, bool aligned = true,
                        bool lt_grouped = true) {
    return cuda::TakesMxfp8(mode, sm, L, n, k, aligned, lt_grouped);
  };
  CHECK(takes(100, 32, 4096, 7168));
  CHECK(takes(103, 1, 7168, 2048));
  CHECK(takes(100, 512, 32, 96));
  CHECK_FALSE(takes(90, 32, 4096, 7168));
  CHECK_FALSE(takes(110, 32, 4096, 7168));
  CHECK_FALSE(takes(120, 32, 4096, 7168));
  CHECK_FALSE(takes(100, 513, 4096, 7168));
  CHECK_FALSE(takes(100, 32, 4096, 7184));
  CHECK_FALSE(takes(100, 32, 4080, 7168));
  CHECK_FALSE(takes(100, 32, 0, 7168));
  CHECK_FALSE(takes(100, 32, 4096, 7168, GroupedGemmMode::kPortable));
  CHECK_FALSE(takes(100, 32, 4096, 7168, GroupedGemmMode::kLoop));
  CHECK_FALSE(takes(100, 32, 4096, 7168, GroupedGemmMode::kHopper));
  CHECK_FALSE(takes(100, 32, 4096, 7168, GroupedGemmMode::kAuto, false));
  CHECK_FALSE(takes(100, 32, 4096, 7168, GroupedGemmMode::kAuto, true, false));
}
#endif

}  // namespace
}  // namespace yardmaster::testing
