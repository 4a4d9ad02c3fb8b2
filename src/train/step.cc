// The training step. Everything here is enqueued on the stream; the host waits for nothing and reads nothing.
#include "src/ops/elementwise.h"
#include "src/parallel/schedule.h"
#include "src/train/engine.h"

namespace yardmaster {

void Engine::EnqueueStep(int64_t micro_batches, int64_t global_tokens, bool exact) {
  Context ctx = MakeContext();
  const Stream side = reductions_ ? *reductions_ : stream_;  // of what travels beside the computation
  const double scale =
      1.0 /
      static_cast<double>(global_tokens);  // said once: loss gradients carry it, every reduction is a sum
  model_->registry().list().BeginStep();
  Fill(stream_, 0, acc_.loss_sum);
  Fill(stream_, 0, acc_.valid);
  Fill(stream_, 0, rows_needed_);
  Fill(stream_, 0, acc_.sums);
  PrepareMtp(micro_batches);

  for (const Task& task : OneStageSchedule(micro_batches)) {
    MicroBatch& mb = in_flight_[static_cast<size_t>(task.micro_batch) % in_flight_.size()];
    if (task.pass == Pass::kForward) {
      mb = MicroBatchAt(task.micro_batch, scale, /*training=*/true);
      mb.exact = exact;
      model_->RunForward(ctx, mb, acc_);
    } else {
      if (reductions_ && !after_backward_ && task.micro_batch + 1 == micro_batches) {
        mb.gradients_done = [&](size_t begin, size_t end) {
          side.After(stream_);
          optimizer_->ReduceEarly(side, begin, end);
        };
      }
      model_->RunBackward(ctx, mb);
      mb.gradients_done = {};
    }
  }

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
