// Gradients of the whole model against finite differences, in double.
#include <algorithm>
#include <functional>

#include "tests/catch.h"
#include "tests/model/tiny_model.h"

namespace yardmaster {
namespace {

using namespace testing;

constexpr int64_t kB = 2, kS = 6;

// The loss whose gradient a step computes: that of Evaluate, and the weighted one of multi-token prediction,
// which only training computes.
double TotalLoss(StandaloneModel& model, const ModelConfig& config, double mtp_weight, const MoeConfig& moe) {
  const bool balanced = moe.sequence_balance_weight + moe.micro_batch_balance_weight +
                            moe.global_batch_balance_weight + moe.router_z_weight >
                        0;
  if (config.num_nextn_predict_layers == 0 && !balanced && moe.capacity_factor == 0) return model.Evaluate();
  model.BeginStep();
  model.Forward();
  model.Backward();
  double loss = model.loss();
  if (config.num_nextn_predict_layers > 0) loss += mtp_weight * model.mtp_loss();
  const Tensor sums = model.accumulators().sums;
  for (int64_t m = 1; m < sums.dim(0); ++m) {
    const double* row = sums.as<double>() + m * kStepSums;
    loss += moe.sequence_balance_weight * row[kSequenceBalance] + moe.router_z_weight * row[kRouterZ] +
            moe.micro_batch_balance_weight * row[kMicroBatchBalance] +
            moe.global_batch_balance_weight * row[kGlobalBatchBalance];
  }
  return loss;
}

// Central difference of the loss by one parameter.
double FiniteDifference(const std::function<double()>& loss, double* parameter) {
  constexpr double kStep = 1e-5;
  const double value = *parameter;
  *parameter = value + kStep;
  const double above = loss();
  *parameter = value - kStep;
  const double below = loss();
  *parameter = value;
  return (above - below) / (2 * kStep);
}

// Random elements of every tensor, and the one with the largest gradient.
void CheckGradients(StandaloneModel& model, const std::function<double()>& loss,
                    const std::vector<std::vector<double>>& gradients, int samples) {
  size_t index = 0;
  for (const auto& p : model.registry().parameters()) {
    const std::vector<double>& g = gradients[index++];
    const int64_t n = p->master.elements();
    const auto larger = [](double a, double b) { return std::abs(a) < std::abs(b); };
    const int64_t most = std::max_element(g.begin(), g.end(), larger) - g.begin();
    for (int s = 0; s <= samples; ++s) {
      const int64_t i =
          s == samples
              ? most
              : static_cast<int64_t>(PhiloxUniform(99, StreamOf(p->name.c_str()), static_cast<uint64_t>(s)) *
                                     static_cast<double>(n));
      const double expected = FiniteDifference(loss, p->master.as<double>() + i);
      // Rounding of the losses costs about 1e-11 whatever the gradient's size.
      const double error = std::abs(g[static_cast<size_t>(i)] - expected);
      INFO(p->name << "[" << i << "]: " << g[static_cast<size_t>(i)] << ", finite difference " << expected);
      CHECK(error <= 1e-6 * std::abs(expected) + 2e-10);
    }
  }
}

std::vector<std::vector<double>> Gradients(StandaloneModel& model) {
  for (const auto& p : model.registry().parameters()) {
    std::fill_n(p->grad.as<double>(), p->grad.elements(), NAN);  // beta = 0 must not read it
  }
  model.BeginStep();
  model.Forward();
  model.Backward();
  CHECK(model.micro_batch().saved->top() == 0);
  CHECK_FALSE(model.overflow());
  std::vector<std::vector<double>> out;
  for (const auto& p : model.registry().parameters()) out.push_back(Values(p->grad));
  return out;
}

void Run(const ModelConfig& config, int samples, const std::vector<double>& bias = {}, bool documents = false,
         const MoeConfig& moe = {}) {
  const auto device = OneThread();
  constexpr double kMtpWeight = 0.7;
  StandaloneModel model(config,
                        {.types = kDouble,
                         .B = kB,
                         .S = kS,
                         .attend_across_documents = !documents,
                         .moe = moe,
                         .mtp_weight = kMtpWeight,
                         .poison = true},
                        *device);
  Randomise(model, 5);
  for (const auto& b : model.registry().buffers()) {
    if (b->dtype == DType::kI64) {
      for (int64_t e = 0; e < b->value.elements(); ++e) b->value.as<int64_t>()[e] = 3 * e % 5;
    }
    for (size_t e = 0; e < bias.size(); ++e) b->value.as<double>()[e] = bias[e];
  }
  Batch batch = RandomBatch(kB * kS, config.vocab_size, 7);
  batch.targets[3] = -1;  // one that does not count
  model.SetBatch(batch.tokens, batch.targets);
  if (documents) model.SetDocumentStart({0, 0, 0, 0, 4, 4, 0, 0, 0, 0, 0, 0});
  CheckGradients(
      model, [&] { return TotalLoss(model, config, kMtpWeight, moe); }, Gradients(model), samples);
}

TEST_CASE("gradients of the whole model") { Run(TinyConfig(), 6); }

TEST_CASE("gradients without low-rank queries, YaRN, groups, normalisation or shared experts") {
  ModelConfig c = TinyConfig();
  c.q_lora_rank = 0;
  c.rope_scaling.reset();
  c.n_group = c.topk_group = 1;
  c.norm_topk_prob = false;
  c.n_shared_experts = 0;
  c.first_k_dense_replace = 0;
  c.num_hidden_layers = 2;
  Run(c, 6);
}

TEST_CASE("gradients of a model without experts") {
  ModelConfig c = TinyConfig();
  c.n_routed_experts = c.num_experts_per_tok = c.n_shared_experts = 0;
  c.num_hidden_layers = 2;
  Run(c, 4);
}

TEST_CASE("gradients with one expert per token and with all of them") {
  ModelConfig c = TinyConfig();
  c.num_hidden_layers = 2;
  c.num_experts_per_tok = 1;
  Run(c, 4);
  c.num_experts_per_tok = c.n_routed_experts;
  c.topk_group = c.n_group;
  Run(c, 4);
}

TEST_CASE("gradients of the other families") {
  ModelConfig c = TinyConfig();
  c.model_type = "deepseek_v2";
  FamilyDefaults(c);
  c.topk_method = "group_limited_greedy";
  Run(c, 4);
  Run(TinyGqaConfig("qwen3_moe"), 6);
  Run(TinyGqaConfig("mixtral"), 6);
}

TEST_CASE("gradients with multi-token prediction, one module and more, after and before the norm") {
  ModelConfig c = TinyConfig();
  c.num_hidden_layers = 2;
  for (const char* input : {"post_norm", "pre_norm"}) {
    c.mtp_input = input;
    for (const int64_t depth : {1, 3}) {
      INFO(input << ", depth " << depth);
      c.num_nextn_predict_layers = depth;
      Run(c, 3);
    }
    Run(c, 2, {}, /*documents=*/true);
  }
}

TEST_CASE("gradients with balance losses and with capacity, multi-token prediction included") {
  ModelConfig c = TinyConfig();
  c.num_hidden_layers = 2;
  c.num_nextn_predict_layers = 1;
  MoeConfig moe;
  moe.sequence_balance_weight = 0.3;
  moe.micro_batch_balance_weight = 0.2;
  moe.global_batch_balance_weight = 0.5;
  moe.router_z_weight = 0.1;
  Run(c, 3, {}, false, moe);
  Run(TinyGqaConfig("qwen3_moe"), 3, {}, false, moe);
  MoeConfig capacity;
  capacity.capacity_factor = 0.75;
  for (const char* policy : {"probs", "position"}) {
    capacity.drop_policy = policy;
    Run(c, 3, {}, false, capacity);
    Run(TinyGqaConfig("mixtral"), 3, {}, false, capacity);
  }
  capacity.pad_to_capacity = true;
  capacity.capacity_factor = 1.5;
  Run(c, 3, {}, false, capacity);
}

TEST_CASE("an expert without a token, and one with all of them") {
  ModelConfig c = TinyConfig();
  c.n_group = c.topk_group = 1;
  const std::vector<double> bias = {-10, 0, 0.02, 10, -0.02, 0.01};  // 0 is never chosen, 3 always
  Run(c, 4, bias);

  const auto device = OneThread();
  StandaloneModel model(c, {.types = kDouble, .B = kB, .S = kS, .poison = true}, *device);
  Randomise(model, 5);
  for (const auto& b : model.registry().buffers()) std::copy(bias.begin(), bias.end(), b->value.as<double>());
  const Batch batch = RandomBatch(kB * kS, c.vocab_size, 7);
  model.SetBatch(batch.tokens, batch.targets);
  Gradients(model);
  const Tensor load = model.model().load_counts();
  REQUIRE(load.dim(0) == 2);
  for (int64_t m = 0; m < 2; ++m) {
    CHECK(load.At(m).as<int64_t>()[0] == 0);
    CHECK(load.At(m).as<int64_t>()[3] == kB * kS);
  }
  for (const auto& p : model.registry().parameters()) {
    if (p->group != ParameterGroup::kExpert) continue;
    for (const double g : Values(p->grad.At(0))) REQUIRE(g == 0);  // written as zeros over NaN
    for (const double g : Values(p->grad.At(3))) REQUIRE(std::isfinite(g));
    CHECK(Difference(Values(p->grad.At(3)),
                     std::vector<double>(static_cast<size_t>(p->grad.At(3).elements()), 0.0)) > 0);
  }
}

}  // namespace
}  // namespace yardmaster
