// File: src/ops/step_control.h
//
// What decides an update lives in device memory, so that no host is in the step: the verdict, the gradient norm, the
// clip factor, the learning rate, the counts of steps and tokens. Everything that the step would change reads the
// verdict and skips itself when it is bad.
#pragma once

#include <cstdint>
#include <vector>

#include "src/device/arena.h"
#include "src/device/device.h"

namespace yardmaster {

enum class StepVerdict : int32_t { kOk = 0, kNonFinite = 1, kOverflow = 2 };  // the larger outranks; MAX-reduced over ranks

// A schedule as device data: the value at `tokens` follows config/schedule.h. At most 16 segments.
struct DeviceSchedule {
  static constexpr int kMaxSegments = 16;
  int32_t num_segments = 0;
  int32_t kind[kMaxSegments] = {};        // SegmentKind
  int64_t until_tokens[kMaxSegments] = {};  // exclusive; the last may be INT64_MAX
  double from[kMaxSegments] = {}, to[kMaxSegments] = {};
};

// The value at `tokens`; beyond the last segment its end value.
double DeviceScheduleValue(const DeviceSchedule& schedule, int64_t tokens);

// One per run, in device memory; checkpointed (step, tokens, skipped). The rest is written anew by each step.
struct StepState {
  int64_t step = 0;           // updates applied
  int64_t tokens = 0;         // tokens of the applied steps: the key of every schedule
  int64_t skipped = 0;        // steps skipped for a non-finite value
  int32_t verdict = 0;        // StepVerdict of the last step
  int32_t overflow = 0;       // sticky until the host looks; written by dispatch
  double grad_norm = 0;       // before clipping
  double clip_factor = 1;     // min(1, c / (norm + 1e-6))
  double learning_rate = 0;   // used by the last step
  double bias_speed = 0;
  double loss = 0;            // mean over the valid tokens of the global batch
};

// Sum of squares of `x`, as one double per chunk of 128 rows (the last axis is a row; axis 0 of a tensor of three axes
// separates experts, and a chunk never crosses it). Chunks are cut in the global tensor, so that partials, and their sum in order, do
// not depend on the layout. NumNormChunks(shape) partials are written.
int64_t NumNormChunks(const Shape& shape);
void SumSquares(const Stream& stream, const Tensor& x, const Tensor& partials /* F64 [NumNormChunks] */);
// The same for many tensors in one op.
struct SumSquaresPart {
  Tensor x, partials;
};
void SumSquaresMulti(const Stream& stream, const std::vector<SumSquaresPart>& parts);
// The same where whoever wrote a tensor has squared it on the way: partials[c] = the sum of addends[c * per_chunk, ...),
// in an order that depends on their number alone. For many tensors in one op.
struct NormAddends {
  Tensor addends;         // F64 [n]
  int64_t per_chunk = 0;  // the last chunk may have fewer
  Tensor partials;        // F64 [ceil(n / per_chunk)]
};
void SumNormAddends(const Stream& stream, const std::vector<NormAddends>& parts);
// The addends that the op which writes a weight gradient sums on its way, `per_chunk` of them (ops/recipe_gemm.h,
// RecipeNormAddends), of the gradient x, F32 or F64 [N, K] or [L, N, K], as it lies in memory: the same bits, so that the
// norm does not depend on in how many parts x was written. addends: F64 [NumNormChunks(x) * per_chunk].
void SumTileSquares(const Stream& stream, const Tensor& x, int64_t per_chunk, const Tensor& addends);

// norm = sqrt(sum of partials in order). Sets verdict (bad if norm or loss is not finite, or overflow is set),
// grad_norm, clip_factor, learning_rate and bias_speed (by state->tokens), loss = loss_sum * loss_scale.
struct JudgeStepArgs {
  Tensor partials;            // F64 [n]
  Tensor loss_sum;            // F64 [1]
  double loss_scale = 1;      // 1 / valid tokens of the global batch
  double clip_norm = 0;       // 0: no clipping
  Tensor learning_rate;       // U8 [sizeof(DeviceSchedule)]
  Tensor bias_speed;          // U8 [sizeof(DeviceSchedule)]
  Tensor state;               // U8 [sizeof(StepState)]
};
void JudgeStep(const Stream& stream, const JudgeStepArgs& args);

// step += 1 and tokens += n if the verdict is good, else skipped += 1 if it is non-finite.
void FinishStep(const Stream& stream, int64_t tokens_of_step, const Tensor& state);

// bias_e += speed * sign(total - E * counts_e), total = sum of counts (= T*K), in int64; DeepSeek-V3 technical report, section 2.1.2
// (Wang et al., arXiv 2408.15664). Skipped on a bad verdict. Counts are set to zero in any case.
struct RouterBiasUpdateArgs {
  Tensor counts;         // int64 [E]
  Tensor state;          // U8 [sizeof(StepState)]
  Tensor bias = {};      // [E]; undefined: the router has none
  Tensor previous = {};  // int64 [E]: a copy of the counts, for the next step; undefined: not kept
};
void RouterBiasUpdate(const Stream& stream, const RouterBiasUpdateArgs& args);

}  // namespace yardmaster
