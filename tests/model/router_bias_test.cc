// The router's bias moves towards the balanced load, from integer counts, and only when the step counts.
#include <map>

#include "src/base/strings.h"
#include "src/ops/step_control.h"
#include "tests/catch.h"
#include "tests/model/tiny_model.h"

namespace yardmaster {
namespace {

using namespace testing;

HostTensor State(const StepState& state) {
  HostTensor t(DType::kU8, {static_cast<int64_t>(sizeof(StepState))});
  std::memcpy(t.view().data(), &state, sizeof(state));
  return t;
}

TEST_CASE("each layer's router bias moves the right way") {
  const auto device = OneThread();
  StandaloneModel model(TinyConfig(), {.types = kFloat, .B = 4, .S = 8, .poison = true}, *device);
  Randomise(model, 2);
  std::vector<std::vector<double>> before;
  for (const auto& b : model.registry().buffers()) before.push_back(Values(b->value));
  for (int micro_batch = 0; micro_batch < 2;
       ++micro_batch) {  // the load of a step is that of all its micro-batches
    const Batch batch = RandomBatch(32, 17, static_cast<uint64_t>(3 + micro_batch));
    model.SetBatch(batch.tokens, batch.targets);
    model.Forward();
    model.Backward();
  }
  const Tensor counts = model.model().load_counts();
  const int64_t E = 6, total = 2 * 32 * 2;
  const std::vector<int64_t> load(counts.as<int64_t>(), counts.as<int64_t>() + counts.elements());
  for (int64_t m = 0; m < 2; ++m) {
    int64_t sum = 0;
    for (int64_t e = 0; e < E; ++e) sum += load[static_cast<size_t>(m * E + e)];
    CHECK(sum == total);
  }
  CHECK(std::vector<int64_t>(load.begin(), load.begin() + E) !=
        std::vector<int64_t>(load.begin() + E, load.end()));

  StepState state;
  state.bias_speed = 0.25;
  model.model().UpdateRouterBias(model.context(), State(state).view());
  for (size_t m = 0; m < 2; ++m) {
    const std::vector<double> after = Values(model.registry().buffers()[m]->value);
    for (size_t e = 0; e < static_cast<size_t>(E); ++e) {
      const int64_t need = total - E * load[m * static_cast<size_t>(E) + e];  // positive: too few tokens
      const double move = need > 0 ? 0.25 : need < 0 ? -0.25 : 0;
      INFO("layer " << m << " expert " << e << " load " << load[m * static_cast<size_t>(E) + e]);
      CHECK(after[e] - before[m][e] == Approx(move).margin(1e-6));
    }
  }
  for (int64_t i = 0; i < counts.elements(); ++i) CHECK(counts.as<int64_t>()[i] == 0);
}

TEST_CASE("the router of multi-token prediction is balanced too, and loads are kept for the next step") {
  const auto device = OneThread();
  ModelConfig c = TinyConfig();
  c.num_nextn_predict_layers = 1;
  MoeConfig moe;
  moe.global_batch_balance_weight = 0.01;
  StandaloneModel model(c, {.types = kFloat, .B = 4, .S = 8, .moe = moe, .poison = true}, *device);
  Randomise(model, 2);
  const Batch batch = RandomBatch(32, 17, 3);
  model.SetBatch(batch.tokens, batch.targets);
  model.Forward();
  model.Backward();
  CHECK(model.model().moe_layers() == std::vector<int64_t>{1, 2, 3});
  const Tensor counts = model.model().load_counts();
  const std::vector<int64_t> load(counts.as<int64_t>(), counts.as<int64_t>() + counts.elements());
  std::map<std::string, std::vector<double>> before;
  for (const auto& b : model.registry().buffers()) {
    if (b->dtype != DType::kI64) before[b->name] = Values(b->value);
  }
  CHECK(before.count("model.layers.3.mlp.gate.e_score_correction_bias") == 1);
  StepState state;
  state.bias_speed = 0.25;
  model.model().UpdateRouterBias(model.context(), State(state).view());
  for (size_t m = 0; m < 3; ++m) {
    int64_t total = 0;
    for (size_t e = 0; e < 6; ++e) total += load[m * 6 + e];
    CHECK(total == 64);
    for (const auto& b : model.registry().buffers()) {
      if (b->name.find(StrCat("model.layers.", m + 1, ".")) != 0) continue;
      for (size_t e = 0; e < 6; ++e) {
        const int64_t need = total - 6 * load[m * 6 + e];
        if (b->dtype == DType::kI64) {
          CHECK(b->value.as<int64_t>()[e] == load[m * 6 + e]);
        } else {
          CHECK(Values(b->value)[e] - before.at(b->name)[e] == Approx(need > 0   ? 0.25
                                                                      : need < 0 ? -0.25
                                                                                 : 0)
                                                                   .margin(1e-6));
        }
      }
    }
  }
  // A skipped step keeps what was known.
  model.Forward();
  model.Backward();
  state.verdict = static_cast<int32_t>(StepVerdict::kNonFinite);
  for (const auto& b : model.registry().buffers()) {
    if (b->dtype == DType::kI64) b->value.as<int64_t>()[0] = 77;
  }
  model.model().UpdateRouterBias(model.context(), State(state).view());
  for (const auto& b : model.registry().buffers()) {
    if (b->dtype == DType::kI64) CHECK(b->value.as<int64_t>()[0] == 77);
  }
}

TEST_CASE("a skipped step leaves the bias and starts the load anew") {
  const auto device = OneThread();
  StandaloneModel model(TinyConfig(), {.types = kFloat, .B = 1, .S = 8}, *device);
  Randomise(model, 2);
  const Batch batch = RandomBatch(8, 17, 3);
  model.SetBatch(batch.tokens, batch.targets);
  for (const StepVerdict verdict : {StepVerdict::kNonFinite, StepVerdict::kOverflow}) {
    model.Forward();
    model.Backward();
    const std::vector<double> before = Values(model.registry().buffers()[0]->value);
    StepState state;
    state.bias_speed = 0.25;
    state.verdict = static_cast<int32_t>(verdict);
    model.model().UpdateRouterBias(model.context(), State(state).view());
    CHECK(SameBits(Values(model.registry().buffers()[0]->value), before));
    for (int64_t i = 0; i < 12; ++i) CHECK(model.model().load_counts().as<int64_t>()[i] == 0);
  }
}

TEST_CASE("repeated updates balance a skewed router") {
  const auto device = OneThread();
  ModelConfig c = TinyConfig();
  c.n_group = c.topk_group = 1;
  c.num_hidden_layers = 2;
  StandaloneModel model(c, {.types = kFloat, .B = 4, .S = 16}, *device);
  Randomise(model, 2);
  const Tensor bias = model.registry().buffers()[0]->value;
  bias.as<float>()[1] = 0.5f;  // nearly every token chooses expert 1
  const Batch batch = RandomBatch(64, 17, 3);
  model.SetBatch(batch.tokens, batch.targets);
  StepState state;
  state.bias_speed = 0.01;
  const HostTensor device_state = State(state);
  std::vector<int64_t> first;
  int64_t most = 0;
  for (int step = 0; step < 200; ++step) {
    model.Forward();
    model.Backward();
    const int64_t* load = model.model().load_counts().as<int64_t>();
    if (step == 0) first.assign(load, load + 6);
    most = *std::max_element(load, load + 6);
    model.model().UpdateRouterBias(model.context(), device_state.view());
  }
  CHECK(first[1] > 50);
  CHECK(most < 40);  // balanced: 64 * 2 / 6 = 21
}

}  // namespace
}  // namespace yardmaster
