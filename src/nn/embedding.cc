#include "src/nn/embedding.h"

#include "src/ops/embedding.h"

namespace yardmaster {

Embedding::Embedding(ParameterList& list, const std::string& name, int64_t V, int64_t D, double init_std)
    : table_(list.Add(name, {V, D}, DecayClass::kEmbedding, InitKind::kNormal, init_std)) {
  table_->embeds = true;
}

void Embedding::Forward(Context& ctx, const Tensor& ids, const Tensor& x) const {
  EmbeddingForward(ctx.stream, ids, table_->value, x);
}

void Embedding::BackwardWeight(Context& ctx, const Tensor& ids, const Tensor& dx) const {
  const Parameter::GradWrite write = table_->TakeGradWrite();
  EmbeddingBackward(ctx.stream, ids, dx, write.beta, table_->grad, ctx.work, write.squares);
}

}  // namespace yardmaster
