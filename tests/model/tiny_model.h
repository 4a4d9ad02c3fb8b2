// File: tests/model/tiny_model.h
//
// A DeepSeek-V3-shaped model of a few hundred parameters per tensor, with every feature of the architecture.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "src/base/philox.h"
#include "src/model/standalone.h"

namespace yardmaster::testing {

// One dense layer and two MoE layers: grouped routing, shared experts, low-rank queries, YaRN.
inline ModelConfig TinyConfig() {
  ModelConfig c;
  c.vocab_size = 17;
  c.hidden_size = 10;
  c.num_hidden_layers = 3;
  c.first_k_dense_replace = 1;
  c.intermediate_size = 7;
  c.initializer_range = 0.3;
  c.num_attention_heads = 2;
  c.q_lora_rank = 5;
  c.kv_lora_rank = 4;
  c.qk_nope_head_dim = 3;
  c.qk_rope_head_dim = 4;
  c.v_head_dim = 5;
  c.rope_scaling =
      RopeScaling{.factor = 8, .original_max_position_embeddings = 16, .mscale = 1, .mscale_all_dim = 0.5};
  c.n_routed_experts = 6;
  c.num_experts_per_tok = 2;
  c.n_shared_experts = 2;
  c.moe_intermediate_size = 4;
  c.n_group = 3;
  c.topk_group = 2;
  c.routed_scaling_factor = 2.5;
  return c;
}

// Grouped-query attention (4 heads on 2), softmax router, no dense layer.
inline ModelConfig TinyGqaConfig(const char* family) {
  ModelConfig c;
  c.model_type = family;
  FamilyDefaults(c);
  c.vocab_size = 17;
  c.hidden_size = 10;
  c.num_hidden_layers = 2;
  c.initializer_range = 0.3;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 6;
  c.n_routed_experts = 6;
  c.num_experts_per_tok = 2;
  c.moe_intermediate_size = 4;
  return c;
}

constexpr ComputeTypes kDouble{DType::kF64, DType::kF64};
constexpr ComputeTypes kFloat{DType::kF32, DType::kF32};

constexpr ComputeTypes kFp8Block{DType::kF32, DType::kF32, {QuantFormat{QuantKind::kFp8Block, true}}};
constexpr ComputeTypes kFp8Wire{
    DType::kF32, DType::kF32, {QuantFormat{QuantKind::kFp8Block, true}, /*quantised_dispatch=*/true}};
constexpr ComputeTypes kMxfp8{DType::kF32, DType::kF32, {QuantFormat{QuantKind::kMxfp8}}};

inline std::unique_ptr<Device> OneThread() { return MakeCpuDevice({.threads = 1}); }

// On the cpu device: every parameter random, norms around 1; the routers' biases random too.
inline void Randomise(StandaloneModel& model, uint64_t seed) {
  InitialiseParameters(model.registry().list(), seed, model.device());
  const auto add = [&](const Tensor& x, const std::string& name, double size) {
    DispatchFloat(x.dtype(), [&]<class T>() {
      for (int64_t i = 0; i < x.elements(); ++i) {
        x.as<T>()[i] +=
            static_cast<T>(size * PhiloxNormal(seed + 1, StreamOf(name.c_str()), static_cast<uint64_t>(i)));
      }
    });
  };
  for (const auto& p : model.registry().parameters()) {
    if (p->init == InitKind::kOnes) add(p->master, p->name, 0.1);
  }
  for (const auto& b : model.registry().buffers()) {
    if (b->dtype != DType::kI64) add(b->value, b->name, 0.05);
  }
}

struct Batch {
  std::vector<int32_t> tokens, targets;
};
inline Batch RandomBatch(int64_t T, int64_t vocab, uint64_t seed) {
  Batch batch;
  for (int64_t t = 0; t < T; ++t) {
    const auto u = [&](uint64_t stream) {
      return static_cast<int32_t>(PhiloxUniform(seed, stream, static_cast<uint64_t>(t)) *
                                  static_cast<double>(vocab));
    };
    batch.tokens.push_back(u(1));
    batch.targets.push_back(u(2));
  }
  return batch;
}

inline std::vector<double> Values(const Tensor& x) {
  std::vector<double> out(static_cast<size_t>(x.elements()));
  DispatchFloat(x.dtype(), [&]<class T>() {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(x.as<T>()[i]);
  });
  return out;
}

// All gradients, parameter after parameter.
inline std::vector<double> AllGradients(StandaloneModel& model) {
  std::vector<double> all;
  for (const auto& p : model.registry().parameters()) {
    const std::vector<double> g = Values(p->grad);
    all.insert(all.end(), g.begin(), g.end());
  }
  return all;
}

inline bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

// Largest difference over the largest of `b`; infinite where there is nothing to compare.
inline double Difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double difference = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= difference)) difference = std::abs(a[i] - b[i]);
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

}  // namespace yardmaster::testing
