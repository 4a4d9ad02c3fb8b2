#include "src/ops/step_control.h"

#include <cmath>

#include "src/config/schedule_config.h"
#include "src/ops/cpu/step_control_cpu.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/step_control_cuda.h"
#endif

namespace yardmaster {
namespace {

template <class S>
Shape BytesOf() {
  return {static_cast<int64_t>(sizeof(S))};
}

}  // namespace

double DeviceScheduleValue(const DeviceSchedule& s, int64_t tokens) {
  YM_CHECK(0 < s.num_segments && s.num_segments <= DeviceSchedule::kMaxSegments, "a schedule of ", s.num_segments, " segments");
  int64_t begin = 0;
  for (int i = 0; i < s.num_segments; ++i) {
    if (tokens < s.until_tokens[i]) {
      const double fraction = static_cast<double>(tokens - begin) / static_cast<double>(s.until_tokens[i] - begin);
      switch (static_cast<SegmentKind>(s.kind[i])) {
        case SegmentKind::kConstant: return s.from[i];
        case SegmentKind::kLinear: return s.from[i] + (s.to[i] - s.from[i]) * fraction;
        case SegmentKind::kCosine: return s.to[i] + (s.from[i] - s.to[i]) * 0.5 * (1 + std::cos(3.14159265358979323846 * fraction));
      }
    }
    begin = s.until_tokens[i];
  }
  return s.to[s.num_segments - 1];
}

int64_t NumNormChunks(const Shape& shape) {
  if (shape.rank() == 0 || shape.elements() == 0) return 0;
  const int64_t matrices = shape.rank() == 3 ? shape[0] : 1;
  const int64_t rows = shape.elements() / shape[-1] / matrices;
  return matrices * ((rows + cpu::kNormChunkRows - 1) / cpu::kNormChunkRows);
}

void SumSquares(const Stream& stream, const Tensor& x, const Tensor& partials) {
  SumSquaresMulti(stream, {{x, partials}});
}

void SumSquaresMulti(const Stream& stream, const std::vector<SumSquaresPart>& parts) {
  const OpArgs check(stream, "SumSquares");
  double bytes = 0;
  for (const auto& [x, partials] : parts) {
    check.Contiguous("x", x, check.ComputeType("x", x), x.shape());
    check.Contiguous("partials", partials, DType::kF64, {NumNormChunks(x.shape())});
    bytes += static_cast<double>(x.bytes());
  }
  check.Cost(0, bytes);
  if (stream.dry() || parts.empty()) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::SumSquares(stream, parts);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::SumSquares(stream, parts, cpu::kNormChunkRows);
#endif
  check.NoImplementation();
}

void SumNormAddends(const Stream& stream, const std::vector<NormAddends>& parts) {
  const OpArgs check(stream, "SumNormAddends");
  double bytes = 0;
  for (const auto& [addends, per_chunk, partials] : parts) {
    YM_CHECK_GE(per_chunk, 1);
    check.Rank("addends", addends, 1);
    check.Contiguous("addends", addends, DType::kF64, addends.shape());
    check.Contiguous("partials", partials, DType::kF64, {(addends.elements() + per_chunk - 1) / per_chunk});
    bytes += static_cast<double>(addends.bytes());
  }
  check.Cost(0, bytes);
  if (stream.dry() || parts.empty()) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::SumNormAddends(parts);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::SumNormAddends(stream, parts);
#endif
  check.NoImplementation();
}

void SumTileSquares(const Stream& stream, const Tensor& x, int64_t per_chunk, const Tensor& addends) {
  if (stream.target() == DeviceKind::kCpu) {  // its ops sum what SumSquares does
    YM_CHECK_EQ(per_chunk, 1);
    return SumSquares(stream, x, addends);
  }
  const OpArgs check(stream, "SumTileSquares");
  check.Contiguous("x", x, DType::kF32, x.shape());
  check.Contiguous("addends", addends, DType::kF64, {NumNormChunks(x.shape()) * per_chunk});
  check.Cost(0, static_cast<double>(x.bytes()));
  if (stream.dry() || x.elements() == 0) return;
#if YM_HAVE_CUDA
  return cuda::SumTileSquares(stream, x, per_chunk, addends);
#endif
  check.NoImplementation();
}

void JudgeStep(const Stream& stream, const JudgeStepArgs& g) {
  const OpArgs check(stream, "JudgeStep");
  check.Rank("partials", g.partials, 1);
  check.Contiguous("partials", g.partials, DType::kF64, g.partials.shape());
  check.Contiguous("loss_sum", g.loss_sum, DType::kF64, {1});
  check.Contiguous("learning_rate", g.learning_rate, DType::kU8, BytesOf<DeviceSchedule>());
  check.Contiguous("bias_speed", g.bias_speed, DType::kU8, BytesOf<DeviceSchedule>());
  check.Contiguous("state", g.state, DType::kU8, BytesOf<StepState>());
  if (stream.dry()) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::JudgeStep(g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::JudgeStep(stream, g);
#endif
  check.NoImplementation();
}

void FinishStep(const Stream& stream, int64_t tokens_of_step, const Tensor& state) {
  const OpArgs check(stream, "FinishStep");
  check.Contiguous("state", state, DType::kU8, BytesOf<StepState>());
  if (stream.dry()) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::FinishStep(tokens_of_step, state);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::FinishStep(stream, tokens_of_step, state);
#endif
  check.NoImplementation();
}

void RouterBiasUpdate(const Stream& stream, const RouterBiasUpdateArgs& g) {
  const OpArgs check(stream, "RouterBiasUpdate");
  check.Rank("counts", g.counts, 1);
  check.Contiguous("counts", g.counts, DType::kI64, g.counts.shape());
  if (g.bias.defined()) check.Contiguous("bias", g.bias, check.ComputeType("bias", g.bias), g.counts.shape());
  if (g.previous.defined()) check.Contiguous("previous", g.previous, DType::kI64, g.counts.shape());
  check.Contiguous("state", g.state, DType::kU8, BytesOf<StepState>());
  if (stream.dry()) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::RouterBiasUpdate(g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::RouterBiasUpdate(stream, g);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
