#include "src/config/hf_config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/strings.h"
#include "src/config/parameters.h"
#include "src/config/schema.h"
#include "src/config/validate.h"

namespace yardmaster {
namespace {

using Json = nlohmann::json;

// A short form of a value for messages.
std::string Show(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

class HfReader {
 public:
  HfReader(const Json& root, const std::string& file) : root_(root), file_(file) {}

  ModelConfig Read() {
    if (!root_.is_object()) throw ConfigError(StrCat("expected an object, found ", Show(root_)), file_);
    const std::string type = Text(root_, "model_type", "");
    if (type != "deepseek_v3" && type != "deepseek_v2" && type != "qwen3_moe" && type != "mixtral") {
      throw ConfigError(StrCat("model_type is ", type.empty() ? "missing" : type,
                               "; supported: deepseek_v3, deepseek_v2, qwen3_moe, mixtral"),
                        file_);
    }
    model_.model_type = type;
    FamilyDefaults(model_);
    ReadSizes();
    if (model_.IsMla()) {
      ReadDeepseek();
    } else {
      ReadGroupedQuery();
    }
    ReadRope();
    RefuseOthers();
    if (errors_.empty()) {
      ValidateModel(
          model_, [](const std::string&) { return true; },
          [&](const std::string& key, const std::string& message) { Fail(key, message); });
      if (errors_.empty() && !ParametersAreCountable(model_))
        Fail("hidden_size", "more than 2^62 parameters");
    }
    if (!errors_.empty()) throw ConfigError(StrJoin(errors_, "\n"));
    return model_;
  }

 private:
  void Fail(const std::string& key, const std::string& message) {
    errors_.push_back(StrCat(file_, ": ", key, ": ", message));
  }

  // The value under `key`, or nullptr if it is absent or null.
  static const Json* Find(const Json& object, const std::string& key) {
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  }

  std::string Text(const Json& object, const std::string& key, const std::string& otherwise) {
    const Json* value = Find(object, key);
    if (value == nullptr) return otherwise;
    if (value->is_string()) return value->get<std::string>();
    Fail(key, StrCat("expected a string, found ", Show(*value)));
    return otherwise;
  }

  bool Boolean(const std::string& key, std::optional<bool> otherwise) {
    const Json* value = Find(root_, key);
    if (value == nullptr && otherwise) return *otherwise;
    if (value != nullptr && value->is_boolean()) return value->get<bool>();
    Fail(key, value == nullptr ? "missing" : StrCat("expected true or false, found ", Show(*value)));
    return false;
  }

  // A number in the range of our own field of that name; `section` is "model" or "model.rope_scaling".
  double Number(const Json& object, const std::string& key, std::optional<double> otherwise,
                const std::string& section) {
    const Json* value = Find(object, key);
    if (value == nullptr) {
      if (!otherwise) Fail(key, "missing");
      return otherwise.value_or(1);
    }
    if (!value->is_number()) {
      Fail(key, StrCat("expected a number, found ", Show(*value)));
      return otherwise.value_or(1);
    }
    const double number = value->get<double>();
    const ValueRange& range = FindField(*FindSection(section), key)->range;
    if (!std::isfinite(number) || !range.Contains(number)) {
      Fail(key, StrCat("must be ", range.ToString(), ", found ", Show(*value)));
    }
    return number;
  }

  int64_t Integer(const Json& object, const std::string& key, std::optional<int64_t> otherwise,
                  const std::string& section = "model") {
    const size_t before = errors_.size();
    const double number = otherwise ? Number(object, key, static_cast<double>(*otherwise), section)
                                    : Number(object, key, std::nullopt, section);
    if (errors_.size() != before) return otherwise.value_or(1);
    if (number != std::floor(number)) {
      Fail(key, StrCat("expected an integer, found ", Show(*Find(object, key))));
      return otherwise.value_or(1);
    }
    return static_cast<int64_t>(number);  // the ranges of sizes end far below 2^53
  }

  void ReadSizes() {
    ModelConfig& m = model_;
    m.vocab_size = Integer(root_, "vocab_size", {});
    m.hidden_size = Integer(root_, "hidden_size", {});
    m.num_hidden_layers = Integer(root_, "num_hidden_layers", {});
    m.max_position_embeddings = Integer(root_, "max_position_embeddings", {});
    m.rms_norm_eps = Number(root_, "rms_norm_eps", {}, "model");
    m.initializer_range = Number(root_, "initializer_range", 0.02, "model");  // transformers' default
    m.num_attention_heads = Integer(root_, "num_attention_heads", {});
    ReadExpertCount();
    m.num_experts_per_tok = Integer(root_, "num_experts_per_tok", {});
  }

  void ReadDeepseek() {
    ModelConfig& m = model_;
    m.first_k_dense_replace = Integer(root_, "first_k_dense_replace", {});
    m.intermediate_size = Integer(root_, "intermediate_size", {});
    if (root_.contains("q_lora_rank")) {
      m.q_lora_rank = Integer(root_, "q_lora_rank", 0);  // null: projected directly
    } else {
      Fail("q_lora_rank", "missing; null stands for queries that are projected directly");
    }
    m.kv_lora_rank = Integer(root_, "kv_lora_rank", {});
    m.qk_nope_head_dim = Integer(root_, "qk_nope_head_dim", {});
    m.qk_rope_head_dim = Integer(root_, "qk_rope_head_dim", {});
    m.v_head_dim = Integer(root_, "v_head_dim", {});
    m.n_shared_experts = Integer(root_, "n_shared_experts", 0);
    m.moe_intermediate_size = Integer(root_, "moe_intermediate_size", {});
    m.n_group = Integer(root_, "n_group", {});
    m.topk_group = Integer(root_, "topk_group", {});
    m.norm_topk_prob = Boolean("norm_topk_prob", {});
    m.routed_scaling_factor = Number(root_, "routed_scaling_factor", {}, "model");
    m.num_nextn_predict_layers = Integer(root_, "num_nextn_predict_layers", 0);
    if (m.model_type == "deepseek_v2") {
      m.topk_method = Text(root_, "topk_method", "greedy");
      if (m.topk_method != "greedy" && m.topk_method != "group_limited_greedy")
        Fail("topk_method",
             StrCat("only greedy and group_limited_greedy are supported, found ", m.topk_method));
      if (m.topk_method == "greedy") m.n_group = m.topk_group = 1;  // not looked at by greedy
    }
  }

  void ReadGroupedQuery() {
    ModelConfig& m = model_;
    const bool mixtral = m.model_type == "mixtral";
    m.num_key_value_heads = Integer(root_, "num_key_value_heads", 0);
    m.head_dim = Integer(root_, "head_dim", 0);
    m.moe_intermediate_size = Integer(root_, mixtral ? "intermediate_size" : "moe_intermediate_size", {});
    if (!mixtral) m.norm_topk_prob = Boolean("norm_topk_prob", false);  // transformers' default
  }

  // The same number under the names that versions of transformers use.
  void ReadExpertCount() {
    std::optional<int64_t> count;
    std::string first;
    for (const char* key : {"n_routed_experts", "num_experts", "num_local_experts"}) {
      const Json* value = Find(root_, key);
      if (value == nullptr) continue;
      if (!value->is_number_integer() || value->get<double>() < 1 || value->get<double>() > 65536) {
        Fail(key, StrCat("must be an integer of at least 1 and at most 65536, found ", Show(*value)));
        count = 1;
      } else if (count && *count != value->get<int64_t>()) {
        Fail(key, StrCat("is ", Show(*value), ", but ", first, " is ", *count));
      } else {
        count = value->get<int64_t>();
      }
      if (first.empty()) first = key;
    }
    if (!count) Fail("n_routed_experts", "missing, and so are num_experts and num_local_experts");
    model_.n_routed_experts = count.value_or(1);
  }

  // transformers 5 puts everything about positions into `rope_parameters`; before, `rope_theta` was beside
  // `rope_scaling`.
  void ReadRope() {
    const Json* parameters = Find(root_, "rope_parameters");
    const Json* scaling = Find(root_, "rope_scaling");
    for (const auto& [key, value] :
         {std::pair{"rope_parameters", parameters}, std::pair{"rope_scaling", scaling}}) {
      if (value != nullptr && !value->is_object()) {
        Fail(key, StrCat("expected an object or null, found ", Show(*value)));
        return;
      }
    }
    const bool theta_inside = parameters != nullptr && Find(*parameters, "rope_theta") != nullptr;
    model_.rope_theta = Number(theta_inside ? *parameters : root_, "rope_theta", 10000.0, "model");
    // Where both are given, YaRN in either of them counts.
    if (parameters != nullptr && !ReadYarn("rope_parameters", *parameters) && scaling == nullptr) return;
    if (scaling != nullptr && !model_.rope_scaling) ReadYarn("rope_scaling", *scaling);
  }

  // False: plain rotary positions. Anything but those and YaRN is refused.
  bool ReadYarn(const std::string& name, const Json& object) {
    const Json* rope = &object;
    // The hub's files say `type`, newer ones `rope_type`; in rope_parameters an absent one means default.
    const std::string otherwise =
        name == "rope_parameters" && Find(object, "factor") == nullptr ? "default" : "";
    const std::string type = Text(object, "rope_type", Text(object, "type", otherwise));
    if (type == "default") return false;
    if (type != "yarn") {
      Fail(name, type.empty() ? "has no type"
                              : StrCat("type ", type, " is not supported; supported: default, yarn"));
      return true;
    }
    // transformers: attention_factor would replace the temperatures, truncate: false would change the ramp.
    if (Find(*rope, "attention_factor") != nullptr) Fail(name + ".attention_factor", "is not supported");
    if (const Json* truncate = Find(*rope, "truncate"); truncate != nullptr && *truncate != true) {
      Fail(name + ".truncate", "only true is supported");
    }
    const std::string section = "model.rope_scaling";
    RopeScaling r;
    r.factor = Number(*rope, "factor", {}, section);
    r.original_max_position_embeddings =
        Integer(*rope, "original_max_position_embeddings", model_.max_position_embeddings, section);
    r.beta_fast = Number(*rope, "beta_fast", 32.0, section);
    r.beta_slow = Number(*rope, "beta_slow", 1.0, section);
    r.mscale = Number(*rope, "mscale", 1.0, section);
    r.mscale_all_dim = Number(*rope, "mscale_all_dim", 0.0, section);
    model_.rope_scaling = r;
    return true;
  }

  // What is only implemented with one value. Absent keys have that value in transformers' DeepseekV3Config.
  void Only(const std::string& key, const Json& accepted) {
    const Json* value = Find(root_, key);
    if (value != nullptr && *value != accepted) {
      Fail(key, StrCat("only ", Show(accepted), " is supported, found ", Show(*value)));
    }
  }

  void RefuseOthers() {
    Only("hidden_act", "silu");
    Only("tie_word_embeddings", false);
    Only("attention_bias", false);
    Only("attention_dropout", 0.0);
    if (model_.IsMla()) {
      Only("moe_layer_freq", 1);
      Only("scoring_func", model_.scoring_func);
      if (model_.model_type == "deepseek_v3") Only("topk_method", "noaux_tc");
      // DeepSeek's own code then leaves the scaling out, transformers' does not normalise.
      if (model_.model_type == "deepseek_v2") Only("norm_topk_prob", false);
      Only("rope_interleave", true);
      Only("num_key_value_heads", model_.num_attention_heads);
    } else {
      Only("decoder_sparse_step", 1);
      Only("mlp_only_layers", Json::array());
      Only("use_sliding_window", false);
      if (model_.model_type == "mixtral") Only("sliding_window", nullptr);
      Only("router_jitter_noise", 0.0);
    }
  }

  const Json& root_;
  std::string file_;
  ModelConfig model_;
  std::vector<std::string> errors_;
};

}  // namespace

ModelConfig ParseHfConfig(const std::string& text, const std::string& file) {
  Json root;
  try {
    root = Json::parse(text);
  } catch (const Json::parse_error& error) {
    const size_t at = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const size_t line_begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw ConfigError("not valid JSON", StrCat(file, ":", line, ":", at - line_begin + 1),
                      at == text.size() ? "it ends too early" : "fetch the file again, or mend it there");
  } catch (const Json::exception&) {
    throw ConfigError("not valid JSON: a number that no double holds", file);
  }
  return HfReader(root, file).Read();
}

ModelConfig LoadHfConfig(const std::string& path) {
  std::string text;
  try {
    text = ReadFile(path);
  } catch (const Error& error) {
    throw ConfigError(StrCat("cannot read the model's configuration: ", error.what()));
  }
  return ParseHfConfig(text, path);
}

}  // namespace yardmaster
