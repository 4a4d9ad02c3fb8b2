#include "src/model/decoder.h"

#include "src/nn/rope.h"
#include "src/ops/step_control.h"

namespace yardmaster {
namespace {

struct DecoderInFlight : InFlight {
  size_t mark = 0;  // of mb.saved, below everything
  std::vector<BlockSaved> blocks;
  LossHeadSaved head;
};

std::vector<std::unique_ptr<Block>> MakeBlocks(ParameterList& list, const ModelConfig& config,
                                               const ModelOptions& options, Dispatcher* dispatcher) {
  std::vector<std::unique_ptr<Block>> blocks;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    blocks.push_back(std::make_unique<Block>(list, config, layer, options.types,
                                             options.attend_across_documents, dispatcher));
  }
  return blocks;
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, const ModelOptions& options, Dispatcher* dispatcher)
    : config_(config),
      options_(options),
      embedding_(list_, "model.embed_tokens.weight", config.vocab_size, config.hidden_size,
                 config.initializer_range),
      blocks_(MakeBlocks(list_, config, options, dispatcher)),
      head_(list_, config) {
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.IsMoeLayer(layer)) moe_layers_.push_back(layer);
  }
}

void Decoder::Allocate(Arena& weights, Device& device) {
  const int64_t M = static_cast<int64_t>(moe_layers_.size());
  rope_table_ = weights.Allocate("rope table", options_.types.accum,
                                 {options_.max_positions, config_.rope_dim() / 2, 2});
  counts_ = weights.Allocate("router load", DType::kI64, {M, config_.n_routed_experts});
  for (auto& block : blocks_) block->attention().set_rope_table(rope_table_);
  for (int64_t m = 0; m < M; ++m)
    blocks_[static_cast<size_t>(moe_layers_[m])]->moe()->set_counts(counts_.At(m));
  if (rope_table_.data() == nullptr) return;  // dry
  const HostTensor table = RopeTable(config_, options_.max_positions, options_.types.accum);
  device.CopyFromHost(rope_table_.data(), table.view().data(), static_cast<size_t>(rope_table_.bytes()));
  const HostTensor zeros(DType::kI64, counts_.shape());
  device.CopyFromHost(counts_.data(), zeros.view().data(), static_cast<size_t>(counts_.bytes()));
}

void Decoder::RunForward(Context& ctx, MicroBatch& mb, const StepAccumulators& acc, const ForwardTaps* taps) {
  YM_CHECK_LE(mb.S, options_.max_positions, "sequence longer than the rotary table");
  YM_CHECK_EQ(mb.tokens.elements(), mb.T());
  auto flight = std::dynamic_pointer_cast<DecoderInFlight>(mb.in_flight);
  if (!flight) mb.in_flight = flight = std::make_shared<DecoderInFlight>();
  flight->blocks.resize(blocks_.size());
  flight->mark = mb.saved->Mark();
  mb.overflow = acc.overflow;

  const auto residual = [&](const char* what) {
    return mb.saved->Allocate(what, ctx.types.compute, {mb.T(), config_.hidden_size});
  };
  Tensor h = residual("h_0");
  Tensor other = mb.training ? Tensor() : residual("h_1");
  embedding_.Forward(ctx, mb, h);
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    BlockSaved& saved = flight->blocks[layer];
    saved.mark = mb.saved->Mark();
    saved.h_in = h;
    saved.h_out = mb.training ? residual("block/h_out") : other;
    for (const Phase phase : blocks_[layer]->phases()) blocks_[layer]->Forward(phase, ctx, mb, saved);
    h = saved.h_out;
    other = saved.h_in;
    if (taps && taps->hidden) taps->hidden(static_cast<int64_t>(layer), h);
    if (taps && taps->routing && blocks_[layer]->moe()) {
      taps->routing(static_cast<int64_t>(layer), saved.moe.router.idx, saved.moe.router.w);
    }
    if (!mb.training) mb.saved->Release(saved.mark);
  }
  head_.Forward(ctx, mb, h, acc.loss_sum, acc.valid, taps ? taps->logits : Tensor(), flight->head);
  if (!mb.training) mb.saved->Release(flight->mark);
}

void Decoder::RunBackward(Context& ctx, MicroBatch& mb) {
  YM_CHECK(mb.training, "backward of an evaluation");
  auto flight = std::dynamic_pointer_cast<DecoderInFlight>(mb.in_flight);
  YM_CHECK(flight, "backward without a forward");
  ArenaScope scope(ctx.work);
  Tensor dh = ctx.work.Allocate("dh", ctx.types.compute, {mb.T(), config_.hidden_size});
  const Tensor dh_mid = ctx.work.Allocate("dh_mid", ctx.types.compute, dh.shape());
  head_.BackwardInput(ctx, mb, dh, flight->head);
  const BlockGradients gradients{.dh_out = dh, .dh_mid = dh_mid, .dh_in = dh};
  for (size_t layer = blocks_.size(); layer-- > 0;) {
    const Block& block = *blocks_[layer];
    BlockSaved& saved = flight->blocks[layer];
    for (size_t i = block.phases().size(); i-- > 0;) {
      block.BackwardInput(block.phases()[i], ctx, mb, gradients, saved);
      block.BackwardWeight(block.phases()[i], ctx, mb, saved);
    }
    mb.saved->Release(saved.mark);
  }
  embedding_.BackwardWeight(ctx, mb, dh);
  mb.saved->Release(flight->mark);
}

void Decoder::UpdateRouterBias(Context& ctx, const Tensor& step_state) {
  for (size_t m = 0; m < moe_layers_.size(); ++m) {
    const Buffer* bias = blocks_[static_cast<size_t>(moe_layers_[m])]->moe()->router().bias();
    RouterBiasUpdate(ctx.stream, {.counts = counts_.At(static_cast<int64_t>(m)),
                                  .state = step_state,
                                  .bias = bias != nullptr ? bias->value : Tensor()});
  }
}

}  // namespace yardmaster
