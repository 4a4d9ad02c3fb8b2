#include "src/config/validate.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "src/base/strings.h"
#include "src/config/parameters.h"
#include "src/config/scalar.h"
#include "src/config/schedule.h"

namespace yardmaster {
namespace {

constexpr double kMaxTokens = 0x1p60;
// Of ep.ragged_buffer_factor: windows that pass a step in more rounds are a mistake.
constexpr double kLeastBufferFactor = 0.01;

// Of a batch schedule: the segments' values that `multiple` does not divide, once each.
std::string IndivisibleBatches(const Schedule& batch, int64_t multiple) {
  std::vector<std::string> out;
  for (const ScheduleSegment& segment : batch.segments) {
    const std::string value = FormatNumber(segment.from);
    if (std::fmod(segment.from, static_cast<double>(multiple)) != 0 &&
        std::find(out.begin(), out.end(), value) == out.end()) {
      out.push_back(value);
    }
  }
  return StrJoin(out, ", ");
}

void ValidateAttention(const ModelConfig& m, const std::function<bool(const std::string&)>& is_good,
                       const std::function<void(const std::string&, const std::string&)>& fail) {
  const std::pair<const char*, int64_t> latent[] = {{"kv_lora_rank", m.kv_lora_rank},
                                                    {"qk_nope_head_dim", m.qk_nope_head_dim},
                                                    {"qk_rope_head_dim", m.qk_rope_head_dim},
                                                    {"v_head_dim", m.v_head_dim}};
  if (m.IsMla()) {
    for (const auto& [name, value] : latent) {
      if (is_good(name) && value == 0) fail(name, StrCat("missing: ", m.model_type, " has latent attention"));
    }
    if (is_good("qk_rope_head_dim") && m.qk_rope_head_dim % 2 != 0)
      fail("qk_rope_head_dim", StrCat("must be even (pairs are rotated), found ", m.qk_rope_head_dim));
    if (is_good("head_dim") && m.head_dim != 0)
      fail("head_dim",
           StrCat(m.model_type, " has latent attention: qk_nope_head_dim, qk_rope_head_dim and v_head_dim"));
    if (is_good("num_key_value_heads") && is_good("num_attention_heads") &&
        m.key_value_heads() != m.num_attention_heads)
      fail("num_key_value_heads", StrCat("only ", m.num_attention_heads,
                                         " (all heads) for latent attention, found ", m.num_key_value_heads));
    return;
  }
  if (is_good("q_lora_rank") && m.q_lora_rank != 0)
    fail("q_lora_rank", StrCat(m.model_type, " has no latent attention"));
  for (const auto& [name, value] : latent) {
    if (is_good(name) && value != 0) fail(name, StrCat(m.model_type, " has no latent attention"));
  }
  if (!is_good("num_attention_heads")) return;
  if (is_good("num_key_value_heads") && m.num_attention_heads % m.key_value_heads() != 0) {
    fail("num_key_value_heads", StrCat("must divide num_attention_heads (", m.num_attention_heads,
                                       "), found ", m.num_key_value_heads));
  }
  if (!is_good("head_dim") || !is_good("hidden_size")) return;
  if (m.head_dim == 0 && m.hidden_size % m.num_attention_heads != 0) {
    fail("head_dim", StrCat("missing, and ", m.num_attention_heads, " heads do not divide hidden_size (",
                            m.hidden_size, ")"));
  } else if (m.qk_head_dim() % 2 != 0) {
    fail("head_dim", StrCat("must be even (pairs are rotated), found ", m.qk_head_dim()));
  }
}

}  // namespace

void ValidateModel(const ModelConfig& m, const std::function<bool(const std::string&)>& is_good,
                   const std::function<void(const std::string&, const std::string&)>& fail) {
  const auto good = [&](std::initializer_list<const char*> fields) {
    return std::all_of(fields.begin(), fields.end(), [&](const char* f) { return is_good(f); });
  };
  if (good({"first_k_dense_replace", "num_hidden_layers"}) && m.first_k_dense_replace > m.num_hidden_layers) {
    fail("first_k_dense_replace",
         StrCat(m.first_k_dense_replace, " dense layers, but num_hidden_layers is ", m.num_hidden_layers));
  }
  if (good({"first_k_dense_replace", "n_routed_experts", "intermediate_size"}) && m.intermediate_size == 0 &&
      (m.first_k_dense_replace > 0 || m.n_routed_experts == 0)) {
    fail("intermediate_size", "must be at least 1 where there are dense layers");
  }
  ValidateAttention(m, is_good, fail);
  if (m.rope_scaling && good({"rope_scaling.beta_fast", "rope_scaling.beta_slow"}) &&
      m.rope_scaling->beta_fast <= m.rope_scaling->beta_slow) {
    fail("rope_scaling.beta_fast",
         StrCat("must be above beta_slow (", FormatNumber(m.rope_scaling->beta_slow), "), found ",
                FormatNumber(m.rope_scaling->beta_fast)));
  }
  if (!good({"n_routed_experts"})) return;
  const int64_t E = m.n_routed_experts;
  if (E == 0) {
    if (good({"num_experts_per_tok"}) && m.num_experts_per_tok > 0) {
      fail("num_experts_per_tok", StrCat("is ", m.num_experts_per_tok, ", but n_routed_experts is 0"));
    }
    if (good({"n_shared_experts"}) && m.n_shared_experts > 0) {
      fail("n_shared_experts", StrCat("is ", m.n_shared_experts, ", but n_routed_experts is 0"));
    }
    return;
  }
  if (good({"moe_intermediate_size"}) && m.moe_intermediate_size == 0) {
    fail("moe_intermediate_size",
         StrCat("must be at least 1 where there are routed experts",
                m.model_type == "mixtral" ? " (Mixtral's config.json calls it intermediate_size)" : ""));
  }
  if (good({"num_experts_per_tok"}) && m.num_experts_per_tok == 0) {
    fail("num_experts_per_tok", "must be at least 1 where there are routed experts");
  }
  if (!good({"n_group"})) return;
  if (E % m.n_group != 0) {
    fail("n_group", StrCat("must divide n_routed_experts (", E, "), found ", m.n_group));
    return;
  }
  const int64_t experts_of_group = E / m.n_group;
  if (good({"topk_method"}) && m.topk_method == "greedy" && m.n_group > 1) {
    fail("n_group",
         StrCat("topk_method greedy has no groups, found ", m.n_group, "; group_limited_greedy has"));
  }
  if (good({"topk_method"}) && m.topk_method == "noaux_tc" && m.n_group > 1 && experts_of_group < 2) {
    fail("n_group", StrCat(m.n_group, " groups leave ", experts_of_group,
                           " expert in each; a group's score is the sum of its two best, so it needs 2"));
  }
  if (!good({"topk_group"})) return;
  if (m.topk_group > m.n_group) {
    fail("topk_group", StrCat("must be at most n_group (", m.n_group, "), found ", m.topk_group));
  } else if (good({"num_experts_per_tok"}) && m.num_experts_per_tok > m.topk_group * experts_of_group) {
    fail("num_experts_per_tok",
         StrCat(m.num_experts_per_tok, " experts per token, but ", m.topk_group, " of ", m.n_group,
                " groups of ", experts_of_group, " offer ", m.topk_group * experts_of_group));
  }
}

void ValidateConfig(const Config& config, const ConfigPlaces& places, Issues& issues) {
  const auto good = [&](std::initializer_list<const char*> paths) {
    return std::all_of(paths.begin(), paths.end(), [&](const char* path) { return places.IsGood(path); });
  };
  const auto fail = [&](const std::string& path, const std::string& message) {
    issues.Add(places.Of(path), path, message);
  };
  const size_t issues_before = issues.size();
  ValidateModel(
      config.model, [&](const std::string& field) { return places.IsGood("model." + field); },
      [&](const std::string& field, const std::string& message) { fail("model." + field, message); });
  const bool model_read = std::none_of(places.bad.begin(), places.bad.end(),
                                       [](const std::string& path) { return path.starts_with("model."); });
  if (issues.size() == issues_before && model_read && !ParametersAreCountable(config.model)) {
    fail("model", "has more than 2^62 parameters");
  }

  const TrainConfig& t = config.train;
  const bool batch_good = good({"train.global_batch_size"});
  if (good({"train.sequence_length", "model.max_position_embeddings"}) &&
      t.sequence_length > config.model.max_position_embeddings) {
    fail("train.sequence_length",
         StrCat("must be at most model.max_position_embeddings (", config.model.max_position_embeddings,
                "), found ", t.sequence_length));
  }
  if (batch_good && good({"train.micro_batch_size"})) {
    const std::string odd = IndivisibleBatches(t.global_batch_size, t.micro_batch_size);
    if (!odd.empty()) {
      fail("train.global_batch_size",
           StrCat("must be a multiple of train.micro_batch_size (", t.micro_batch_size, "), found ", odd));
    }
  }
  if (batch_good && good({"train.steps", "train.sequence_length"}) &&
      static_cast<double>(t.steps) * static_cast<double>(t.sequence_length) *
              LargestScheduleValue(t.global_batch_size) >
          kMaxTokens) {
    fail("train.steps", "the run would see more than 2^60 tokens");
  }
  if (good({"train.eval_every_steps", "data.validation"}) && t.eval_every_steps > 0 &&
      config.data.validation.empty()) {
    fail("train.eval_every_steps", "needs data.validation");
  }
  // So that every size and offset of a micro-batch stays far from the end of int64.
  if (good({"train.micro_batch_size", "train.sequence_length"}) &&
      static_cast<double>(t.micro_batch_size) * static_cast<double>(t.sequence_length) > 16777216.0) {
    fail("train.micro_batch_size", StrCat("a micro-batch of ", t.micro_batch_size, " x ", t.sequence_length,
                                          " tokens: at most 16777216 (2^24) are possible"));
  }
  const int64_t ep = config.parallel.ep, experts = config.model.n_routed_experts;
  if (good({"parallel.ep", "model.n_routed_experts"}) && ep > 1 && (experts == 0 || experts % ep != 0)) {
    fail("parallel.ep", StrCat("must divide model.n_routed_experts (", experts, "), found ", ep));
  }
  if (good({"parallel.pp", "model.num_hidden_layers"}) &&
      config.parallel.pp > config.model.num_hidden_layers) {
    fail("parallel.pp",
         StrCat(config.parallel.pp, " pipeline stages for ", config.model.num_hidden_layers, " layers"));
  }
  if (good({"train.mtp_loss_weight", "model.num_nextn_predict_layers"}) &&
      LargestScheduleValue(t.mtp_loss_weight) > 0 && config.model.num_nextn_predict_layers == 0) {
    fail("train.mtp_loss_weight", "needs model.num_nextn_predict_layers of at least 1");
  }
  if (good({"train.mtp_loss_weight", "model.num_nextn_predict_layers"}) &&
      LargestScheduleValue(t.mtp_loss_weight) == 0 && config.model.num_nextn_predict_layers > 0) {
    fail("model.num_nextn_predict_layers",
         "needs train.mtp_loss_weight above 0 (DeepSeek-V3: 0.3, later 0.1)");
  }
  if (good({"train.sequence_length", "model.num_nextn_predict_layers"}) &&
      config.model.num_nextn_predict_layers > 0 && t.sequence_length <= config.model.num_nextn_predict_layers) {
    fail("train.sequence_length",
         StrCat("must exceed model.num_nextn_predict_layers (", config.model.num_nextn_predict_layers,
                "): multi-token prediction would have no target, found ", t.sequence_length));
  }
  const MoeConfig& moe = config.moe;
  for (const auto& [key, value] : {std::pair{"moe.sequence_balance_weight", moe.sequence_balance_weight},
                                   {"moe.micro_batch_balance_weight", moe.micro_batch_balance_weight},
                                   {"moe.global_batch_balance_weight", moe.global_batch_balance_weight},
                                   {"moe.router_z_weight", moe.router_z_weight},
                                   {"moe.capacity_factor", moe.capacity_factor}}) {
    if (good({key, "model.n_routed_experts"}) && value > 0 && experts == 0) fail(key, "needs routed experts");
  }
  if (good({"moe.pad_to_capacity", "moe.capacity_factor"}) && moe.pad_to_capacity && moe.capacity_factor == 0)
    fail("moe.pad_to_capacity", "needs moe.capacity_factor above 0");
  const PrecisionConfig& p = config.precision;
  if (good({"precision.compute", "precision.fp8_block_scales"}) && p.compute != "fp8_block" &&
      p.fp8_block_scales != PrecisionConfig().fp8_block_scales)
    fail("precision.fp8_block_scales", StrCat("needs precision.compute: fp8_block, found ", p.compute));
  if (good({"runtime.recompute", "model.model_type"}) && config.runtime.recompute == "projections" &&
      !config.model.IsMla()) {
    fail("runtime.recompute", StrCat("projections are those of latent attention, which ", config.model.model_type,
                                     " does not have: use norms"));
  }
  if (good({"runtime.saved_inputs", "runtime.recompute", "precision.compute"}) &&
      config.runtime.saved_inputs == "recipe") {
    if (p.compute != "fp8_block" && p.compute != "mxfp8") {
      fail("runtime.saved_inputs", StrCat("recipe needs precision.compute: fp8_block or mxfp8, found ", p.compute));
    } else if (config.runtime.recompute != "none") {
      fail("runtime.saved_inputs", StrCat("recipe needs runtime.recompute: none, found ", config.runtime.recompute,
                                          ", with which these inputs are not kept at all"));
    }
  }
  if (good({"ep.payload", "precision.compute"}) && config.ep.payload == "recipe") {
    if (good({"model.n_routed_experts"}) && experts == 0) {
      fail("ep.payload", "recipe needs routed experts");
    } else if (p.compute != "fp8_block" && p.compute != "mxfp8") {
      fail("ep.payload", StrCat("recipe needs precision.compute: fp8_block or mxfp8, found ", p.compute));
    } else if (good({"precision.fp8_block_scales"}) && p.compute == "fp8_block" &&
               p.fp8_block_scales != "power_of_two") {
      fail("ep.payload",
           "recipe needs precision.fp8_block_scales: power_of_two: rows that were received are quantised again along "
           "the other axis, and exact scales would be rounded twice");
    } else if (moe.pad_to_capacity) {
      fail("ep.payload", "recipe does not go with moe.pad_to_capacity: padding copies rows in the compute type");
    }
  }
  if (good({"moe.drop_policy", "moe.capacity_factor"}) && moe.drop_policy != MoeConfig().drop_policy &&
      moe.capacity_factor == 0)
    fail("moe.drop_policy", "needs moe.capacity_factor above 0: without it nothing is dropped");
  if (good({"moe.force_skew", "moe.force_routing"}) && moe.force_skew != MoeConfig().force_skew &&
      moe.force_routing != "skewed")
    fail("moe.force_skew", "needs moe.force_routing: skewed");
  if (good({"moe.force_skew", "moe.force_routing", "model.n_routed_experts", "model.num_experts_per_tok"}) &&
      moe.force_routing == "skewed" && experts > 0 && config.model.num_experts_per_tok > 0 &&
      moe.force_skew * static_cast<double>(config.model.num_experts_per_tok) > static_cast<double>(experts)) {
    fail("moe.force_skew",
         StrCat("must be at most ",
                FormatNumber(static_cast<double>(experts) /
                             static_cast<double>(config.model.num_experts_per_tok)),
                ", when every token takes the first expert; found ", FormatNumber(moe.force_skew)));
  }
  if (good({"moe.gemm", "runtime.cuda_graph"}) && moe.gemm == "loop" && config.runtime.cuda_graph) {
    fail("moe.gemm",
         "loop reads counts on the host, which a CUDA graph cannot: set runtime.cuda_graph to false");
  }
  const double factor = config.ep.ragged_buffer_factor;
  if (good({"ep.ragged_buffer_factor"}) && factor != -1 && factor < kLeastBufferFactor) {
    fail("ep.ragged_buffer_factor",
         StrCat("must be -1 or at least ", FormatNumber(kLeastBufferFactor), ", found ", FormatNumber(factor),
                factor > 0 ? StrCat(": every step would be computed again in more than ",
                                    FormatNumber(1 / kLeastBufferFactor), " rounds")
                           : ""));
  }
  if (good({"checkpoint.keep_latest"}) && config.checkpoint.keep_latest == 1) {
    fail("checkpoint.keep_latest",
         "must be 0 (all) or at least 2: a damaged checkpoint must not be the only one");
  }
}

void ValidateLayout(const Config& config, int world, const ConfigPlaces& places, Issues& issues) {
  const auto fail = [&](const std::string& path, const std::string& message) {
    issues.Add(places.Of(path), path, message);
  };
  const ParallelConfig& p = config.parallel;
  if (world % p.pp != 0) {
    fail("parallel.pp", StrCat("must divide the number of ranks (", world, "), found ", p.pp));
    return;  // then there is no dp
  }
  const int64_t dp = world / p.pp;
  if (p.ep > 0 && dp % p.ep != 0) {
    fail("parallel.ep", StrCat("must divide the data-parallel ranks (", world, " ranks / pp ", p.pp, " = ",
                               dp, "), found ", p.ep));
  }
  const int64_t sequences = dp * config.train.micro_batch_size;
  const std::string odd = IndivisibleBatches(config.train.global_batch_size, sequences);
  if (!odd.empty()) {
    fail("train.global_batch_size",
         StrCat("must be a multiple of micro_batch_size x data-parallel ranks (",
                config.train.micro_batch_size, " x ", dp, " = ", sequences, "), found ", odd));
  } else if (config.runtime.two_batch_overlap &&
             LargestScheduleValue(config.train.global_batch_size) < 2 * static_cast<double>(sequences)) {
    fail("runtime.two_batch_overlap",
         StrCat("needs two micro-batches in a step: train.global_batch_size of at least ", 2 * sequences,
                " with ", dp, " data-parallel ranks and train.micro_batch_size ", config.train.micro_batch_size));
  }
}

}  // namespace yardmaster
