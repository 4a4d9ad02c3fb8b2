// File: src/ops/cpu/step_control_cpu.h
#pragma once

#include "src/ops/step_control.h"

namespace yardmaster::cpu {

inline constexpr int64_t kNormChunkRows = 128;

// Arguments checked.
void SumSquares(const Stream& stream, const std::vector<SumSquaresPart>& parts);
void SumNormAddends(const std::vector<NormAddends>& parts);
void JudgeStep(const JudgeStepArgs& args);
void FinishStep(int64_t tokens_of_step, const Tensor& state);
void RouterBiasUpdate(const RouterBiasUpdateArgs& args);

}  // namespace yardmaster::cpu
