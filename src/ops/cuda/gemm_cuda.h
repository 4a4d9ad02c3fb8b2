// File: src/ops/cuda/gemm_cuda.h
#pragma once

#include <string>

#include "src/ops/gemm.h"

namespace yardmaster::cuda {

void Gemm(const Stream& stream, const GemmArgs& args);  // arguments checked, m and n not 0
std::string GemmAlgorithms(const Stream& stream);

}  // namespace yardmaster::cuda
