#include "src/nn/embedding.h"

#include "src/ops/embedding.h"

namespace yardmaster {

Embedding::Embedding(ParameterList& list, const std::string& name, int64_t V, int64_t D, double init_std)
    : table_(list.Add(name, {V, D}, DecayClass::kEmbedding, InitKind::kNormal, init_std)) {}

void Embedding::Forward(Context& ctx, MicroBatch& mb, const Tensor& x) const {
  EmbeddingForward(ctx.stream, mb.tokens, table_->value, x);
}

void Embedding::BackwardWeight(Context& ctx, MicroBatch& mb, const Tensor& dx) const {
  EmbeddingBackward(ctx.stream, mb.tokens, dx, table_->TakeGradBeta(), table_->grad, ctx.work);
}

}  // namespace yardmaster
