#include "src/ops/cpu/step_control_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "src/device/cpu_parallel.h"
#include "src/ops/cpu/math.h"

namespace yardmaster::cpu {
namespace {

template <class S>
S Load(const Tensor& bytes) {
  S value;
  std::memcpy(&value, bytes.data(), sizeof(S));
  return value;
}
void Store(const StepState& value, const Tensor& bytes) {
  std::memcpy(bytes.data(), &value, sizeof(value));
}

void SumSquaresOf(const Stream& stream, const Tensor& x, const Tensor& partials) {
  if (x.elements() == 0) return;
  const int64_t cols = x.cols(), matrices = x.shape().rank() == 3 ? x.dim(0) : 1;
  const int64_t rows = x.rows() / matrices, chunks = (rows + kNormChunkRows - 1) / kNormChunkRows;
  double* out = partials.as<double>();
  DispatchFloat(x.dtype(), [&]<class T>() {
    ParallelFor(stream, matrices * chunks, 1, [&](int64_t chunk, int64_t) {
      const int64_t row = chunk % chunks * kNormChunkRows;
      const T* begin = x.as<T>() + (chunk / chunks * rows + row) * cols;
      out[chunk] = LaneSum<double>(std::min(kNormChunkRows, rows - row) * cols, [begin](int64_t i) {
        const double value = begin[i];
        return value * value;
      });
    });
  });
}

}  // namespace

void SumSquares(const Stream& stream, const std::vector<SumSquaresPart>& parts) {
  for (const SumSquaresPart& part : parts) SumSquaresOf(stream, part.x, part.partials);
}

void SumNormAddends(const std::vector<NormAddends>& parts) {
  for (const auto& [addends, per_chunk, partials] : parts) {
    const double* from = addends.as<double>();
    const double* const end = from + addends.elements();
    for (int64_t c = 0; c < partials.elements(); ++c, from += per_chunk)
      partials.as<double>()[c] = std::accumulate(from, std::min(from + per_chunk, end), 0.0);
  }
}

void JudgeStep(const JudgeStepArgs& g) {
  StepState s = Load<StepState>(g.state);
  double squares = 0;
  for (int64_t i = 0; i < g.partials.elements(); ++i) squares += g.partials.as<double>()[i];
  s.grad_norm = std::sqrt(squares);
  s.loss = g.loss_sum.as<double>()[0] * g.loss_scale;
  const bool finite = std::isfinite(s.grad_norm) && std::isfinite(s.loss);
  s.verdict = static_cast<int32_t>(s.overflow != 0 ? StepVerdict::kOverflow
                                   : finite        ? StepVerdict::kOk
                                                   : StepVerdict::kNonFinite);
  s.clip_factor =
      g.clip_norm > 0 && finite ? std::min(1.0, g.clip_norm / (s.grad_norm + 1e-6)) : 1.0;
  s.learning_rate = DeviceScheduleValue(Load<DeviceSchedule>(g.learning_rate), s.tokens);
  s.bias_speed = DeviceScheduleValue(Load<DeviceSchedule>(g.bias_speed), s.tokens);
  Store(s, g.state);
}

void FinishStep(int64_t tokens_of_step, const Tensor& state) {
  StepState s = Load<StepState>(state);
  if (s.verdict == static_cast<int32_t>(StepVerdict::kOk)) {
    s.step += 1;
    s.tokens += tokens_of_step;
  } else if (s.verdict == static_cast<int32_t>(StepVerdict::kNonFinite)) {
    s.skipped += 1;
  }
  Store(s, state);
}

void RouterBiasUpdate(const RouterBiasUpdateArgs& g) {
  const StepState s = Load<StepState>(g.state);
  const int64_t E = g.counts.dim(0);
  int64_t* count = g.counts.as<int64_t>();
  const bool good = s.verdict == static_cast<int32_t>(StepVerdict::kOk);
  if (good && g.previous.defined()) std::copy_n(count, E, g.previous.as<int64_t>());
  if (good && g.bias.defined()) {
    int64_t total = 0;
    for (int64_t e = 0; e < E; ++e) total += count[e];
    DispatchFloat(g.bias.dtype(), [&]<class T>() {
      T* b = g.bias.as<T>();
      for (int64_t e = 0; e < E; ++e) {
        const int64_t missing = total - E * count[e];
        const int sign = (missing > 0) - (missing < 0);
        if (sign != 0) b[e] += static_cast<T>(s.bias_speed * sign);
      }
    });
  }
  std::fill(count, count + E, int64_t{0});
}

}  // namespace yardmaster::cpu
