#include "src/config/parameters.h"

#include <cmath>

#include "src/config/reader.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

ModelConfig DeepSeekV3() {
  ModelConfig m;
  m.vocab_size = 129280;
  m.hidden_size = 7168;
  m.num_hidden_layers = 61;
  m.first_k_dense_replace = 3;
  m.intermediate_size = 18432;
  m.num_attention_heads = 128;
  m.q_lora_rank = 1536;
  m.kv_lora_rank = 512;
  m.qk_nope_head_dim = 128;
  m.qk_rope_head_dim = 64;
  m.v_head_dim = 128;
  m.n_routed_experts = 256;
  m.num_experts_per_tok = 8;
  m.n_shared_experts = 1;
  m.moe_intermediate_size = 2048;
  m.n_group = 8;
  m.topk_group = 4;
  return m;
}

// Full width, cut to fit one GPU: the model of docs and benchmarks.
ModelConfig Proxy() {
  ModelConfig m = DeepSeekV3();
  m.num_hidden_layers = 4;
  m.first_k_dense_replace = 1;
  m.n_routed_experts = 32;
  return m;
}

}  // namespace

TEST_CASE("DeepSeek-V3 has 671 B parameters, 37.55 B active") {
  const ParameterCounts c = CountParameters(DeepSeekV3());
  CHECK(c.total() == 671026419200);  // 671026404352 weights and 58 x 256 selection biases
  CHECK(c.active() == Approx(37.55e9).epsilon(0.0005));
  CHECK(c.embedding == 129280 * 7168);
  CHECK(c.head == c.embedding);
  CHECK(c.router == 58 * 256 * (7168 + 1));
  CHECK(c.routed_experts == int64_t{58} * 256 * 3 * 7168 * 2048);
  CHECK(c.inactive_experts == int64_t{58} * 248 * 3 * 7168 * 2048);
  CHECK(c.shared_experts == int64_t{58} * 3 * 7168 * 2048);
  CHECK(c.dense_mlp == int64_t{3} * 3 * 7168 * 18432);
  CHECK(c.norms == (2 * 61 + 1) * 7168);
  CHECK(c.attention == 61 * (7168 * 1536 + 1536 + int64_t{1536} * 128 * 192 + 7168 * 576 + 512 +
                             int64_t{512} * 128 * 256 + int64_t{128} * 128 * 7168));
  ModelConfig with_mtp = DeepSeekV3();
  with_mtp.num_nextn_predict_layers = 1;
  CHECK(CountParameters(with_mtp).total() == c.total());
  // What a module computes: the projection, a layer like the last, the head again.
  const int64_t attention = 7168 * 1536 + int64_t{1536} * 128 * 192 + 7168 * 576 + int64_t{512} * 128 * 256 +
                            int64_t{128} * 128 * 7168;
  const int64_t module =
      2 * 7168 * 7168 + attention + 256 * 7168 + int64_t{9} * 3 * 7168 * 2048 + int64_t{129280} * 7168;
  CHECK(CountFlopsPerToken(with_mtp, 4096).active_matmul_parameters -
            CountFlopsPerToken(DeepSeekV3(), 4096).active_matmul_parameters ==
        module);
  CHECK(FlopsFormula(with_mtp, 4096).find("62 layers") != std::string::npos);
}

TEST_CASE("the one-GPU proxy and its measured step") {
  const ParameterCounts c = CountParameters(Proxy());
  CHECK(c.total() == Approx(7.3589e9).epsilon(0.00002));
  const FlopsPerToken flops = CountFlopsPerToken(Proxy(), 4096);
  CHECK(flops.total() * 2 * 4096 == Approx(176.8e12).epsilon(0.0005));
  // Causal attention as half of 4 layers x 128 heads x (192 + 128) x 4096 multiply-adds, times 3 x 2.
  CHECK(flops.attention == 6.0 * 4 * 128 * 320 * 4096 / 2);
  CHECK(flops.dense == 6.0 * static_cast<double>(flops.active_matmul_parameters));
  const std::string formula = FlopsFormula(Proxy(), 4096);
  CHECK(formula.find("3 x 2 x 4 layers x 128 heads x (192 + 128) x 4096 / 2 (causal)") != std::string::npos);
  CHECK(formula.find("GFLOP") != std::string::npos);
}

// Published: 16 B total and 3 B active. 27 layers, no query rank, two shared experts, six of 64.
TEST_CASE("Moonlight: queries without a low rank, several shared experts") {
  ModelConfig m = DeepSeekV3();
  m.vocab_size = 163840;
  m.hidden_size = 2048;
  m.num_hidden_layers = 27;
  m.first_k_dense_replace = 1;
  m.intermediate_size = 11264;
  m.num_attention_heads = 16;
  m.q_lora_rank = 0;
  m.n_routed_experts = 64;
  m.num_experts_per_tok = 6;
  m.n_shared_experts = 2;
  m.moe_intermediate_size = 1408;
  m.n_group = m.topk_group = 1;
  const ParameterCounts c = CountParameters(m);
  CHECK(c.total() == Approx(15.96e9).epsilon(0.001));
  CHECK(c.attention == 27 * (2048 * 16 * 192 + 2048 * 576 + 512 + 512 * 16 * 256 + 16 * 128 * 2048));
  CHECK(c.shared_experts == int64_t{26} * 2 * 3 * 2048 * 1408);
  CHECK(c.active() == Approx(2.9e9).epsilon(0.05));
}

TEST_CASE("dense models and models too large to count") {
  ModelConfig m = DeepSeekV3();
  m.n_routed_experts = m.num_experts_per_tok = m.n_shared_experts = 0;
  const ParameterCounts c = CountParameters(m);
  CHECK(c.router == 0);
  CHECK(c.routed_experts == 0);
  CHECK(c.dense_mlp == int64_t{61} * 3 * 7168 * 18432);
  CHECK(c.active() == c.total());
  m = DeepSeekV3();
  m.hidden_size = m.moe_intermediate_size = 1 << 20;
  m.n_routed_experts = 1 << 16;
  m.num_hidden_layers = 1 << 14;
  CHECK_FALSE(ParametersAreCountable(m));
}

TEST_CASE("published models: total and active parameters of their configurations") {
  const std::tuple<const char*, double, double> models[] = {{"deepseek_v2_lite_16b", 15.706e9, 2.661e9},
                                                            {"moonlight_16b_a3b", 15.960e9, 2.915e9},
                                                            {"qwen3_30b_a3b", 30.532e9, 3.353e9},
                                                            {"mixtral_8x7b", 46.703e9, 12.880e9}};
  for (const auto& [name, total, active] : models) {
    INFO(name);
    const Config config = LoadConfig(std::string("configs/") + name + ".yaml", {}).config;
    const ParameterCounts c = CountParameters(config.model);
    CHECK(std::abs(static_cast<double>(c.total()) - total) < 0.5e6);
    CHECK(std::abs(static_cast<double>(c.active()) - active) < 0.5e6);
    // Nobody means to train them in the default fp32, or on a cpu.
    CHECK(config.precision.compute == "bf16");
    CHECK(config.runtime.device == "cuda");
  }
}

// The step whose time docs/performance.md compares: batch 2, sequence 4096.
TEST_CASE("the proxy of DeepSeek-V3 for one GPU has 7.3589 B parameters and 176.8 TFLOP a step") {
  const Config c = LoadConfig("configs/h200_deepseek_v3_proxy.yaml", {}).config;
  CHECK(std::abs(static_cast<double>(CountParameters(c.model).total()) - 7.3589e9) < 0.5e5);
  CHECK(c.train.sequence_length == 4096);
  CHECK(c.train.micro_batch_size == 2);
  CHECK(c.train.global_batch_size == Schedule::Constant(2));
  const double tflop = CountFlopsPerToken(c.model, 4096).total() * 2 * 4096 * 1e-12;
  CHECK(std::abs(tflop - 176.8) < 0.05);
  CHECK(c.optimizer.moments == "bf16");
  CHECK_FALSE(c.checkpoint.save_at_end);
}

TEST_CASE("the tiny configuration is tiny") {
  const Config c = LoadConfig("configs/tiny_deepseek_v3.yaml", {}).config;
  const ParameterCounts counts = CountParameters(c.model);
  CHECK(counts.total() > 1500000);
  CHECK(counts.total() < 2100000);
}

}  // namespace yardmaster
