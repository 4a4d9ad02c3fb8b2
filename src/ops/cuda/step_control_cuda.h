// File: src/ops/cuda/step_control_cuda.h
#pragma once

#include "src/ops/step_control.h"

namespace yardmaster::cuda {

// Arguments checked.
void SumSquares(const Stream& stream, const std::vector<SumSquaresPart>& parts, int64_t chunk_rows);
void SumNormAddends(const Stream& stream, const std::vector<NormAddends>& parts);
void SumTileSquares(const Stream& stream, const Tensor& x, int64_t per_chunk, const Tensor& addends);
void JudgeStep(const Stream& stream, const JudgeStepArgs& args);
void FinishStep(const Stream& stream, int64_t tokens_of_step, const Tensor& state);
void RouterBiasUpdate(const Stream& stream, const RouterBiasUpdateArgs& args);

}  // namespace yardmaster::cuda
