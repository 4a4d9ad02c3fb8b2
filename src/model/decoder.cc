#include "src/model/decoder.h"

#include "src/nn/rope.h"
#include "src/ops/step_control.h"

namespace yardmaster {

struct Decoder::Flight : InFlight {
  size_t mark = 0;  // of mb.saved, below everything
  Tensor h, other;  // [T, D]: forward, the state where it is, and in evaluation the buffer for the next
  std::vector<BlockSaved> blocks;
  LossHeadSaved head;
  Tensor n;  // [T, D]: the normalised state, where a module of multi-token prediction gets it
  std::vector<MtpSaved> mtp;
  size_t work_mark = 0;  // backward: of ctx.work, below the gradients
  BlockGradients gradients;
};

namespace {

// All gradients of the parameters [begin, end) are enqueued.
void Completed(const MicroBatch& mb, size_t begin, size_t end) {
  if (mb.gradients_done && begin < end) mb.gradients_done(begin, end);
}

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
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    for (size_t phase = 0; phase < blocks_[layer]->phases().size(); ++phase) steps_.push_back({layer, phase});
  }
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

Decoder::Flight& Decoder::BeginForward(Context& ctx, MicroBatch& mb, const StepAccumulators& acc) const {
  YM_CHECK_LE(mb.S, options_.max_positions, "sequence longer than the rotary table");
  YM_CHECK_EQ(mb.tokens.elements(), mb.T());
  auto flight = std::dynamic_pointer_cast<Flight>(mb.in_flight);
  if (!flight) mb.in_flight = flight = std::make_shared<Flight>();
  flight->blocks.resize(blocks_.size());
  flight->mark = mb.saved->Mark();
  mb.overflow = acc.overflow;
  mb.sums = mb.training ? acc.sums : Tensor();
  flight->h = mb.saved->Allocate("h_0", ctx.types.compute, {mb.T(), config_.hidden_size});
  flight->other = mb.training ? Tensor() : mb.saved->Allocate("h_1", ctx.types.compute, flight->h.shape());
  embedding_.Forward(ctx, mb.tokens, flight->h);
  return *flight;
}

void Decoder::ForwardStep(Context& ctx, MicroBatch& mb, const ForwardTaps* taps, Step at, Flight& flight) const {
  Block& block = *blocks_[at.layer];
  BlockSaved& saved = flight.blocks[at.layer];
  if (at.phase == 0) {
    saved.mark = mb.saved->Mark();
    saved.h_in = flight.h;
    saved.h_out = mb.training ? mb.saved->Allocate("block/h_out", ctx.types.compute, flight.h.shape()) : flight.other;
  }
  block.Forward(block.phases()[at.phase], ctx, mb, saved);
  if (at.phase + 1 < block.phases().size()) return;
  flight.h = saved.h_out;
  flight.other = saved.h_in;
  const int64_t layer = static_cast<int64_t>(at.layer);
  if (taps && taps->hidden) taps->hidden(layer, flight.h);
  if (taps && taps->routing && block.moe()) taps->routing(layer, saved.moe.router.idx, saved.moe.router.w);
  if (taps && taps->scores && block.moe()) taps->scores(layer, saved.moe.router.scores);
  if (!mb.training) mb.saved->Release(saved.mark);
}

void Decoder::FinishForward(Context& ctx, MicroBatch& mb, const StepAccumulators& acc, const ForwardTaps* taps,
                            Flight& flight) const {
  const bool mtp = mb.training && !mtp_.empty();
  flight.n = mtp && post_norm() ? mb.saved->Allocate("n", ctx.types.compute, flight.h.shape()) : Tensor();
  head_.Forward(ctx, mb, flight.h, acc.loss_sum, acc.valid, taps ? taps->logits : Tensor(), flight.head, flight.n);
  if (mtp) MtpForward(ctx, mb, flight.h, acc, taps, flight);
  if (!mb.training) mb.saved->Release(flight.mark);
}

void Decoder::RunForward(Context& ctx, MicroBatch& mb, const StepAccumulators& acc, const ForwardTaps* taps) {
  Flight& flight = BeginForward(ctx, mb, acc);
  for (const Step at : steps_) ForwardStep(ctx, mb, taps, at, flight);
  FinishForward(ctx, mb, acc, taps, flight);
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

Decoder::Flight& Decoder::BeginBackward(Context& ctx, MicroBatch& mb) const {
  YM_CHECK(mb.training, "backward of an evaluation");
  auto flight = std::dynamic_pointer_cast<Flight>(mb.in_flight);
  YM_CHECK(flight, "backward without a forward");
  flight->work_mark = ctx.work.Mark();
  const Tensor dh = ctx.work.Allocate("dh", ctx.types.compute, {mb.T(), config_.hidden_size});
  const Tensor dh_mid = ctx.work.Allocate("dh_mid", ctx.types.compute, dh.shape());
  flight->gradients = {.dh_out = dh, .dh_mid = dh_mid, .dh_in = dh};
  Tensor dp;
  if (!mtp_.empty()) {
    if (!post_norm()) dp = ctx.work.Allocate("mtp/dp", ctx.types.compute, dh.shape());
    MtpBackward(ctx, mb, flight->gradients, dp, *flight);
  }
  head_.BackwardInput(ctx, mb, dh, flight->head, /*dresidual=*/dp);
  // The head's and the modules' for multi-token prediction, which follow the blocks in the list.
  Completed(mb, blocks_.back()->parameters_end(), list_.parameters().size());
  return *flight;
}

void Decoder::BackwardStep(Context& ctx, MicroBatch& mb, Step at, Flight& flight) const {
  const Block& block = *blocks_[at.layer];
  BlockSaved& saved = flight.blocks[at.layer];
  const Phase phase = block.phases()[at.phase];
  block.BackwardInput(phase, ctx, mb, flight.gradients, saved);
  block.BackwardWeight(phase, ctx, mb, saved);
  const auto [begin, end] = block.CompletedBy(phase);
  Completed(mb, begin, end);
  if (at.phase == 0) mb.saved->Release(saved.mark);
}

void Decoder::FinishBackward(Context& ctx, MicroBatch& mb, Flight& flight) const {
  embedding_.BackwardWeight(ctx, mb.tokens, flight.gradients.dh_in);
  Completed(mb, 0, embedding_end_);
  mb.saved->Release(flight.mark);
  ctx.work.Release(flight.work_mark);
}

void Decoder::RunBackward(Context& ctx, MicroBatch& mb) {
  Flight& flight = BeginBackward(ctx, mb);
  for (size_t i = steps_.size(); i-- > 0;) BackwardStep(ctx, mb, steps_[i], flight);
  FinishBackward(ctx, mb, flight);
}

// ---- two micro-batches in turn. A turn of one ends when it has left something on the communication stream: forward,
// the dispatch of rows or their combine; backward likewise (a combine's adjoint is a dispatch). The other's turn is
// what runs beside it.

bool Decoder::Forks(Step at, bool backward) const {
  const Phase phase = blocks_[at.layer]->phases()[at.phase];
  return phase == Phase::kCombine || phase == (backward ? Phase::kExperts : Phase::kDispatch);
}

void Decoder::RunForwardInTurn(TwoContexts& ctx, const TwoMicroBatches& mb, const StepAccumulators& acc) {
  Turns turns;
  std::array<Flight*, 2> flight;
  for (size_t i : {0, 1}) {
    flight[i] = &BeginForward(ctx[i], *mb[i], acc);
    ctx[i].turns = &turns;
    ctx[i].turn = static_cast<int>(i);
  }
  for (size_t begin = 0, end = 0; begin < steps_.size(); begin = end) {
    while (end < steps_.size() && !Forks(steps_[end++], /*backward=*/false)) {
    }
    for (size_t i : {0, 1}) {
      ctx[i].TakeTurn();
      for (size_t s = begin; s < end; ++s) ForwardStep(ctx[i], *mb[i], nullptr, steps_[s], *flight[i]);
    }
  }
  ctx[1].Settle();
  for (size_t i : {0, 1}) {
    ctx[i].turns = nullptr;
    FinishForward(ctx[i], *mb[i], acc, nullptr, *flight[i]);
  }
}

void Decoder::RunBackwardInTurn(TwoContexts& ctx, const TwoMicroBatches& mb) {
  Turns turns;
  std::array<Flight*, 2> flight;
  for (size_t i : {0, 1}) {
    flight[i] = &BeginBackward(ctx[i], *mb[i]);
    ctx[i].turns = &turns;
    ctx[i].turn = static_cast<int>(i);
  }
  for (size_t begin = steps_.size(), end = begin; begin > 0; begin = end) {
    while (end > 0 && !Forks(steps_[--end], /*backward=*/true)) {
    }
    for (size_t i : {0, 1}) {
      ctx[i].TakeTurn();
      for (size_t s = begin; s-- > end;) BackwardStep(ctx[i], *mb[i], steps_[s], *flight[i]);
    }
  }
  ctx[1].Settle();
  for (size_t i : {0, 1}) {
    ctx[i].turns = nullptr;
    FinishBackward(ctx[i], *mb[i], *flight[i]);
  }
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
