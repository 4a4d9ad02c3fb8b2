// File: src/nn/rope.h
//
// Rotary position tables (Su et al., arXiv 2104.09864) with YaRN (Peng et al., arXiv 2309.00071), as Hugging
// Face computes them for deepseek_v3. Everything is computed in double and rounded once.
//   plain:  freq_i = theta^(-2i / P)
//   YaRN:   freq_i = theta^(-2i / P) * ((1 - r_i) + r_i / factor), with a ramp r that is 0 for fast pairs
//   (they turn more than
//           beta_fast times in the original context and keep their frequency) and 1 for slow ones (fewer than
//           beta_slow)
#pragma once

#include <vector>

#include "src/config/model_config.h"
#include "src/device/device.h"

namespace yardmaster {

// P/2 inverse frequencies.
std::vector<double> RopeFrequencies(const ModelConfig& config);
// What multiplies cos and sin: mscale(factor, mscale) / mscale(factor, mscale_all_dim), or mscale(factor, 1)
// when one of the two is 0 (Hugging Face's rule); mscale(f, m) = 0.1 m ln f + 1 for f > 1, else 1. 1 without
// YaRN.
double RopeMagnitude(const ModelConfig& config);
// qk_head_dim^-1/2, times mscale(factor, mscale_all_dim)^2 with YaRN when mscale_all_dim != 0.
double AttentionScale(const ModelConfig& config);

// [positions, P/2, 2] of (cos, sin), F32 or F64.
HostTensor RopeTable(const ModelConfig& config, int64_t positions, DType dtype);

}  // namespace yardmaster
