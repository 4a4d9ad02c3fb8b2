#include "src/config/hf_config.h"

#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/config/parameters.h"
#include "tests/catch.h"
#include "tests/config/sample.h"

namespace yardmaster {
namespace {

using testing::ConfigErrorOf;
using testing::Contains;
using Json = nlohmann::json;

const char* const kHub = "tests/golden/deepseek_v3/config.json";
const char* const kV5 = "tests/golden/deepseek_v3/config.v5.json";

Json Golden(const char* path) { return Json::parse(ReadFile(path)); }

ModelConfig Load(const Json& json) { return ParseHfConfig(json.dump(), "config.json"); }

std::string ErrorOf(const Json& json) {
  return ConfigErrorOf([&] { Load(json); });
}

}  // namespace

TEST_CASE("the hub's style") {
  const ModelConfig m = LoadHfConfig(kHub);
  CHECK(m.vocab_size == 128);
  CHECK(m.hidden_size == 64);
  CHECK(m.num_hidden_layers == 3);
  CHECK(m.first_k_dense_replace == 1);
  CHECK(m.intermediate_size == 96);
  CHECK(m.max_position_embeddings == 2560);
  CHECK(m.rms_norm_eps == 1e-6);
  CHECK(m.initializer_range == 0.02);
  CHECK(m.num_attention_heads == 4);
  CHECK(m.q_lora_rank == 24);
  CHECK(m.kv_lora_rank == 16);
  CHECK(m.qk_nope_head_dim == 16);
  CHECK(m.qk_rope_head_dim == 8);
  CHECK(m.v_head_dim == 12);
  CHECK(m.rope_theta == 10000);
  CHECK(m.n_routed_experts == 16);
  CHECK(m.num_experts_per_tok == 4);
  CHECK(m.n_shared_experts == 1);
  CHECK(m.moe_intermediate_size == 32);
  CHECK(m.n_group == 4);
  CHECK(m.topk_group == 2);
  CHECK(m.norm_topk_prob);
  CHECK(m.routed_scaling_factor == 2.5);
  CHECK(m.num_nextn_predict_layers == 1);
  REQUIRE(m.rope_scaling.has_value());
  CHECK(m.rope_scaling->factor == 40);
  CHECK(m.rope_scaling->original_max_position_embeddings == 64);
  CHECK(m.rope_scaling->beta_fast == 32);
  CHECK(m.rope_scaling->beta_slow == 1);
  CHECK(m.rope_scaling->mscale == 1);
  CHECK(m.rope_scaling->mscale_all_dim == 1);
}

TEST_CASE("the style of transformers 5 says the same") { CHECK(LoadHfConfig(kV5) == LoadHfConfig(kHub)); }

TEST_CASE("a case without YaRN") {
  const ModelConfig m = LoadHfConfig("tests/golden/deepseek_v3_mtp/config.json");
  CHECK_FALSE(m.rope_scaling.has_value());
  CHECK(m.num_nextn_predict_layers == 1);
}

TEST_CASE("the golden case has as many parameters as its file") {
  // Layers of attention 64*24+24+24*4*24 + 64*24+16 + 16*4*28 + 4*12*64, counted by hand from the shapes.
  const ParameterCounts c = CountParameters(LoadHfConfig(kHub));
  const int64_t attention = 64 * 24 + 24 + 24 * 96 + 64 * 24 + 16 + 16 * 112 + 48 * 64;
  const int64_t moe = 17 * 3 * 64 * 32 + 16 * 64 + 16;
  CHECK(c.total() == 2 * 128 * 64 + 64 + 3 * (attention + 128) + 3 * 64 * 96 + 2 * moe);
}

TEST_CASE("names of the expert count") {
  for (const char* name : {"num_experts", "num_local_experts"}) {
    for (const char* path : {kHub, kV5}) {
      Json json = Golden(path);
      json.erase("n_routed_experts");
      json[name] = 16;
      CHECK(Load(json) == LoadHfConfig(kHub));
      json["n_routed_experts"] = 8;
      CHECK(Contains(ErrorOf(json),
                     std::string("config.json: ") + name + ": is 16, but n_routed_experts is 8"));
    }
  }
  Json json = Golden(kHub);
  json.erase("n_routed_experts");
  CHECK(Contains(ErrorOf(json), "config.json: n_routed_experts: missing"));
}

TEST_CASE("absent and null values") {
  Json json = Golden(kHub);
  json["q_lora_rank"] = nullptr;
  CHECK(Load(json).q_lora_rank == 0);
  json.erase("q_lora_rank");
  CHECK(Contains(ErrorOf(json), "config.json: q_lora_rank: missing"));
  json = Golden(kHub);
  json["rope_scaling"] = nullptr;
  CHECK_FALSE(Load(json).rope_scaling.has_value());
  json = Golden(kHub);
  json.erase("num_nextn_predict_layers");
  json.erase("initializer_range");
  json["rope_scaling"].erase("mscale_all_dim");
  CHECK(Load(json).num_nextn_predict_layers == 0);
  CHECK(Load(json).initializer_range == 0.02);
  CHECK(Load(json).rope_scaling->mscale_all_dim == 0);
  json = Golden(kV5);
  json["rope_parameters"] = {{"rope_theta", 5e4}};
  CHECK(Load(json).rope_theta == 5e4);
  CHECK_FALSE(Load(json).rope_scaling.has_value());
  json["rope_parameters"]["rope_type"] = "default";
  CHECK_FALSE(Load(json).rope_scaling.has_value());
}

TEST_CASE("YaRN counts whichever key names it") {
  Json json = Golden(kHub);
  json["rope_scaling"]["rope_type"] = "yarn";
  json["rope_scaling"].erase("type");
  CHECK(Load(json) == LoadHfConfig(kHub));
  json["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "default"}};
  CHECK(Load(json) == LoadHfConfig(kHub));
}

TEST_CASE("what would change the model is refused by name") {
  const std::pair<Json, const char*> cases[] = {
      {{{"model_type", "llama"}}, "config.json: model_type is llama; supported: deepseek_v3, deepseek_v2, qwen3_moe, mixtral"},
      {{{"attention_bias", true}}, "config.json: attention_bias: only false is supported, found true"},
      {{{"tie_word_embeddings", true}}, "config.json: tie_word_embeddings: only false"},
      {{{"hidden_act", "gelu"}}, "config.json: hidden_act: only \"silu\" is supported, found \"gelu\""},
      {{{"moe_layer_freq", 2}}, "config.json: moe_layer_freq: only 1"},
      {{{"scoring_func", "softmax"}}, "config.json: scoring_func: only \"sigmoid\""},
      {{{"topk_method", "greedy"}}, "config.json: topk_method: only \"noaux_tc\""},
      {{{"rope_interleave", false}}, "config.json: rope_interleave: only true"},
      {{{"num_key_value_heads", 2}}, "config.json: num_key_value_heads: only 4"},
      {{{"attention_dropout", 0.1}}, "config.json: attention_dropout: only 0"},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}},
       "config.json: rope_scaling: type linear is not supported"},
      {{{"rope_scaling", {{"factor", 2}}}}, "config.json: rope_scaling: has no type"},
      {{{"rope_scaling", {{"type", "yarn"}}}}, "config.json: factor: missing"},
      {{{"rope_scaling", {{"type", "yarn"}, {"factor", 2}, {"attention_factor", 1.5}}}}, "attention_factor"},
      {{{"rope_scaling", {{"type", "yarn"}, {"factor", 2}, {"truncate", false}}}}, "rope_scaling.truncate"},
      {{{"rope_scaling", 5}}, "config.json: rope_scaling: expected an object or null"},
      {{{"rope_parameters", {{"rope_type", "dynamic"}}}}, "config.json: rope_parameters: type dynamic"},
      {{{"hidden_size", "64"}}, "config.json: hidden_size: expected a number, found \"64\""},
      {{{"hidden_size", 64.5}}, "config.json: hidden_size: expected an integer, found 64.5"},
      {{{"hidden_size", 0}}, "config.json: hidden_size: must be at least 1"},
      {{{"hidden_size", nullptr}}, "config.json: hidden_size: missing"},
      {{{"norm_topk_prob", 1}}, "config.json: norm_topk_prob: expected true or false"},
      {{{"n_routed_experts", -1}}, "config.json: n_routed_experts: must be an integer of at least 1"},
      {{{"n_group", 5}}, "config.json: n_group: must divide n_routed_experts (16), found 5"},
      {{{"qk_rope_head_dim", 7}}, "config.json: qk_rope_head_dim: must be even"},
  };
  for (const auto& [change, expected] : cases) {
    INFO(expected);
    Json json = Golden(kHub);
    json.update(change);
    const std::string found = ErrorOf(json);
    INFO(found);
    CHECK(Contains(found, expected));
  }
  Json json = Golden(kHub);
  json["attention_bias"] = true;
  json.erase("vocab_size");
  CHECK(Contains(ErrorOf(json), "vocab_size: missing\nconfig.json: attention_bias"));
}

TEST_CASE("the other families, in both styles") {
  Json lite = Golden("tests/golden/deepseek_v2_lite/config.json");
  lite["q_lora_rank"] = nullptr;  // the case's file leaves nulls out
  const ModelConfig v2 = Load(lite);
  CHECK(v2 == LoadHfConfig("tests/golden/deepseek_v2_lite/config.v5.json"));
  CHECK((v2.scoring_func == "softmax" && v2.topk_method == "greedy" && !v2.norm_topk_prob && v2.q_lora_rank == 0));
  CHECK((v2.IsMla() && v2.qk_head_dim() == 24 && v2.rope_dim() == 8 && v2.value_head_dim() == 12));
  const ModelConfig qwen = LoadHfConfig("tests/golden/qwen3_moe/config.json");
  CHECK(qwen == LoadHfConfig("tests/golden/qwen3_moe/config.v5.json"));
  CHECK((qwen.scoring_func == "softmax" && qwen.topk_method == "greedy" && qwen.norm_topk_prob));
  CHECK((qwen.key_value_heads() == 2 && qwen.qk_head_dim() == 24 && qwen.rope_dim() == 24 && !qwen.HasRouterBias()));
  CHECK((qwen.moe_intermediate_size == 32 && qwen.n_routed_experts == 8 && qwen.rope_theta == 1e6));
  const ModelConfig mixtral = LoadHfConfig("tests/golden/mixtral/config.json");
  CHECK(mixtral == LoadHfConfig("tests/golden/mixtral/config.v5.json"));
  CHECK((mixtral.head_dim == 0 && mixtral.qk_head_dim() == 16 && mixtral.moe_intermediate_size == 48));
  CHECK((mixtral.norm_topk_prob && mixtral.IsMoeLayer(0) && !mixtral.NormalisesQueriesAndKeys()));

  lite["topk_method"] = "group_limited_greedy";
  lite["n_group"] = 4;
  lite["topk_group"] = 2;
  CHECK(Load(lite).n_group == 4);
  lite["topk_method"] = "greedy";
  CHECK(Load(lite).n_group == 1);
  lite["topk_method"] = "noaux_tc";
  CHECK(Contains(ErrorOf(lite), "config.json: topk_method: only greedy and group_limited_greedy"));
  const std::tuple<const char*, Json, const char*> cases[] = {
      {"deepseek_v2_lite", {{"norm_topk_prob", true}}, "norm_topk_prob: only false"},
      {"deepseek_v2_lite", {{"scoring_func", "sigmoid"}}, "scoring_func: only \"softmax\""},
      {"qwen3_moe", {{"decoder_sparse_step", 2}}, "decoder_sparse_step: only 1"},
      {"qwen3_moe", {{"mlp_only_layers", {0}}}, "mlp_only_layers: only []"},
      {"qwen3_moe", {{"use_sliding_window", true}}, "use_sliding_window: only false"},
      {"qwen3_moe", {{"num_key_value_heads", 3}}, "num_key_value_heads: must divide num_attention_heads (4)"},
      {"qwen3_moe", {{"head_dim", 7}}, "head_dim: must be even"},
      {"mixtral", {{"sliding_window", 4096}}, "sliding_window: only null"},
      {"mixtral", {{"hidden_size", 66}}, "head_dim: missing, and 4 heads do not divide hidden_size (66)"}};
  for (const auto& [name, change, expected] : cases) {
    INFO(name << ": " << expected);
    Json json = Golden((std::string("tests/golden/") + name + "/config.json").c_str());
    json.update(change);
    CHECK(Contains(ErrorOf(json), expected));
  }
}

TEST_CASE("what is no configuration is refused") {
  CHECK(Contains(ConfigErrorOf([] { LoadHfConfig("no/such/config.json"); }), "no/such/config.json"));
  for (const char* text : {"", "{", "[]", "5", "{\"model_type\": 5}", "{\"a\": 1e999}", "\xff\xfe", "{}"}) {
    INFO(text);
    const std::string found = ConfigErrorOf([&] { ParseHfConfig(text, "config.json"); });
    CHECK(found.starts_with("config.json:"));
  }
  const std::string deep = std::string(100000, '[');
  CHECK(
      ConfigErrorOf([&] { ParseHfConfig(deep, "config.json"); }).starts_with("config.json:1:100001: not valid JSON"));
  CHECK(ConfigErrorOf([&] { ParseHfConfig("{\n \"a\": x}", "config.json"); }) ==
        "config.json:2:7: not valid JSON\n  hint: fetch the file again, or mend it there");
  CHECK(ConfigErrorOf([&] { ParseHfConfig("{\"a\": 1e999}", "config.json"); }).starts_with("config.json: not valid JSON"));
}

}  // namespace yardmaster
