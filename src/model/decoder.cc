#include "src/model/decoder.h"

#include "src/nn/rope.h"
#include "src/ops/step_control.h"

namespace yardmaster {

struct Decoder::Flight : InFlight {
  size_t mark = 0;  // of mb.saved, below everything
  std::vector<BlockSaved> blocks;
  LossHeadSaved head;
  Tensor n;  // [T, D]: the normalised state, where a module of multi-token prediction gets it
  std::vector<MtpSaved> mtp;
};

namespace {

std::vector<std::unique_ptr<Block>> MakeBlocks(ParameterList& list, const ModelConfig& config,
                                               const ModelOptions& options, Dispatcher* dispatcher) {
  std::vector<std::unique_ptr<Block>> blocks;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    blocks.push_back(std::make_unique<Block>(list, config, layer, options.types,
                                             options.attend_across_documents, dispatcher, options.moe));
  }
  return blocks;
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, const ModelOptions& options, Dispatcher* dispatcher)
    : config_(config),
      options_(options),
      embedding_(list_, "model.embed_tokens.weight", config.vocab_size, config.hidden_size,
                 config.initializer_range),
      embedding_end_(list_.parameters().size()),
      blocks_(MakeBlocks(list_, config, options, dispatcher)),
      head_(list_, config) {
  for (int64_t depth = 1; depth <= config.num_nextn_predict_layers; ++depth) {
    mtp_.push_back(std::make_unique<MtpModule>(list_, config, depth, options.types,
                                               options.attend_across_documents, dispatcher, options.moe,
                                               &embedding_, &head_));
  }
  const auto add = [&](int64_t layer, Block& block) {
    if (block.moe() == nullptr) return;
    moe_layers_.push_back(layer);
    moe_.push_back(block.moe());
  };
  for (size_t layer = 0; layer < blocks_.size(); ++layer) add(static_cast<int64_t>(layer), *blocks_[layer]);
  for (auto& module : mtp_) add(module->layer(), module->block());
}

void Decoder::Allocate(Arena& weights, Device& device) {
  const int64_t M = static_cast<int64_t>(moe_layers_.size());
  rope_table_ = weights.Allocate("rope table", options_.types.accum,
                                 {options_.max_positions, config_.rope_dim() / 2, 2});
  counts_ = weights.Allocate("router load", DType::kI64, {M, config_.n_routed_experts});
  for (auto& block : blocks_) block->attention().set_rope_table(rope_table_);
  for (auto& module : mtp_) module->block().attention().set_rope_table(rope_table_);
  for (int64_t m = 0; m < M; ++m) {
    moe_[static_cast<size_t>(m)]->set_counts(counts_.At(m));
    moe_[static_cast<size_t>(m)]->set_sums_row(1 + m);
  }
  if (rope_table_.data() == nullptr) return;  // dry
  const HostTensor table = RopeTable(config_, options_.max_positions, options_.types.accum);
  device.CopyFromHost(rope_table_.data(), table.view().data(), static_cast<size_t>(rope_table_.bytes()));
  const HostTensor zeros(DType::kI64, counts_.shape());
  device.CopyFromHost(counts_.data(), zeros.view().data(), static_cast<size_t>(counts_.bytes()));
}

void Decoder::RunForward(Context& ctx, MicroBatch& mb, const StepAccumulators& acc, const ForwardTaps* taps) {
  YM_CHECK_LE(mb.S, options_.max_positions, "sequence longer than the rotary table");
  YM_CHECK_EQ(mb.tokens.elements(), mb.T());
  auto flight = std::dynamic_pointer_cast<Flight>(mb.in_flight);
  if (!flight) mb.in_flight = flight = std::make_shared<Flight>();
  flight->blocks.resize(blocks_.size());
  flight->mark = mb.saved->Mark();
  mb.overflow = acc.overflow;
  mb.sums = mb.training ? acc.sums : Tensor();

  const auto residual = [&](const char* what) {
    return mb.saved->Allocate(what, ctx.types.compute, {mb.T(), config_.hidden_size});
  };
  Tensor h = residual("h_0");
  Tensor other = mb.training ? Tensor() : residual("h_1");
  embedding_.Forward(ctx, mb.tokens, h);
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
    if (taps && taps->scores && blocks_[layer]->moe())
      taps->scores(static_cast<int64_t>(layer), saved.moe.router.scores);
    if (!mb.training) mb.saved->Release(saved.mark);
  }
  const bool mtp = mb.training && !mtp_.empty();
  flight->n = mtp && post_norm() ? residual("n") : Tensor();
  head_.Forward(ctx, mb, h, acc.loss_sum, acc.valid, taps ? taps->logits : Tensor(), flight->head, flight->n);
  if (mtp) MtpForward(ctx, mb, h, acc, taps, *flight);
  if (!mb.training) mb.saved->Release(flight->mark);
}

void Decoder::MtpForward(Context& ctx, MicroBatch& mb, const Tensor& h, const StepAccumulators& acc,
                         const ForwardTaps* taps, Flight& flight) const {
  flight.mtp.resize(mtp_.size());
  Tensor below = post_norm() ? flight.n : h;
  for (size_t d = 0; d < mtp_.size(); ++d) {
    MtpSaved& saved = flight.mtp[d];
    mtp_[d]->Forward(ctx, mb, below, acc.sums.At(0).Slice(kMtpLoss, kMtpLoss + 1),
                     taps && !taps->mtp_logits.empty() ? taps->mtp_logits.at(d) : Tensor(), saved);
    below = post_norm() ? saved.n : saved.block.h_out;
    if (taps && taps->routing && mtp_[d]->block().moe())
      taps->routing(mtp_[d]->layer(), saved.block.moe.router.idx, saved.block.moe.router.w);
    if (taps && taps->scores && mtp_[d]->block().moe())
      taps->scores(mtp_[d]->layer(), saved.block.moe.router.scores);
  }
}

void Decoder::MtpBackward(Context& ctx, MicroBatch& mb, const BlockGradients& g, const Tensor& dp,
                          Flight& flight) const {
  for (size_t d = mtp_.size(); d-- > 0;) {
    const Tensor above = !post_norm() && d + 1 < mtp_.size() ? dp : Tensor();
    const Tensor below = !post_norm() ? dp : d > 0 ? flight.mtp[d - 1].dn : flight.head.dn;
    mtp_[d]->Backward(ctx, mb, g, above, below, /*accumulate=*/post_norm(), flight.mtp[d]);
  }
}

void Decoder::RunBackward(Context& ctx, MicroBatch& mb) {
  YM_CHECK(mb.training, "backward of an evaluation");
  auto flight = std::dynamic_pointer_cast<Flight>(mb.in_flight);
  YM_CHECK(flight, "backward without a forward");
  ArenaScope scope(ctx.work);
  Tensor dh = ctx.work.Allocate("dh", ctx.types.compute, {mb.T(), config_.hidden_size});
  const Tensor dh_mid = ctx.work.Allocate("dh_mid", ctx.types.compute, dh.shape());
  const BlockGradients gradients{.dh_out = dh, .dh_mid = dh_mid, .dh_in = dh};
  Tensor dp;
  if (!mtp_.empty()) {
    if (!post_norm()) dp = ctx.work.Allocate("mtp/dp", ctx.types.compute, dh.shape());
    MtpBackward(ctx, mb, gradients, dp, *flight);
  }
  head_.BackwardInput(ctx, mb, dh, flight->head, /*dresidual=*/dp);
  const auto completed = [&](size_t begin, size_t end) {
    if (mb.gradients_done && begin < end) mb.gradients_done(begin, end);
  };
  // The head's and the modules' for multi-token prediction, which follow the blocks in the list.
  completed(blocks_.back()->parameters_end(), list_.parameters().size());
  for (size_t layer = blocks_.size(); layer-- > 0;) {
    const Block& block = *blocks_[layer];
    BlockSaved& saved = flight->blocks[layer];
    for (size_t i = block.phases().size(); i-- > 0;) {
      block.BackwardInput(block.phases()[i], ctx, mb, gradients, saved);
      block.BackwardWeight(block.phases()[i], ctx, mb, saved);
      const auto [begin, end] = block.CompletedBy(block.phases()[i]);
      completed(begin, end);
    }
    mb.saved->Release(saved.mark);
  }
  embedding_.BackwardWeight(ctx, mb.tokens, dh);
  completed(0, embedding_end_);
  mb.saved->Release(flight->mark);
}

void Decoder::CountMtpTargets(Context& ctx, const MicroBatch& mb, const Tensor& valid) const {
  for (const auto& module : mtp_) module->CountTargets(ctx, mb, valid);
}

void Decoder::UpdateRouterBias(Context& ctx, const Tensor& step_state) {
  for (size_t m = 0; m < moe_.size(); ++m) {
    const Buffer* bias = moe_[m]->router().bias();
    const Buffer* previous = moe_[m]->router().previous_load();
    RouterBiasUpdate(ctx.stream, {.counts = counts_.At(static_cast<int64_t>(m)),
                                  .state = step_state,
                                  .bias = bias != nullptr ? bias->value : Tensor(),
                                  .previous = previous != nullptr ? previous->value : Tensor()});
  }
}

std::vector<Tensor> Decoder::router_biases() const {
  std::vector<Tensor> biases;
  for (const MoeLayer* layer : moe_) {
    if (layer->router().bias() != nullptr) biases.push_back(layer->router().bias()->value);
  }
  return biases;
}

}  // namespace yardmaster
