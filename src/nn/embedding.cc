#include "src/nn/embedding.h"

#include "src/ops/embedding.h"

namespace yardmaster {

Embedding::Embedding(ParameterList& list, const std::string& name, int64_t V, int64_t D, double init_std)
    : table_(list.Add(name, {V, D}, DecayClass::kEmbedding, InitKind::kNormal, init_std)) {}

void Embedding::Forward(Context& ctx, const Tensor& ids, const Tensor& x) const {
  EmbeddingForward(ctx.stream, ids, table_->value, x);
}

void Embedding::BackwardWeight(Context& ctx, const Tensor& ids, const Tensor& dx) const {
  EmbeddingBackward(ctx.stream, ids, dx, table_->TakeGradBeta(), table_->grad, ctx.work);
}

}  // namespace yardmaster
