// Whole models on the GPU: forward and backward against F64 on the cpu device, and captured in a graph.
#include "tests/cuda/gpu.h"
#include "tests/model/tiny_model.h"

#if YM_HAVE_CUDA
#include "src/ops/cuda/cuda_stream.h"
#endif

namespace yardmaster::testing {
namespace {

constexpr QuantFormat kRecipeFormats[] = {{QuantKind::kMxfp8}, {QuantKind::kFp8Block, true}};

std::vector<double> ValuesOn(Device& device, const Tensor& t) {
  HostTensor host(t.dtype(), t.shape());
  device.CopyToHost(host.view().data(), t.data(), static_cast<size_t>(t.bytes()));
  return ValuesOf(host.view());
}

void SetOn(Device& device, const Tensor& t, const std::vector<double>& values) {
  HostTensor host(t.dtype(), t.shape());
  SetValues(host.view(), values);
  device.CopyFromHost(t.data(), host.view().data(), static_cast<size_t>(t.bytes()));
}

std::vector<double> GradientsOn(StandaloneModel& model) {
  std::vector<double> all;
  for (const auto& p : model.registry().parameters()) {
    const std::vector<double> g = ValuesOn(model.device(), p->grad);
    all.insert(all.end(), g.begin(), g.end());
  }
  return all;
}

// The gradients of a step, which a second one repeats to the bit; memory is as planned.
std::vector<double> RepeatedGradients(StandaloneModel& model) {
  std::vector<double> first;
  for (int run = 0; run < 2; ++run) {
    model.BeginStep();
    model.Forward();
    model.Backward();
    if (run == 0) first = GradientsOn(model);
  }
  CHECK(SameBits(GradientsOn(model), first));
  CHECK(model.used() == model.planned());
  return first;
}

void CopyState(StandaloneModel& from, StandaloneModel& to) {
  for (size_t i = 0; i < from.registry().parameters().size(); ++i) {
    const std::vector<double> values = Values(from.registry().parameters()[i]->master);
    const Parameter& p = *to.registry().parameters()[i];
    SetOn(to.device(), p.master, values);
    if (p.has_rounded_value()) SetOn(to.device(), p.value, values);
  }
  QuantizeParameters(to.registry().list(), to.context().stream);
  for (size_t i = 0; i < from.registry().buffers().size(); ++i)
    SetOn(to.device(), to.registry().buffers()[i]->value, Values(from.registry().buffers()[i]->value));
}

// Sizes whose rows take 16-byte accesses, the Hopper grouped GEMM and cuDNN.
ModelConfig EvenConfig() {
  ModelConfig c = TinyConfig();
  c.vocab_size = 257, c.hidden_size = 128, c.intermediate_size = 256, c.num_attention_heads = 4;
  c.q_lora_rank = 64, c.kv_lora_rank = 64, c.qk_nope_head_dim = 128, c.qk_rope_head_dim = 64,
  c.v_head_dim = 128;
  c.n_routed_experts = 12, c.num_experts_per_tok = 4, c.moe_intermediate_size = 64;
  c.initializer_range = 0.1;
  return c;
}

// `bf16_gradients`: relative L2 of all gradients together, what parity allows (3e-2) or, of models whose sums do not
// average rounding out, a little more than was seen.
void CheckModel(const ModelConfig& config, int64_t B, int64_t S, double bf16_gradients) {
  const Batch batch = RandomBatch(B * S, config.vocab_size, 3);
  const auto cpu = MakeCpuDevice({.threads = 2});
  StandaloneModel reference(config, {.types = kDouble, .B = B, .S = S}, *cpu);
  Randomise(reference, 1);
  reference.SetBatch(batch.tokens, batch.targets);
  std::vector<std::vector<double>> routing(static_cast<size_t>(config.num_hidden_layers));
  const ForwardTaps taps{
      .hidden = {},
      .routing = [&](int64_t layer, const Tensor& idx,
                     const Tensor&) { routing[static_cast<size_t>(layer)] = ValuesOf(idx); },
      .logits = {}};
  reference.Forward(&taps);
  reference.Backward();
  const std::vector<double> expected = AllGradients(reference);

  Gpu gpu(size_t{1} << 28);
  std::vector<Tensor> forced;
  for (const std::vector<double>& idx : routing)
    forced.push_back(idx.empty() ? Tensor()
                                 : gpu.Make(DType::kI32, {B * S, config.num_experts_per_tok}, idx));
  for (const ComputeTypes types : {kDouble, kFloat, ComputeTypes{DType::kBF16, DType::kF32}}) {
    INFO("compute " << DTypeName(types.compute));
    const bool bf16 = types.compute == DType::kBF16;
    StandaloneModel model(config, {.types = types, .B = B, .S = S}, gpu.device());
    CopyState(reference, model);
    model.SetBatch(batch.tokens, batch.targets);
    if (bf16) model.micro_batch().forced_routing = &forced;  // rounding flips choices between equal experts
    const std::vector<double> first = RepeatedGradients(model);
    CHECK(model.loss() == Approx(reference.loss())
                              .epsilon(bf16                           ? 1e-2
                                       : types.compute == DType::kF32 ? 1e-5
                                                                      : 1e-12));
    CHECK(RelativeL2(first, expected) < (bf16                           ? bf16_gradients
                                         : types.compute == DType::kF32 ? 1e-5
                                                                        : 1e-11));
    CHECK_FALSE(model.overflow());
  }
}

TEST_CASE("gpu model: DeepSeek-V3 in odd sizes, against the cpu device") {
  YM_NEEDS_GPU();
  CheckModel(TinyConfig(), 3, 7, 5e-2);  // sums over a few dozen elements; 0.039 was seen
}

TEST_CASE("gpu model: DeepSeek-V3 with the heads of the original, against the cpu device") {
  YM_NEEDS_GPU();
  CheckModel(EvenConfig(), 2, 64, 3e-2);
}

TEST_CASE("gpu model: grouped-query attention and softmax routers, against the cpu device") {
  YM_NEEDS_GPU();
  CheckModel(TinyGqaConfig("qwen3_moe"), 3, 7, 3e-2);
  CheckModel(TinyGqaConfig("mixtral"), 3, 7, 3e-2);
}

// The work type is F32 on the cpu and BF16 here: a value that rounds apart may get the next code.
TEST_CASE("gpu model: 8-bit recipes, against the same recipe on the cpu device") {
  YM_NEEDS_GPU();
  const ModelConfig config = EvenConfig();
  const int64_t B = 2, S = 64;
  const Batch batch = RandomBatch(B * S, config.vocab_size, 3);
  const auto cpu = MakeCpuDevice({.threads = 4});
  for (const QuantFormat& format : kRecipeFormats) {
    INFO(QuantName(format));
    StandaloneModel reference(config, {.types = {DType::kF32, DType::kF32, {format}}, .B = B, .S = S}, *cpu);
    StandaloneModel plain(config, {.types = kFloat, .B = B, .S = S}, *cpu);
    Randomise(reference, 1);
    Randomise(plain, 1);
    std::vector<std::vector<double>> routing(static_cast<size_t>(config.num_hidden_layers));
    const ForwardTaps taps{
        .hidden = {},
        .routing = [&](int64_t layer, const Tensor& idx,
                       const Tensor&) { routing[static_cast<size_t>(layer)] = ValuesOf(idx); },
        .logits = {}};
    reference.SetBatch(batch.tokens, batch.targets);
    reference.Forward(&taps);
    reference.Backward();
    Gpu gpu(size_t{1} << 28);
    std::vector<Tensor> forced, forced_on_cpu;
    std::vector<HostTensor> memory;
    for (const std::vector<double>& idx : routing) {
      const Shape shape{B * S, config.num_experts_per_tok};
      forced.push_back(idx.empty() ? Tensor() : gpu.Make(DType::kI32, shape, idx));
      memory.emplace_back(DType::kI32, shape);
      if (!idx.empty()) SetValues(memory.back().view(), idx);
      forced_on_cpu.push_back(idx.empty() ? Tensor() : memory.back().view());
    }
    plain.SetBatch(batch.tokens, batch.targets);
    plain.micro_batch().forced_routing = &forced_on_cpu;
    plain.Forward();
    plain.Backward();
    StandaloneModel model(config, {.types = {DType::kBF16, DType::kF32, {format}}, .B = B, .S = S}, gpu.device());
    CopyState(reference, model);
    model.SetBatch(batch.tokens, batch.targets);
    model.micro_batch().forced_routing = &forced;
    const std::vector<double> first = RepeatedGradients(model);
    CHECK(model.loss() == Approx(reference.loss()).epsilon(1e-2));
    {
      INFO("inputs of linear layers kept in 8 bits");
      StandaloneModel copies(config, {.types = {DType::kBF16, DType::kF32, {format}}, .B = B, .S = S, .how = {.saved_copies = true}}, gpu.device());
      CopyState(reference, copies);
      copies.SetBatch(batch.tokens, batch.targets);
      copies.micro_batch().forced_routing = &forced;
      CHECK(SameBits(RepeatedGradients(copies), first));
      CHECK(copies.loss() == model.loss());
      CHECK(copies.planned().saved < model.planned().saved);
    }
    // Codes that round apart move the gradients as far as the recipe itself does: the GPU must be as near to high
    // precision as the recipe on the cpu is, not near to that.
    const std::vector<double> high = AllGradients(plain);
    const double here = RelativeL2(AllGradients(reference), high), there = RelativeL2(first, high);
    INFO("gradients, from high precision: cpu " << here << ", GPU " << there);
    CHECK(there < 1.2 * here);
    CHECK(there > 0.5 * here);  // it is the recipe that was computed
  }
}

#if YM_HAVE_CUDA
TEST_CASE("gpu model: forward and backward captured in a graph replay bit for bit, with another batch") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 20);
  const int64_t B = 2, S = 64, T = B * S;
  StandaloneModel model(EvenConfig(), {.types = {DType::kBF16, DType::kF32}, .B = B, .S = S}, gpu.device());
  InitialiseParameters(model.registry().list(), 5, gpu.device());
  const cudaStream_t s = CudaStream(model.context().stream);
  const auto set = [&](uint64_t seed) {
    const Batch batch = RandomBatch(T, 257, seed);
    model.SetBatch(batch.tokens, batch.targets);
    model.BeginStep();
  };
  const auto step = [&] {
    model.registry().list().BeginStep();
    model.Forward();
    model.Backward();
  };
  set(1);
  step();  // plans are made here; a captured step makes none
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  YM_CUDA_CHECK(model.context().stream, "test", cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  step();
  YM_CUDA_CHECK(model.context().stream, "test", cudaStreamEndCapture(s, &graph));
  YM_CUDA_CHECK(model.context().stream, "test", cudaGraphInstantiate(&exec, graph, 0));
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}}) {
    set(seed);
    step();
    const std::vector<double> eager = GradientsOn(model);
    const double loss = model.loss();
    set(seed);
    YM_CUDA_CHECK(model.context().stream, "test", cudaGraphLaunch(exec, s));
    CHECK(SameBits(GradientsOn(model), eager));
    CHECK(model.loss() == loss);
  }
  static_cast<void>(cudaGraphExecDestroy(exec));
  static_cast<void>(cudaGraphDestroy(graph));
}
#endif

}  // namespace
}  // namespace yardmaster::testing
