// The numbers come from transformers 5.17 (_compute_yarn_parameters, yarn_apply_mscale of
// modeling_deepseek_v3).
#include "src/nn/rope.h"

#include <cmath>

#include "tests/catch.h"

namespace yardmaster {
namespace {

ModelConfig Config(int64_t P, int64_t nope, RopeScaling scaling) {
  ModelConfig c;
  c.qk_rope_head_dim = P;
  c.qk_nope_head_dim = nope;
  c.rope_theta = 10000;
  c.rope_scaling = scaling;
  return c;
}

TEST_CASE("YaRN of DeepSeek-V3") {
  const ModelConfig c = Config(
      64, 128, {.factor = 40, .original_max_position_embeddings = 4096, .mscale = 1, .mscale_all_dim = 1});
  const std::vector<double> f = RopeFrequencies(c);
  const std::vector<double> expected = {1,
                                        0.7498942,
                                        0.5623413,
                                        0.4216965,
                                        0.3162278,
                                        0.2371374,
                                        0.1778279,
                                        0.1333521,
                                        0.1,
                                        0.07498942,
                                        0.05623413,
                                        0.03900693,
                                        0.02687936,
                                        0.01837814,
                                        0.01244796,
                                        0.008334509,
                                        0.0055,
                                        0.003561997,
                                        0.002249365,
                                        0.001370513,
                                        0.0007905694,
                                        0.0004149904,
                                        0.0001778279,
                                        3.333803e-05,
                                        2.5e-05,
                                        1.874735e-05,
                                        1.405853e-05,
                                        1.054241e-05,
                                        7.905694e-06,
                                        5.928434e-06,
                                        4.445698e-06,
                                        3.333804e-06};
  REQUIRE(f.size() == expected.size());
  for (size_t i = 0; i < f.size(); ++i) {
    INFO(i);
    CHECK(f[i] == Approx(expected[i]).epsilon(1e-6));
  }
  CHECK(RopeMagnitude(c) == 1);
  CHECK(AttentionScale(c) == Approx(0.1352337788608801).epsilon(1e-14));
}

TEST_CASE("YaRN where both magnitudes matter") {
  const ModelConfig c = Config(16, 128,
                               {.factor = 4,
                                .original_max_position_embeddings = 32,
                                .beta_fast = 16,
                                .beta_slow = 2,
                                .mscale = 0.7,
                                .mscale_all_dim = 0.4});
  const std::vector<double> expected = {1,      0.07905694,   0.025,   0.007905695,
                                        0.0025, 0.0007905695, 0.00025, 7.905695e-05};
  const std::vector<double> f = RopeFrequencies(c);
  REQUIRE(f.size() == expected.size());
  for (size_t i = 0; i < f.size(); ++i) CHECK(f[i] == Approx(expected[i]).epsilon(1e-6));
  CHECK(RopeMagnitude(c) == Approx(1.0394038191422568).epsilon(1e-14));
  CHECK(AttentionScale(c) == Approx(0.09283153734822229).epsilon(1e-14));
}

TEST_CASE("without mscale_all_dim the factor alone sets the magnitude") {
  const ModelConfig c =
      Config(64, 128,
             {.factor = 40, .original_max_position_embeddings = 4096, .mscale = 0.707, .mscale_all_dim = 0});
  CHECK(RopeMagnitude(c) == Approx(1.3688879454113936).epsilon(1e-14));
  CHECK(AttentionScale(c) == Approx(1 / std::sqrt(192.0)).epsilon(1e-14));
}

TEST_CASE("the table holds cosine and sine of position times frequency") {
  ModelConfig c = Config(4, 4, {});
  c.rope_scaling.reset();
  CHECK(RopeMagnitude(c) == 1);
  const HostTensor table = RopeTable(c, 5, DType::kF64);
  REQUIRE(table.shape() == Shape{5, 2, 2});
  const double* t = table.as<double>();
  CHECK(t[0] == 1);
  CHECK(t[1] == 0);
  CHECK(t[(3 * 2 + 0) * 2] == Approx(std::cos(3.0)));
  CHECK(t[(3 * 2 + 1) * 2 + 1] == Approx(std::sin(0.03)));  // theta^(-2/4) = 1/100
  CHECK(RopeTable(c, 5, DType::kF32).as<float>()[13] == Approx(t[13]));
}

}  // namespace
}  // namespace yardmaster
