// The training step. Everything here is enqueued, on the stream or beside it (engine.h); the host
// waits for nothing and reads nothing, but where Engine::Replays says that it takes part: counts,
// in exact mode, with ep.transport: nccl_exact and with moe.gemm: loop.
#include "src/ops/elementwise.h"
#include "src/train/engine.h"

namespace yardmaster {

std::vector<Task> Engine::StepSchedule(int64_t micro_batches, bool exact) const {
  return OneStageSchedule(micro_batches, second_ && !exact ? 2 : 1);
}

void Engine::EnqueueStep(int64_t micro_batches, int64_t global_tokens, bool exact) {
  Context ctx = MakeContext();
  const Stream side = reductions_ ? *reductions_ : stream_;  // of what travels beside the computation
  const double scale =
      1.0 /
      static_cast<double>(global_tokens);  // said once: loss gradients carry it, every reduction is a sum
  model_->registry().list().BeginStep(/*written_once=*/micro_batches == 1);
  Fill(stream_, 0, acc_.loss_sum);
  Fill(stream_, 0, acc_.valid);
  Fill(stream_, 0, rows_needed_);
  Fill(stream_, 0, acc_.sums);
  PrepareMtp(micro_batches);

  const auto begin = [&](int64_t index, MicroBatch* mb) {
    *mb = MicroBatchAt(index, scale, /*training=*/true);
    mb->exact = exact;
    if (reductions_ && !after_backward_ && index + 1 == micro_batches) {
      mb->gradients_done = [&](size_t first, size_t last) {
        side.After(stream_);
        optimizer_->ReduceEarly(side, first, last);
      };
    }
  };
  for (const Task& task : StepSchedule(micro_batches, exact)) {
    const bool forward = task.pass == Pass::kForward;
    MicroBatch& mb = in_flight_.front();
    if (forward) begin(task.micro_batch, &mb);
    if (task.in_turn == 2) {  // one's dispatch and combine beside the other's computation
      MicroBatch& second = in_flight_.back();
      if (forward) begin(task.micro_batch + 1, &second);
      second.saved = &second_->saved;
      Model::TwoContexts contexts{ctx, MakeContext(/*second=*/true)};
      forward ? model_->RunForwardInTurn(contexts, {&mb, &second}, acc_)
              : model_->RunBackwardInTurn(contexts, {&mb, &second});
    } else {
      forward ? model_->RunForward(ctx, mb, acc_) : model_->RunBackward(ctx, mb);
    }
  }
  for (MicroBatch& mb : in_flight_) mb.gradients_done = {};

  if (after_backward_) after_backward_();
  side.After(stream_);
  optimizer_->ReduceGradients(side);  // dense over dp, experts over edp
  optimizer_->Norm(ctx, side);
  groups_.dp->AllReduceSum(stream_, acc_.loss_sum);
  groups_.dp->AllReduceSum(stream_, acc_.sums);
  groups_.world->AllReduceMax(stream_, acc_.overflow);
  groups_.world->AllReduceMax(stream_, rows_needed_);

  JudgeStep(stream_, {.partials = optimizer_->partials(),  // one verdict, the same on every rank
                      .loss_sum = acc_.loss_sum,
                      .loss_scale = scale,
                      .clip_norm = config_.optimizer.clip_grad_norm,
                      .learning_rate = learning_rate_,
                      .bias_speed = bias_speed_,
                      .state = state_});
  // Skips itself on a bad verdict, as does the router bias.
  optimizer_->Update(ctx, state_, side);
  FinishStep(stream_, global_tokens, state_);
  if (report_load_.elements() > 0) groups_.dp->AllReduceSum(stream_, model_->load_counts());
  CollectReport();
  if (report_load_.elements() > 0) model_->UpdateRouterBias(ctx, state_);
  CollectBiases();
}

}  // namespace yardmaster
