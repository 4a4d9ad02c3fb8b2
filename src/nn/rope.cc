#include "src/nn/rope.h"

#include <algorithm>
#include <cmath>

namespace yardmaster {
namespace {

double MScale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

// The pair (as a real number) that turns `turns` times within the original context: solves
// context * theta^(-2i / P) = 2 pi turns for i.
double PairOfTurns(double turns, const ModelConfig& c, const RopeScaling& s) {
  const double context = static_cast<double>(s.original_max_position_embeddings);
  return static_cast<double>(c.rope_dim()) * std::log(context / (turns * 2 * 3.14159265358979323846)) /
         (2 * std::log(c.rope_theta));
}

}  // namespace

std::vector<double> RopeFrequencies(const ModelConfig& config) {
  const int64_t P = config.rope_dim();
  std::vector<double> freq(static_cast<size_t>(P / 2));
  for (int64_t i = 0; i < P / 2; ++i) {
    freq[static_cast<size_t>(i)] =
        std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(P));
  }
  if (!config.rope_scaling) return freq;
  const RopeScaling& s = *config.rope_scaling;
  const double low = std::max(std::floor(PairOfTurns(s.beta_fast, config, s)), 0.0);
  double high = std::min(std::ceil(PairOfTurns(s.beta_slow, config, s)), static_cast<double>(P - 1));
  if (high == low) high += 0.001;  // no division by zero: a step
  for (int64_t i = 0; i < P / 2; ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    freq[static_cast<size_t>(i)] *= (1 - ramp) + ramp / s.factor;
  }
  return freq;
}

double RopeMagnitude(const ModelConfig& config) {
  if (!config.rope_scaling) return 1;
  const RopeScaling& s = *config.rope_scaling;
  if (s.mscale == 0 || s.mscale_all_dim == 0) return MScale(s.factor, 1);
  return MScale(s.factor, s.mscale) / MScale(s.factor, s.mscale_all_dim);
}

double AttentionScale(const ModelConfig& config) {
  const double scale = 1 / std::sqrt(static_cast<double>(config.qk_head_dim()));
  if (!config.rope_scaling || config.rope_scaling->mscale_all_dim == 0) return scale;
  const double m = MScale(config.rope_scaling->factor, config.rope_scaling->mscale_all_dim);
  return scale * m * m;
}

HostTensor RopeTable(const ModelConfig& config, int64_t positions, DType dtype) {
  const std::vector<double> freq = RopeFrequencies(config);
  const double magnitude = RopeMagnitude(config);
  const int64_t pairs = static_cast<int64_t>(freq.size());
  HostTensor table(dtype, {positions, pairs, 2});
  DispatchFloat(dtype, [&]<class T>() {
    T* out = table.as<T>();
    for (int64_t pos = 0; pos < positions; ++pos) {
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(pos) * freq[static_cast<size_t>(i)];
        *out++ = static_cast<T>(magnitude * std::cos(angle));
        *out++ = static_cast<T>(magnitude * std::sin(angle));
      }
    }
  });
  return table;
}

}  // namespace yardmaster
