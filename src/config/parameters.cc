#include "src/config/parameters.h"

#include <algorithm>

#include "src/base/check.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

// Products of four sizes of the schema (layers, experts and two widths) stay below 2^73.
using Wide = __int128;

struct WideCounts {
  Wide embedding, attention, dense_mlp, router, routed_experts, shared_experts, norms, head, inactive_experts;
  Wide matmul;  // of one token, without embedding, norms and biases
  Wide total() const {
    return embedding + attention + dense_mlp + router + routed_experts + shared_experts + norms + head;
  }
};

Wide AttentionProjections(const ModelConfig& m) {
  const Wide D = m.hidden_size, heads = m.num_attention_heads, Q = m.qk_head_dim();
  if (!m.IsMla()) return 2 * D * heads * Q + 2 * D * m.key_value_heads() * Q;
  const Wide query = m.q_lora_rank > 0 ? m.q_lora_rank * (D + heads * Q) : D * heads * Q;
  return query + D * (m.kv_lora_rank + m.qk_rope_head_dim) +
         m.kv_lora_rank * heads * (m.qk_nope_head_dim + m.v_head_dim) + heads * m.v_head_dim * D;
}

WideCounts Count(const ModelConfig& m) {
  const Wide D = m.hidden_size, V = m.vocab_size, layers = m.num_hidden_layers;
  const Wide dense_layers =
      m.n_routed_experts > 0 ? std::min(m.first_k_dense_replace, m.num_hidden_layers) : m.num_hidden_layers;
  const Wide moe_layers = layers - dense_layers;
  const Wide projections = AttentionProjections(m);
  const Wide attention_norms = m.IsMla()                      ? m.q_lora_rank + m.kv_lora_rank
                               : m.NormalisesQueriesAndKeys() ? 2 * m.qk_head_dim()
                                                              : 0;
  const Wide expert = 3 * D * m.moe_intermediate_size;
  WideCounts c;
  c.embedding = V * D;
  c.attention = layers * (projections + attention_norms);
  c.dense_mlp = dense_layers * 3 * D * m.intermediate_size;
  c.router = moe_layers * m.n_routed_experts * (D + (m.HasRouterBias() ? 1 : 0));
  c.routed_experts = moe_layers * m.n_routed_experts * expert;
  c.shared_experts = moe_layers * m.n_shared_experts * expert;
  c.norms = (2 * layers + 1) * D;
  c.head = V * D;
  c.inactive_experts = moe_layers * (m.n_routed_experts - m.num_experts_per_tok) * expert;
  c.matmul = layers * projections + c.dense_mlp + moe_layers * m.n_routed_experts * D + c.routed_experts -
             c.inactive_experts + c.shared_experts + c.head;
  // A module of multi-token prediction: its projection of two states, a layer like the last, the head again.
  const Wide mtp_mlp = m.n_routed_experts > 0
                           ? m.n_routed_experts * D + (m.num_experts_per_tok + m.n_shared_experts) * expert
                           : 3 * D * m.intermediate_size;
  c.matmul += m.num_nextn_predict_layers * (2 * D * D + projections + mtp_mlp + c.head);
  return c;
}

}  // namespace

bool ParametersAreCountable(const ModelConfig& model) { return Count(model).total() < (Wide{1} << 62); }

ParameterCounts CountParameters(const ModelConfig& model) {
  YM_CHECK(ParametersAreCountable(model));
  const WideCounts wide = Count(model);
  const auto narrow = [](Wide value) { return static_cast<int64_t>(value); };
  ParameterCounts counts;
  counts.embedding = narrow(wide.embedding);
  counts.attention = narrow(wide.attention);
  counts.dense_mlp = narrow(wide.dense_mlp);
  counts.router = narrow(wide.router);
  counts.routed_experts = narrow(wide.routed_experts);
  counts.shared_experts = narrow(wide.shared_experts);
  counts.norms = narrow(wide.norms);
  counts.head = narrow(wide.head);
  counts.inactive_experts = narrow(wide.inactive_experts);
  return counts;
}

FlopsPerToken CountFlopsPerToken(const ModelConfig& m, int64_t sequence_length) {
  YM_CHECK(ParametersAreCountable(m));
  FlopsPerToken flops;
  flops.active_matmul_parameters = static_cast<int64_t>(Count(m).matmul);
  flops.dense = 3.0 * 2.0 * static_cast<double>(flops.active_matmul_parameters);
  flops.attention = 3.0 * 2.0 * static_cast<double>(m.num_hidden_layers + m.num_nextn_predict_layers) *
                    static_cast<double>(m.num_attention_heads) *
                    static_cast<double>(m.qk_head_dim() + m.value_head_dim()) *
                    static_cast<double>(sequence_length) / 2;
  return flops;
}

std::string FlopsFormula(const ModelConfig& m, int64_t sequence_length) {
  const FlopsPerToken flops = CountFlopsPerToken(m, sequence_length);
  return StrCat("3 x 2 x (", HumanCount(static_cast<double>(flops.active_matmul_parameters)),
                " active matmul parameters incl. head and router",
                m.num_nextn_predict_layers > 0 ? " and multi-token prediction" : "",
                ", without embedding) + 3 x 2 x ", m.num_hidden_layers + m.num_nextn_predict_layers,
                " layers x ", m.num_attention_heads, " heads x (", m.qk_head_dim(), " + ", m.value_head_dim(),
                ") x ", sequence_length, " / 2 (causal) = ", StrFormat("%.6g", flops.total() / 1e9),
                " GFLOP");
}

}  // namespace yardmaster
