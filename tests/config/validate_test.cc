#include "src/config/validate.h"

#include "src/base/strings.h"
#include "src/config/reader.h"
#include "src/config/supported.h"
#include "tests/catch.h"
#include "tests/config/sample.h"

namespace yardmaster {
namespace {

std::string ErrorWith(const std::vector<std::string>& overrides) {
  return testing::ConfigErrorOf([&] { ParseConfig(testing::kSampleConfig, "c.yaml", overrides); });
}

Config With(const std::vector<std::string>& overrides) {
  return ParseConfig(testing::kSampleConfig, "c.yaml", overrides).config;
}

std::string LayoutIssues(const std::vector<std::string>& overrides, int world) {
  const LoadedConfig loaded = ParseConfig(testing::kSampleConfig, "c.yaml", overrides);
  Issues issues;
  ValidateLayout(loaded.config, world, loaded.places, issues);
  return StrJoin(issues.Lines(), "\n");
}

}  // namespace

TEST_CASE("what must hold between fields") {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"model.first_k_dense_replace=4"},
       "model.first_k_dense_replace: 4 dense layers, but num_hidden_layers is 3"},
      {{"model.intermediate_size=0"}, "model.intermediate_size: must be at least 1"},
      {{"model.qk_rope_head_dim=7"}, "model.qk_rope_head_dim: must be even"},
      {{"model.rope_scaling={beta_fast: 1, beta_slow: 2}"},
       "model.rope_scaling.beta_fast: must be above beta_slow"},
      {{"model.qk_rope_head_dim=0"}, "model.qk_rope_head_dim: missing: deepseek_v3 has latent attention"},
      {{"model.kv_lora_rank=0"}, "model.kv_lora_rank: missing: deepseek_v3 has latent attention"},
      {{"model.num_key_value_heads=2"}, "model.num_key_value_heads: only 4 (all heads)"},
      {{"model.head_dim=16"}, "model.head_dim: deepseek_v3 has latent attention"},
      {{"model.model_type=qwen3_moe"}, "model.kv_lora_rank: qwen3_moe has no latent attention"},
      {{"model.topk_method=greedy"}, "model.n_group: topk_method greedy has no groups, found 4"},
      {{"model.moe_intermediate_size=0"}, "model.moe_intermediate_size: must be at least 1"},
      {{"model.num_experts_per_tok=0"}, "model.num_experts_per_tok: must be at least 1"},
      {{"model.n_routed_experts=0"}, "model.num_experts_per_tok: is 4, but n_routed_experts is 0"},
      {{"model.n_group=3"}, "model.n_group: must divide n_routed_experts (16), found 3"},
      {{"model.n_group=16"}, "leave 1 expert in each"},
      {{"model.topk_group=5"}, "model.topk_group: must be at most n_group (4), found 5"},
      {{"model.num_experts_per_tok=9"}, "9 experts per token, but 2 of 4 groups of 4 offer 8"},
      {{"model.max_position_embeddings=31"}, "train.sequence_length: must be at most"},
      {{"train.micro_batch_size=3"},
       "train.global_batch_size: must be a multiple of train.micro_batch_size (3), found 4"},
      {{"train.global_batch_size=[{constant: {value: 4, until: 10}}, {constant: {value: 7}}]"}, "found 7"},
      {{"train.steps=1e15", "train.global_batch_size=2e6"}, "more than 2^60 tokens"},
      {{"train.eval_every_steps=5", "data.validation=\"\""}, "train.eval_every_steps: needs data.validation"},
      {{"parallel.ep=3"}, "parallel.ep: must divide model.n_routed_experts (16), found 3"},
      {{"parallel.pp=4"}, "parallel.pp: 4 pipeline stages for 3 layers"},
      {{"ep.ragged_buffer_factor=-0.5"}, "must be -1 or at least 0.01, found -0.5"},
      {{"ep.ragged_buffer_factor=0"}, "must be -1 or at least 0.01, found 0"},
      {{"ep.ragged_buffer_factor=1e-9"}, "every step would be computed again in more than 100 rounds"},
      {{"checkpoint.keep_latest=1"}, "checkpoint.keep_latest: must be 0 (all) or at least 2"},
      {{"parallel.ep=0"}, "parallel.ep: must be at least 1"},
      {{"parallel.ep=automatic"}, "expected an integer, found 'automatic', or auto"},
      {{"moe.force_routing=skewed", "moe.force_skew=5"}, "moe.force_skew: must be at most 4"},
      {{"precision.fp8_block_scales=exact"}, "precision.fp8_block_scales: needs precision.compute: fp8_block"},
      {{"precision.compute=mxfp8", "precision.fp8_block_scales=exact"}, "precision.fp8_block_scales: needs"},
      {{"precision.compute=mxfp8", "ep.payload=recipe", "model.n_routed_experts=0", "model.num_experts_per_tok=0",
        "model.n_group=0", "model.topk_group=0", "model.n_shared_experts=0"},
       "ep.payload: recipe needs routed experts"},
      {{"moe.force_skew=2"}, "moe.force_skew: needs moe.force_routing: skewed"},
      {{"moe.drop_policy=position"}, "moe.drop_policy: needs moe.capacity_factor above 0"},
      {{"model.num_nextn_predict_layers=1", "train.mtp_loss_weight=0.3", "train.sequence_length=1"},
       "train.sequence_length: must exceed model.num_nextn_predict_layers (1)"},
      {{"runtime.saved_inputs=recipe"}, "runtime.saved_inputs: recipe needs precision.compute: fp8_block or mxfp8, found"},
      {{"runtime.saved_inputs=recipe", "precision.compute=mxfp8", "runtime.recompute=norms"},
       "runtime.saved_inputs: recipe needs runtime.recompute: none, found norms"},
      {{"ep.payload=recipe"}, "ep.payload: recipe needs precision.compute: fp8_block or mxfp8, found"},
      {{"ep.payload=recipe", "precision.compute=fp8_block", "precision.fp8_block_scales=exact"},
       "ep.payload: recipe needs precision.fp8_block_scales: power_of_two"},
      {{"ep.payload=recipe", "precision.compute=mxfp8", "moe.capacity_factor=1.5", "moe.pad_to_capacity=true"},
       "ep.payload: recipe does not go with moe.pad_to_capacity"},
      {{"moe.drop_policy=dice"}, "moe.drop_policy: must be one of probs, position"},
      {{"model.num_nextn_predict_layers=1"}, "model.num_nextn_predict_layers: needs train.mtp_loss_weight"},
      {{"train.mtp_loss_weight=0.3"}, "train.mtp_loss_weight: needs model.num_nextn_predict_layers"},
      {{"model.hidden_size=1e6", "model.moe_intermediate_size=1e6", "model.n_routed_experts=65536",
        "model.num_hidden_layers=16384"},
       "model: has more than 2^62 parameters"},
  };
  for (const auto& [overrides, expected] : cases) {
    INFO(expected);
    const std::string found = ErrorWith(overrides);
    INFO(found);
    CHECK(testing::Contains(found, expected));
  }
}

TEST_CASE("a window that is not above 0 is told apart from one that takes many rounds") {
  for (const char* none : {"ep.ragged_buffer_factor=0", "ep.ragged_buffer_factor=-0.5"})
    CHECK_FALSE(testing::Contains(ErrorWith({none}), "rounds"));
}

TEST_CASE("limits themselves are valid") {
  const std::vector<std::vector<std::string>> cases = {
      {"model.first_k_dense_replace=3"},
      {"model.first_k_dense_replace=0", "model.intermediate_size=0"},
      {"model.num_experts_per_tok=8"},
      {"model.n_group=8", "model.topk_group=8", "model.num_experts_per_tok=16"},
      {"model.n_group=1", "model.topk_group=1"},
      {"model.max_position_embeddings=32"},
      {"parallel.ep=16"},
      {"parallel.ep=auto"},
      {"ep.ragged_buffer_factor=0.01"},
      {"checkpoint.keep_latest=0"},
      {"checkpoint.keep_latest=2"},
      {"model.q_lora_rank=0"},
      {"model.n_routed_experts=0", "model.num_experts_per_tok=0", "model.n_shared_experts=0",
       "model.n_group=1", "model.topk_group=1"}};
  for (const auto& overrides : cases) {
    INFO(overrides[0]);
    CHECK(ErrorWith(overrides) == "");
  }
}

TEST_CASE("nothing is said about fields that are wrong by themselves") {
  const std::string found = ErrorWith({"model.n_routed_experts=x", "train.micro_batch_size=0"});
  CHECK(StrSplit(found, '\n').size() == 2);
}

TEST_CASE("cross-field errors have the place of the field") {
  CHECK(testing::ConfigErrorOf([] {
          ParseConfig(testing::Sample("n_group: 4", "n_group: 5"), "c.yaml", {});
        }) == "c.yaml:19:12: model.n_group: must divide n_routed_experts (16), found 5");
  CHECK(testing::ConfigErrorOf([] {
          ParseConfig(testing::Sample("  intermediate_size: 96\n", ""), "c.yaml", {});
        }) == "c.yaml:3:1: model.intermediate_size: must be at least 1 where there are dense layers");
}

TEST_CASE("layouts") {
  CHECK(LayoutIssues({}, 1) == "");
  CHECK(LayoutIssues({}, 2) == "");
  CHECK(testing::Contains(LayoutIssues({}, 4),
                          "c.yaml:26:22: train.global_batch_size: must be a multiple of "
                          "micro_batch_size x data-parallel ranks (2 x 4 = 8), found 4"));
  CHECK(LayoutIssues({"parallel.ep=2"}, 2) == "");
  CHECK(testing::Contains(LayoutIssues({"parallel.ep=2"}, 1),
                          "parallel.ep: must divide the data-parallel ranks"));
  CHECK(LayoutIssues({"parallel.ep=auto"}, 2) == "");
  CHECK(testing::Contains(LayoutIssues({"parallel.pp=2"}, 3),
                          "parallel.pp: must divide the number of ranks (3)"));
  CHECK(LayoutIssues({"parallel.pp=2", "parallel.ep=2"}, 4) == "");
  CHECK(LayoutIssues({"train.global_batch_size=8192", "parallel.ep=16"}, 4096) == "");
}

TEST_CASE("which GPUs have run this version, and which multiply a recipe, is told") {
  CHECK(UntriedCapability(90).empty());
  for (const int capability : {80, 89, 100, 103, 120}) {
    INFO(capability);
    CHECK(testing::Contains(UntriedCapability(capability), "nothing of this version has run on such a GPU"));
    CHECK(UnsupportedOnCapability(With({"precision.compute=fp8_block"}), capability)
              .starts_with("precision.compute = fp8_block multiplies on compute capability 9.0"));
    CHECK(UnsupportedOnCapability(With({"precision.compute=mxfp8"}), capability).empty());
  }
  CHECK(UnsupportedOnCapability(With({"precision.compute=fp8_block"}), 90).empty());
}

TEST_CASE("what this version cannot run is named") {
  CHECK(UnsupportedFeatures(With({})).empty());
  CHECK(UnsupportedFeatures(With({"runtime.device=cpu"})).empty());
  for (const char* override_ : {"parallel.pp=2"}) {
    const std::vector<std::string> found = UnsupportedFeatures(With({override_}));
    const std::string key = std::string(override_).substr(0, std::string(override_).find('='));
    INFO(key);
    REQUIRE(found.size() == 1);
    CHECK(found[0].starts_with(key + " = "));
  }
  for (const std::string recipe : {"mxfp8", "fp8_block"}) {
    const std::string compute = "precision.compute=" + recipe, odd = "model.moe_intermediate_size=72";
    bool named = false;
    for (const std::string& line : UnsupportedFeatures(With({compute, odd, "runtime.device=cuda"}))) {
      named |= line.starts_with("precision.compute = " + recipe + ": model.moe_intermediate_size = 72");
    }
    CHECK(named);
    CHECK(UnsupportedFeatures(With({compute, odd, "runtime.device=cpu"})).empty());
  }
  CHECK(UnsupportedFeatures(With({"runtime.device=cuda"})).empty());
  CHECK(UnsupportedFeatures(With({"precision.compute=bf16"})).empty());
  CHECK(UnsupportedFeatures(With({"moe.capacity_factor=1", "moe.router_z_weight=0.1"})).empty());
  CHECK(UnsupportedFeatures(With({"moe.capacity_factor=1", "runtime.device=cuda"})).empty());
  CHECK(UnsupportedFeatures(With({"parallel.pp=2", "precision.compute=bf16", "runtime.device=cpu"})).size() == 2);
  CHECK(UnsupportedFeatures(With({"model.num_nextn_predict_layers=1", "train.mtp_loss_weight=0.3"})).empty());
  CHECK(UnsupportedFeatures(With({"ep.ragged_buffer_factor=2", "ep.mode=deduplicated"})).empty());
}

}  // namespace yardmaster
