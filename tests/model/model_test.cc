// The model as a whole: memory, repeatability, accumulation, evaluation, documents, hooks.
#include "tests/catch.h"
#include "tests/model/tiny_model.h"

namespace yardmaster {
namespace {

using namespace testing;

TEST_CASE("a dry micro-batch needs exactly the memory of a real one") {
  const auto device = OneThread();
  for (const ComputeTypes types : {kFloat, kDouble, kFp8Block, kFp8Wire, kMxfp8}) {
    StandaloneModel model(TinyConfig(), {.types = types, .B = 2, .S = 5, .logits = true, .poison = true},
                          *device);
    const Batch batch = RandomBatch(10, 17, 3);
    Randomise(model, 1);
    model.SetBatch(batch.tokens, batch.targets);
    const ForwardTaps taps{.hidden = {}, .routing = {}, .logits = model.logits()};
    model.Forward(&taps);
    CHECK(model.micro_batch().saved->top() > 0);
    model.Backward();
    CHECK(model.micro_batch().saved->top() == 0);
    CHECK(model.context().work.top() == 0);
    CHECK(model.used() == model.planned());
    CHECK(model.planned().saved > 0);
    CHECK(model.planned().work > 0);
    CHECK(model.planned().grads > 0);
  }
}

TEST_CASE("the same micro-batch twice gives the same bits") {
  const auto device = MakeCpuDevice({.threads = 2});
  StandaloneModel model(TinyConfig(), {.types = kFloat, .B = 3, .S = 7, .poison = true}, *device);
  Randomise(model, 1);
  const Batch batch = RandomBatch(21, 17, 3);
  model.SetBatch(batch.tokens, batch.targets);
  std::vector<double> gradients;
  double loss = 0;
  for (int run = 0; run < 2; ++run) {
    model.BeginStep();
    model.Forward();
    model.Backward();
    if (run == 1) {
      CHECK(model.loss() == loss);
      CHECK(SameBits(AllGradients(model), gradients));
    }
    loss = model.loss();
    gradients = AllGradients(model);
  }
}

TEST_CASE("in a recipe: the bits of copies made once are those of copies made anew in every product") {
  const auto device = MakeCpuDevice({.threads = 2});
  for (const ModelConfig& config : {TinyConfig(), TinyGqaConfig("qwen3_moe")}) {
    for (const ComputeTypes types : {kFp8Block, kFp8Wire, kMxfp8}) {
      StandaloneModel model(config, {.types = types, .B = 3, .S = 7, .poison = true}, *device);
      Randomise(model, 1);
      const Batch batch = RandomBatch(21, 17, 3);
      model.SetBatch(batch.tokens, batch.targets);
      const auto run = [&] {
        model.BeginStep();
        model.Forward();
        model.Backward();
        return std::pair{model.loss(), AllGradients(model)};
      };
      const auto once = run();
      int quantised = 0;
      for (const auto& p : model.registry().parameters()) {
        quantised += p->copies.defined();
        p->copies = {};  // from here on every product quantises the weight itself
      }
      CHECK(quantised > 8);
      const auto anew = run();
      CHECK(once.first == anew.first);
      CHECK(SameBits(once.second, anew.second));
      CHECK(std::isfinite(once.first));
    }
  }
}

// Forward and backward from weights drawn anew; the arenas hold what was planned, and nothing stays in them.
void RunStep(StandaloneModel& model, const Batch& batch) {
  Randomise(model, 1);
  model.SetBatch(batch.tokens, batch.targets);
  model.BeginStep();
  model.Forward();
  model.Backward();
  CHECK(model.used() == model.planned());
  CHECK(model.micro_batch().saved->top() == 0);
  CHECK(model.context().work.top() == 0);
}

// Each family, a module of multi-token prediction, and what recomputing frees.
TEST_CASE("what backward computes again gives the same bits and saves memory") {
  const auto device = MakeCpuDevice({.threads = 2});
  ModelConfig with_mtp = TinyConfig();
  with_mtp.num_nextn_predict_layers = 1;
  ModelConfig plain_queries = TinyConfig();
  plain_queries.q_lora_rank = 0;
  const std::vector<std::pair<ModelConfig, ComputeTypes>> cases = {
      {TinyConfig(), kFloat},    {with_mtp, kFloat},
      {plain_queries, kFloat},   {TinyGqaConfig("qwen3_moe"), kFloat},
      {TinyConfig(), kFp8Block}, {plain_queries, kMxfp8}};
  for (const auto& [config, types] : cases) {
    const Batch batch = RandomBatch(21, 17, 3);
    std::vector<double> gradients;
    double loss = 0;
    size_t saved = 0;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kNorms, Recompute::kProjections}) {
      StandaloneModel model(
          config, {.types = types, .B = 3, .S = 7, .poison = true, .how = {.recompute = recompute}}, *device);
      RunStep(model, batch);
      if (recompute == Recompute::kNone) {
        gradients = AllGradients(model);
        loss = model.loss();
      } else {
        CHECK(model.loss() == loss);
        CHECK(SameBits(AllGradients(model), gradients));
        // Queries, keys and values of grouped-query attention are saved in any case.
        CHECK((recompute == Recompute::kNorms || config.IsMla() ? model.planned().saved < saved
                                                                : model.planned().saved == saved));
      }
      saved = model.planned().saved;
      CHECK(model.Evaluate() == loss);
    }
  }
}

// What an arena takes for it.
size_t Aligned(int64_t bytes) { return static_cast<size_t>((bytes + 255) / 256 * 256); }

// An input of C columns in 8 bits instead of F32: what is saved less.
size_t Freed(const QuantFormat& format, int64_t T, int64_t C) {
  const Shape scales = ScalesOf(format, {C, PaddedRows(T, 1)});
  return Aligned(T * C * 4) - Aligned(C * PaddedRows(T, 1)) - Aligned(scales.elements() * DTypeBytes(format.scale_type()));
}

TEST_CASE("inputs of linear layers kept in 8 bits: the same bits, and as much memory less as their copies are smaller") {
  const auto device = MakeCpuDevice({.threads = 2});
  ModelConfig with_mtp = TinyConfig(), plain_queries = TinyConfig();
  with_mtp.num_nextn_predict_layers = 1;
  plain_queries.q_lora_rank = 0;
  const int64_t B = 4, S = 64, T = B * S;
  const ComputeTypes exact{DType::kF32, DType::kF32, {QuantFormat{QuantKind::kFp8Block, false}}};
  for (const auto& [config, types] : std::vector<std::pair<ModelConfig, ComputeTypes>>{
           {TinyConfig(), kFp8Block}, {with_mtp, kMxfp8}, {plain_queries, exact}, {TinyGqaConfig("mixtral"), kFp8Block}, {TinyConfig(), kFp8Wire}}) {
    const Batch batch = RandomBatch(T, 17, 3);
    std::vector<double> gradients[2];
    double loss[2], evaluated[2];
    size_t saved[2];
    for (const bool copies : {false, true}) {
      StandaloneModel model(config, {.types = types, .B = B, .S = S, .poison = true, .how = {.saved_copies = copies}}, *device);
      RunStep(model, batch);
      gradients[copies] = AllGradients(model), loss[copies] = model.loss(), saved[copies] = model.planned().saved;
      evaluated[copies] = model.Evaluate();
    }
    CHECK(loss[1] == loss[0]);
    CHECK(evaluated[1] == loss[0]);
    CHECK(SameBits(gradients[1], gradients[0]));
    // The input of attention and latents of every layer, that of a dense layer's MLP.
    const QuantFormat format = *types.recipe.format;
    const int64_t D = config.hidden_size, layers = config.num_hidden_layers + config.num_nextn_predict_layers;
    size_t freed = static_cast<size_t>(layers) * Freed(format, T, D) + static_cast<size_t>(config.first_k_dense_replace) * Freed(format, T, D);
    if (config.IsMla()) freed += static_cast<size_t>(layers) * Freed(format, T, config.kv_lora_rank);
    if (config.IsMla() && config.q_lora_rank > 0) freed += static_cast<size_t>(layers) * Freed(format, T, config.q_lora_rank);
    CHECK(saved[0] - saved[1] == freed);
  }
}

TEST_CASE("rows that travel in 8 bits: the forward of rows that are quantised on arrival, bit for bit") {
  const auto device = MakeCpuDevice({.threads = 2});
  const Batch batch = RandomBatch(21, 17, 3);
  std::vector<double> losses, gradients[2];
  for (const ComputeTypes types : {kFp8Block, kFp8Wire}) {
    StandaloneModel model(TinyConfig(), {.types = types, .B = 3, .S = 7, .poison = true}, *device);
    Randomise(model, 1);
    model.SetBatch(batch.tokens, batch.targets);
    model.BeginStep();
    model.Forward();
    model.Backward();
    gradients[losses.size()] = AllGradients(model);
    losses.push_back(model.loss());
  }
  CHECK(losses[0] == losses[1]);
  // Weight gradients of experts see x and dy quantised along both axes: the same codes but for the smallest.
  CHECK(Difference(gradients[1], gradients[0]) < 0.01);
}

TEST_CASE("two micro-batches sum to one of double size") {
  const auto device = OneThread();
  StandaloneModel one(TinyConfig(), {.types = kDouble, .B = 1, .S = 7, .poison = true}, *device);
  StandaloneModel two(TinyConfig(), {.types = kDouble, .B = 2, .S = 7, .poison = true}, *device);
  Randomise(one, 1);
  Randomise(two, 1);
  const Batch batch = RandomBatch(14, 17, 3);
  two.SetBatch(batch.tokens, batch.targets);
  two.Forward();
  two.Backward();
  one.BeginStep();
  for (int half = 0; half < 2; ++half) {
    const auto part = [&](const std::vector<int32_t>& v) {
      return std::vector<int32_t>(v.begin() + 7 * half, v.begin() + 7 * half + 7);
    };
    one.SetBatch(part(batch.tokens), part(batch.targets));
    one.micro_batch().grad_scale = 1.0 / 14;
    one.Forward();
    one.Backward();
  }
  CHECK(one.valid() == 14);
  CHECK(one.loss() == Approx(two.loss()).epsilon(1e-12));
  CHECK(Difference(AllGradients(one), AllGradients(two)) < 1e-10);
  const auto load = [](StandaloneModel& m) {
    const Tensor counts = m.model().load_counts();
    return std::vector<int64_t>(counts.as<int64_t>(), counts.as<int64_t>() + counts.elements());
  };
  CHECK(load(one) == load(two));
}

TEST_CASE("evaluation gives the training loss and changes nothing") {
  const auto device = OneThread();
  StandaloneModel model(TinyConfig(), {.types = kFloat, .B = 2, .S = 6, .poison = true}, *device);
  Randomise(model, 1);
  const Batch batch = RandomBatch(12, 17, 3);
  model.SetBatch(batch.tokens, batch.targets);
  model.Forward();
  model.Backward();
  const double loss = model.loss();
  const std::vector<double> gradients = AllGradients(model);
  const Tensor counts = model.model().load_counts();
  const std::vector<int64_t> load(counts.as<int64_t>(), counts.as<int64_t>() + counts.elements());
  CHECK(model.Evaluate() == loss);
  CHECK(model.micro_batch().saved->top() == 0);
  CHECK(SameBits(AllGradients(model), gradients));
  CHECK(std::vector<int64_t>(counts.as<int64_t>(), counts.as<int64_t>() + counts.elements()) == load);

  StandaloneModel evaluation_only(
      TinyConfig(), {.types = kFloat, .B = 2, .S = 6, .gradients = false, .poison = true}, *device);
  Randomise(evaluation_only, 1);
  evaluation_only.SetBatch(batch.tokens, batch.targets);
  CHECK(evaluation_only.Evaluate() == loss);
  CHECK(evaluation_only.planned().grads == 0);
  CHECK(evaluation_only.planned().saved < model.planned().saved);
  CHECK(evaluation_only.used() == evaluation_only.planned());
  ModelConfig deeper = TinyConfig();
  deeper.num_hidden_layers = 6;
  const StandaloneModel deep(deeper, {.types = kFloat, .B = 2, .S = 6, .gradients = false}, *device);
  CHECK(deep.planned().saved == evaluation_only.planned().saved);  // a layer's part is released at once
}

TEST_CASE("documents kept apart are computed as if alone") {
  const auto device = OneThread();
  const Batch batch = RandomBatch(9, 17, 3);
  const auto losses = [&](int64_t begin, int64_t end, bool apart) {
    const int64_t S = end - begin;
    StandaloneModel model(TinyConfig(), {.types = kDouble, .B = 1, .S = S, .attend_across_documents = !apart},
                          *device);
    Randomise(model, 1);
    model.SetBatch({batch.tokens.begin() + begin, batch.tokens.begin() + end},
                   {batch.targets.begin() + begin, batch.targets.begin() + end});
    if (apart) {
      std::vector<int32_t> start(static_cast<size_t>(S), 0);
      for (size_t t = 4; t < start.size(); ++t) start[t] = 4;
      model.SetDocumentStart(start);
    }
    return model.Evaluate() * static_cast<double>(S);
  };
  const double apart = losses(0, 9, true);
  CHECK(apart == Approx(losses(0, 4, false) + losses(4, 9, false)).epsilon(1e-12));
  CHECK(std::abs(apart - losses(0, 9, false)) > 1e-6);
}

TEST_CASE("routing can be forced and the routed experts' output dropped") {
  const auto device = OneThread();
  StandaloneModel model(TinyConfig(), {.types = kDouble, .B = 2, .S = 6, .poison = true}, *device);
  Randomise(model, 1);
  const Batch batch = RandomBatch(12, 17, 3);
  model.SetBatch(batch.tokens, batch.targets);
  std::vector<HostTensor> chosen(3);
  ForwardTaps taps;
  taps.routing = [&](int64_t layer, const Tensor& idx, const Tensor&) {
    chosen[static_cast<size_t>(layer)] = HostTensor(DType::kI32, idx.shape());
    std::memcpy(chosen[static_cast<size_t>(layer)].view().data(), idx.data(),
                static_cast<size_t>(idx.bytes()));
  };
  model.Forward(&taps);
  const double free_loss = model.loss();
  model.Backward();
  REQUIRE(chosen[1].shape() == Shape{12, 2});

  std::vector<Tensor> forced = {Tensor(), chosen[1].view(), chosen[2].view()};
  model.micro_batch().forced_routing = &forced;
  CHECK(model.Evaluate() == free_loss);
  for (int64_t t = 0; t < 12; ++t) {  // other experts: another loss
    chosen[2].as<int32_t>()[2 * t] = 0;
    chosen[2].as<int32_t>()[2 * t + 1] = 5;
  }
  CHECK(std::abs(model.Evaluate() - free_loss) > 1e-6);
  model.micro_batch().forced_routing = nullptr;

  model.micro_batch().zero_routed_experts = true;
  const double zeroed = model.Evaluate();
  CHECK(std::abs(zeroed - free_loss) > 1e-6);
  model.micro_batch().zero_routed_experts = false;
  for (const auto& p : model.registry().parameters()) {  // the same as experts that put out zero
    if (p->name.find("experts.down_proj") != std::string::npos && p->group == ParameterGroup::kExpert) {
      std::fill_n(p->master.as<double>(), p->master.elements(), 0.0);
    }
  }
  CHECK(model.Evaluate() == Approx(zeroed).epsilon(1e-14));
}

TEST_CASE("capacity drops are counted by layer, keep the residual, and end with training") {
  const auto device = OneThread();
  MoeConfig moe;
  moe.capacity_factor = 0.5;
  StandaloneModel model(TinyConfig(), {.types = kDouble, .B = 2, .S = 6, .moe = moe, .poison = true},
                        *device);
  StandaloneModel dropless(TinyConfig(), {.types = kDouble, .B = 2, .S = 6}, *device);
  Randomise(model, 1);
  Randomise(dropless, 1);
  const Batch batch = RandomBatch(12, 17, 3);
  model.SetBatch(batch.tokens, batch.targets);
  dropless.SetBatch(batch.tokens, batch.targets);
  model.Forward();
  model.Backward();
  dropless.Forward();
  dropless.Backward();
  const Tensor sums = model.accumulators().sums;
  for (int64_t m = 1; m <= 2; ++m) {
    const double dropped = sums.as<double>()[m * kStepSums + kDroppedPairs];
    CHECK(dropped >= 12 * 2 - 6 * 2);  // 6 experts keep at most 12 * 2 / 6 / 2 = 2 pairs each
    CHECK(dropped < 24);
    CHECK(dropless.accumulators().sums.as<double>()[m * kStepSums + kDroppedPairs] == 0);
    int64_t load = 0;  // counted before the drop
    for (int64_t e = 0; e < 6; ++e) load += model.model().load_counts().At(m - 1).as<int64_t>()[e];
    CHECK(load == 24);
  }
  CHECK(std::abs(model.loss() - dropless.loss()) > 1e-6);
  CHECK(model.Evaluate() == dropless.Evaluate());
  MoeConfig none;
  none.capacity_factor = 1e-9;  // one pair for each expert
  StandaloneModel one(TinyConfig(), {.types = kDouble, .B = 2, .S = 6, .moe = none, .poison = true}, *device);
  Randomise(one, 1);
  one.SetBatch(batch.tokens, batch.targets);
  one.Forward();
  CHECK(one.accumulators().sums.as<double>()[kStepSums + kDroppedPairs] >= 24 - 6);
}

TEST_CASE("forced routing balances or skews the load of every layer") {
  const auto device = OneThread();
  MoeConfig moe;
  moe.force_routing = "balanced";
  StandaloneModel balanced(TinyConfig(), {.types = kFloat, .B = 2, .S = 6, .moe = moe}, *device);
  moe.force_routing = "skewed";
  moe.force_skew = 2;
  StandaloneModel skewed(TinyConfig(), {.types = kFloat, .B = 2, .S = 6, .moe = moe}, *device);
  const Batch batch = RandomBatch(12, 17, 3);
  for (StandaloneModel* model : {&balanced, &skewed}) {
    Randomise(*model, 1);
    model->SetBatch(batch.tokens, batch.targets);
    model->Forward();
    model->Backward();
    for (int64_t m = 0; m < 2; ++m) {
      const int64_t* load = model->model().load_counts().At(m).as<int64_t>();
      CHECK(load[0] == (model == &balanced ? 4 : 8));
    }
  }
}

TEST_CASE("parameters are named once, in order, with groups and decay classes") {
  const auto device = OneThread();
  StandaloneModel model(TinyConfig(), {.types = kFloat, .B = 1, .S = 2}, *device);
  const auto& list = model.registry().parameters();
  CHECK(list.front()->name == "model.embed_tokens.weight");
  CHECK(list.front()->decay == DecayClass::kEmbedding);
  CHECK(list.back()->name == "lm_head.weight");
  const Parameter* experts = model.registry().list().Find("model.layers.1.mlp.experts.gate_up_proj");
  REQUIRE(experts != nullptr);
  CHECK(experts->group == ParameterGroup::kExpert);
  CHECK(experts->spec.global_shape == Shape{6, 8, 10});
  REQUIRE(model.registry().list().Find("model.layers.0.mlp.gate_up_proj") != nullptr);
  CHECK(model.registry().list().Find("model.layers.0.mlp.gate_up_proj")->spec.global_shape == Shape{14, 10});
  CHECK(
      model.registry().list().Find("model.layers.2.mlp.shared_experts.down_proj.weight")->spec.global_shape ==
      Shape{10, 8});
  CHECK(model.registry().list().Find("model.norm.weight")->decay == DecayClass::kNorm);
  REQUIRE(model.registry().buffers().size() == 2);
  CHECK(model.registry().buffers()[1]->name == "model.layers.2.mlp.gate.e_score_correction_bias");
  CHECK(model.registry().State().size() == list.size() + 2);
  CHECK(model.model().moe_layers() == std::vector<int64_t>{1, 2});
}

TEST_CASE("what the model does not compute is refused by name") {
  const auto device = OneThread();
  const auto message = [&](auto&& change) -> std::string {
    ModelConfig c = TinyConfig();
    change(c);
    try {
      StandaloneModel model(c, {.types = kFloat, .B = 1, .S = 2}, *device);
    } catch (const Error& e) {
      CHECK(e.code() == ExitCode::kConfig);
      return e.what();
    }
    return "accepted";
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(message([](ModelConfig& c) { c.num_nextn_predict_layers = -1; }), "num_nextn_predict_layers"));
  CHECK(has(message([](ModelConfig& c) { c.scoring_func = "tanh"; }), "tanh"));
  CHECK(has(message([](ModelConfig& c) { c.topk_method = "dice"; }), "dice"));
  CHECK(has(message([](ModelConfig& c) { c.model_type = "llama"; }), "llama"));
  CHECK(has(message([](ModelConfig& c) { c.n_group = 4; }), "n_group"));
  CHECK(has(message([](ModelConfig& c) { c.num_experts_per_tok = 5; }), "num_experts_per_tok"));
  CHECK(has(message([](ModelConfig& c) { c.qk_rope_head_dim = 3; }), "qk_rope_head_dim"));
  CHECK(message([](ModelConfig&) {}) == "accepted");
}

}  // namespace
}  // namespace yardmaster
