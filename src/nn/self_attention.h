// File: src/nn/self_attention.h
//
// The attention of a decoder layer: latent (nn/mla.h) in the deepseek families, grouped-query (nn/gqa.h) in the others.
#pragma once

#include <string>
#include <variant>

#include "src/nn/gqa.h"
#include "src/nn/mla.h"

namespace yardmaster {

struct SelfAttentionSaved {
  MlaSaved mla;  // the one of the family; the other stays empty
  GqaSaved gqa;
};

class SelfAttention {
 public:
  SelfAttention(ParameterList& list, const std::string& prefix, const ModelConfig& config, bool attend_across_documents)
      : kind_(config.IsMla() ? Kind(std::in_place_type<Mla>, list, prefix, config, attend_across_documents)
                             : Kind(std::in_place_type<Gqa>, list, prefix, config, attend_across_documents)) {}
  void set_rope_table(const Tensor& table) {
    std::visit([&](auto& attention) { attention.set_rope_table(table); }, kind_);
  }

  void Forward(Context& ctx, MicroBatch& mb, const RecipeOperand& x, const Tensor& y, SelfAttentionSaved& saved,
               const Tensor& residual) const {
    std::visit([&](const auto& a) { a.Forward(ctx, mb, x, y, Of(a, saved), residual); }, kind_);
  }
  // Before backward, where the caller's x was not kept: the same values, elsewhere.
  void SetInput(const Tensor& x, SelfAttentionSaved& saved) const {
    std::visit([&](const auto& a) { Of(a, saved).x = x; }, kind_);
  }
  void BackwardInput(Context& ctx, MicroBatch& mb, const Tensor& dy, const Tensor& dx, SelfAttentionSaved& saved) const {
    std::visit([&](const auto& a) { a.BackwardInput(ctx, mb, dy, dx, Of(a, saved)); }, kind_);
  }
  void BackwardWeight(Context& ctx, MicroBatch& mb, SelfAttentionSaved& saved) const {
    std::visit([&](const auto& a) { a.BackwardWeight(ctx, mb, Of(a, saved)); }, kind_);
  }

 private:
  using Kind = std::variant<Mla, Gqa>;
  static MlaSaved& Of(const Mla&, SelfAttentionSaved& saved) { return saved.mla; }
  static GqaSaved& Of(const Gqa&, SelfAttentionSaved& saved) { return saved.gqa; }

  Kind kind_;
};

}  // namespace yardmaster
