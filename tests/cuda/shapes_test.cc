// The declarations of tests/ops at the sizes of DeepSeek-V3 and of ragged loads: every path of the GPU against F64 on the cpu
// device. The reference is the cpu op itself, which tests/ops checks against independent code.
#include <cmath>

#include "src/base/strings.h"
#include "src/ops/attention.h"
#include "src/ops/gemm.h"
#include "src/ops/grouped_gemm.h"
#include "src/ops/linear_cross_entropy.h"
#include "tests/cuda/gpu.h"

namespace yardmaster::testing {
namespace {

OpInput Input(const char* name, const Shape& shape, double range = 1) {
  OpInput in{name, shape, {}};
  in.values = RandomValues(name, shape.elements(), -range, range);
  return in;
}
OpInput Weight(const char* name, const Shape& shape, double range) {
  OpInput in = Input(name, shape, range);
  in.main_gradient = true;
  return in;
}
OpInput Integers(const char* name, const Shape& shape, const std::vector<double>& values, DType type) {
  OpInput in{name, shape, values};
  in.differentiable = false;
  in.type = type;
  return in;
}
OpOutput Output(const char* name, const Shape& shape) {
  OpOutput out;
  out.name = name;
  out.shape = shape;
  return out;
}

// A linear layer, with its gradients as the modules compute them.
void CheckLinear(int64_t T, int64_t N, int64_t K) {
  OpDeclaration op;
  op.name = StrCat("linear ", T, " x ", K, " -> ", N);
  op.bf16 = true;
  op.inputs = {Input("x", {T, K}), Weight("w", {N, K}, 0.05)};
  op.outputs = {Output("y", {T, N})};
  op.forward = [](const OpRun& r) { Gemm(r.stream(), {.a = r["x"], .b = r["w"], .d = r["y"], .trans_b = true}); };
  op.backward = [](const OpRun& r) {
    Gemm(r.stream(), {.a = r["d.y"], .b = r["w"], .d = r["d.x"]});
    Gemm(r.stream(), {.a = r["d.y"], .b = r["x"], .d = r["d.w"], .trans_a = true});
  };
  CheckOp(op);
}

TEST_CASE("gpu shapes: linear layers of the latent attention and the dense MLP") {
  CheckLinear(384, 1536, 7168);
  CheckLinear(384, 576, 7168);
  CheckLinear(256, 7168, 2048);
  CheckLinear(1, 7168, 512);
  CheckLinear(127, 333, 511);
}

void CheckExperts(const std::vector<int64_t>& counts, int64_t tail, int64_t N, int64_t K, GroupedGemmMode mode) {
  const int64_t L = static_cast<int64_t>(counts.size());
  std::vector<double> offsets = {0};
  for (const int64_t n : counts) offsets.push_back(offsets.back() + static_cast<double>(n));
  const int64_t rows = static_cast<int64_t>(offsets.back()), R = rows + tail;
  OpDeclaration op;
  op.name = StrCat("experts ", L, " rows ", rows, " N ", N, " K ", K, " mode ", static_cast<int>(mode));
  op.bf16 = true;
  OpInput x = Input("x", {R, K});
  x.used_rows = rows;
  op.inputs = {x, Weight("w", {L, N, K}, 0.05), Integers("offsets", {L + 1}, offsets, DType::kI64)};
  OpOutput y = Output("y", {R, N});
  y.used_rows = rows;
  op.outputs = {y};
  op.forward = [=](const OpRun& r) { GroupedGemmForward(r.stream(), r["x"], r["w"], r["offsets"], r["y"], mode); };
  op.backward = [=](const OpRun& r) {
    GroupedGemmBackwardInput(r.stream(), r["d.y"], r["w"], r["offsets"], r["d.x"], mode);
    GroupedGemmBackwardWeight(r.stream(), r["d.y"], r["x"], r["offsets"], 0, r["d.w"], mode);
  };
  CheckOp(op);
}

void CheckRaggedExperts(GroupedGemmMode mode) {
  CheckExperts({257, 0, 131, 200}, 37, 512, 1024, mode);
  CheckExperts({0, 0, 0, 640, 0}, 0, 256, 512, mode);
  CheckExperts({64, 1, 128, 3}, 129, 136, 264, mode);
  std::vector<int64_t> many(70, 2);
  many[33] = 0;
  many[69] = 300;
  CheckExperts(many, 1, 64, 128, mode);
}

TEST_CASE("gpu shapes: grouped GEMM, ragged and skewed, the path that is chosen") {
  CheckRaggedExperts(GroupedGemmMode::kAuto);
  CheckExperts({97, 64, 0}, 5, 4096, 1792, GroupedGemmMode::kAuto);
}

TEST_CASE("gpu shapes: grouped GEMM, ragged and skewed, portable") { CheckRaggedExperts(GroupedGemmMode::kPortable); }

TEST_CASE("gpu shapes: grouped GEMM, ragged and skewed, loop with counts on the host") {
  CheckRaggedExperts(GroupedGemmMode::kLoop);
}

TEST_CASE("gpu shapes: weight gradients of experts add to what was there, in every type and path") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{256} << 20, size_t{1} << 20);
  const int64_t L = 3, N = 64, K = 128, R = 40;
  const std::vector<double> offsets = {0, 17, 17, 33};
  const auto old = RandomValues("old", L * N * K), x = RandomValues("x", R * K), dy = RandomValues("dy", R * N);
  CpuFixture cpu;
  for (const DType type : {DType::kBF16, DType::kF32, DType::kF64}) {
    for (const double beta : {0.0, 1.0, 0.5}) {
      const auto rounded = [&](const std::vector<double>& v, const Shape& s) {
        HostTensor h(type, s);
        SetValues(h.view(), v);
        return ValuesOf(h.view());
      };
      const DType main = type == DType::kBF16 ? DType::kF32 : type;
      HostTensor old_rounded(main, {L, N, K});
      SetValues(old_rounded.view(), old);
      HostTensor dw64(DType::kF64, {L, N, K}), x64(DType::kF64, {R, K}), dy64(DType::kF64, {R, N}), off(DType::kI64, {L + 1});
      SetValues(dw64.view(), ValuesOf(old_rounded.view()));
      SetValues(x64.view(), rounded(x, {R, K}));
      SetValues(dy64.view(), rounded(dy, {R, N}));
      SetValues(off.view(), offsets);
      GroupedGemmBackwardWeight(cpu.stream(), dy64.view(), x64.view(), off.view(), beta, dw64.view());
      for (const GroupedGemmMode mode : {GroupedGemmMode::kAuto, GroupedGemmMode::kPortable, GroupedGemmMode::kLoop}) {
        const Tensor dw = gpu.Make(main, {L, N, K}, old);
        if (beta == 0) gpu.Poison(dw);
        GroupedGemmBackwardWeight(gpu.stream(), gpu.Make(type, {R, N}, dy), gpu.Make(type, {R, K}, x),
                                  gpu.Make(DType::kI64, {L + 1}, offsets), beta, dw, mode);
        INFO(DTypeName(type) << " beta " << beta << " mode " << static_cast<int>(mode));
        CHECK(RelativeL2(gpu.Values(dw), ValuesOf(dw64.view())) < 2e-6);  // products of BF16 are exact in FP32
      }
    }
  }
}

void CheckAttentionShape(int64_t B, int64_t S, int64_t H, int64_t G, int64_t Q, int64_t V, AttentionMode mode) {
  OpDeclaration op;
  op.name = StrCat("attention B ", B, " S ", S, " H ", H, " G ", G, " ", Q, "/", V, " mode ", static_cast<int>(mode));
  op.bf16 = true;
  const double scale = 1 / std::sqrt(static_cast<double>(Q));
  op.inputs = {Input("q", {B, S, H, Q}, 2), Input("k", {B, S, G, Q}, 2), Input("v", {B, S, G, V})};
  OpOutput lse = Output("lse", {B, H, S});
  lse.differentiable = false;
  lse.accum = true;
  op.outputs = {Output("o", {B, S, H, V}), lse};
  const auto args = [=](const OpRun& r) {
    return AttentionArgs{.q = r["q"], .k = r["k"], .v = r["v"], .scale = scale, .o = r["o"], .lse = r["lse"], .mode = mode};
  };
  op.forward = [=](const OpRun& r) { AttentionForward(r.stream(), args(r), r.work()); };
  op.backward = [=](const OpRun& r) {
    AttentionBackward(r.stream(), {.forward = args(r), .do_ = r["d.o"], .dq = r["d.q"], .dk = r["d.k"], .dv = r["d.v"]}, r.work());
  };
  CheckOp(op);
}

TEST_CASE("gpu shapes: attention, 192/128 and grouped queries at 128, cuDNN and unfused") {
  for (const AttentionMode mode : {AttentionMode::kAuto, AttentionMode::kUnfused}) {
    CheckAttentionShape(2, 512, 4, 4, 192, 128, mode);
    CheckAttentionShape(1, 512, 8, 2, 128, 128, mode);
    CheckAttentionShape(2, 321, 2, 2, 192, 128, mode);
    CheckAttentionShape(1, 77, 6, 2, 64, 64, mode);
  }
  CheckAttentionShape(1, 1100, 2, 1, 24, 12, AttentionMode::kAuto);  // several blocks of rows; a width that cuDNN refuses
}

// The plans were not refused: otherwise the test above would compare the unfused path with itself.
TEST_CASE("gpu shapes: cuDNN does take the reference model's attention") {
  YM_NEEDS_GPU();
  Gpu gpu;
  const auto bf16 = [&](const Shape& s) { return gpu.Make(DType::kBF16, s, RandomValues("t", s.elements())); };
  const auto run = [&](int64_t H, int64_t G, int64_t Q, int64_t V, bool deterministic) {
    const int64_t S = 512;
    const AttentionArgs f{.q = bf16({1, S, H, Q}), .k = bf16({1, S, G, Q}), .v = bf16({1, S, G, V}), .scale = 0.1,
                          .o = bf16({1, S, H, V}), .lse = gpu.Make(DType::kF32, {1, H, S})};
    AttentionForward(gpu.stream(), f, gpu.work());
    AttentionBackward(gpu.stream(), {.forward = f, .do_ = bf16({1, S, H, V}), .dq = bf16({1, S, H, Q}), .dk = bf16({1, S, G, Q}),
                                     .dv = bf16({1, S, G, V}), .deterministic = deterministic}, gpu.work());
    gpu.stream().Synchronize();
  };
  run(8, 8, 192, 128, true);
  run(8, 2, 128, 128, true);
  run(8, 8, 192, 128, false);
  const std::string plans = AttentionPlans(gpu.stream());
  INFO(plans);
  CHECK(plans.find("cuDNN") == std::string::npos);  // a refusal begins with it
  size_t engines = 0;
  for (size_t at = plans.find("engine"); at != std::string::npos; at = plans.find("engine", at + 1)) ++engines;
  CHECK(engines == 5);
  CHECK(GemmAlgorithms(gpu.stream()).empty());
}

TEST_CASE("gpu shapes: attention in groups of heads is attention in one go") {
  YM_NEEDS_GPU();
  Gpu gpu;
  // 4096 long: the deterministic backward takes at most 62 heads at a time, so 72 go in two calls.
  const int64_t S = 4096, H = 72, Q = 192, V = 128;
  const auto bf16 = [&](const char* name, const Shape& s) { return gpu.Make(DType::kBF16, s, RandomValues(name, s.elements())); };
  const AttentionArgs f{.q = bf16("q", {1, S, H, Q}), .k = bf16("k", {1, S, H, Q}), .v = bf16("v", {1, S, H, V}), .scale = 0.1,
                        .o = gpu.Make(DType::kBF16, {1, S, H, V}), .lse = gpu.Make(DType::kF32, {1, H, S})};
  const auto gradient = [&](AttentionMode mode) {
    AttentionArgs args = f;
    args.mode = mode;
    AttentionForward(gpu.stream(), args, gpu.work());
    AttentionBackwardArgs b{.forward = args, .do_ = bf16("do", {1, S, H, V}), .dq = gpu.Make(DType::kBF16, {1, S, H, Q}),
                            .dk = gpu.Make(DType::kBF16, {1, S, H, Q}), .dv = gpu.Make(DType::kBF16, {1, S, H, V})};
    AttentionBackward(gpu.stream(), b, gpu.work());
    return b;
  };
  const AttentionBackwardArgs fused = gradient(AttentionMode::kAuto), plain = gradient(AttentionMode::kUnfused);
  CHECK(RelativeL2(gpu.Values(fused.dq), gpu.Values(plain.dq)) < 1e-2);
  CHECK(RelativeL2(gpu.Values(fused.dk), gpu.Values(plain.dk)) < 1e-2);
  CHECK(RelativeL2(gpu.Values(fused.dv), gpu.Values(plain.dv)) < 1e-2);
}

void CheckHead(int64_t T, int64_t D, int64_t V, int64_t chunk) {
  OpDeclaration op;
  op.name = StrCat("head T ", T, " D ", D, " V ", V, " chunk ", chunk);
  op.bf16 = true;
  std::vector<double> targets = RandomValues("targets", T, 0, static_cast<double>(V));
  for (size_t i = 0; i < targets.size(); ++i) targets[i] = i % 7 == 3 ? -1 : std::floor(targets[i]);
  op.inputs = {Input("x", {T, D}), Weight("head", {V, D}, 0.05), Integers("targets", {T}, targets, DType::kI32)};
  OpOutput loss = Output("loss", {1});
  loss.accum = true;
  op.outputs = {loss};
  const auto args = [=](const OpRun& r, const Tensor& sum) {
    return LinearCrossEntropyArgs{.x = r["x"], .head = r["head"], .targets = r["targets"], .loss_sum = sum, .chunk_tokens = chunk};
  };
  op.forward = [=](const OpRun& r) {
    const Tensor sum = r.Scratch(DType::kF64, {1}, {0});
    LinearCrossEntropy(r.stream(), args(r, sum), r.work());
    r.Set(r["loss"], r.Values(sum));
  };
  op.backward = [=](const OpRun& r) {
    LinearCrossEntropyArgs a = args(r, r.Scratch(DType::kF64, {1}, {0}));
    a.grad_scale = r.Values(r["d.loss"])[0];
    a.dx = r["d.x"];
    a.dhead = r["d.head"];
    LinearCrossEntropy(r.stream(), a, r.work());
  };
  CheckOp(op);
}

TEST_CASE("gpu shapes: head and loss over a large vocabulary, in chunks") {
  CheckHead(300, 512, 16160, 128);
  CheckHead(33, 256, 5003, 1024);
}

TEST_CASE("gpu: a target outside the vocabulary makes the loss NaN and touches nothing else") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{64} << 20, size_t{16} << 20);
  const Tensor sum = gpu.Make(DType::kF64, {1}, {0}), valid = gpu.Make(DType::kI64, {1}, {0});
  LinearCrossEntropy(gpu.stream(), {.x = gpu.Make(DType::kF32, {2, 4}, RandomValues("x", 8)),
                                    .head = gpu.Make(DType::kF32, {3, 4}, RandomValues("h", 12)),
                                    .targets = gpu.Make(DType::kI32, {2}, {1, 3}), .loss_sum = sum, .valid = valid}, gpu.work());
  CHECK(std::isnan(gpu.Values(sum)[0]));
  CHECK(gpu.Values(valid)[0] == 2);
}

}  // namespace
}  // namespace yardmaster::testing
