// The whole training step on the GPU: recorded in a CUDA graph and replayed, timed, and across a resume.
#include <cstring>

#include "src/comm/ep/local_dispatcher.h"
#include "src/ops/elementwise.h"
#include "src/train/engine.h"
#include "src/train/loop.h"
#include "tests/cuda/gpu.h"
#include "tests/train/small_run.h"

namespace yardmaster::testing {
namespace {

struct RecipeCase {
  const char *name, *compute, *payload;
};
constexpr RecipeCase kRecipes[] = {{"mxfp8", "mxfp8", "compute"},
                                   {"fp8_block", "fp8_block", "compute"},
                                   {"fp8_block rows", "fp8_block", "recipe"}};

// Widths that take 16-byte accesses, the Hopper grouped GEMM and cuDNN; BF16.
std::vector<std::string> Overrides(std::vector<std::string> more) {
  std::vector<std::string> all = {"runtime.device=cuda",
                                  "precision.compute=bf16",
                                  "model.hidden_size=128",
                                  "model.intermediate_size=256",
                                  "model.num_attention_heads=4",
                                  "model.q_lora_rank=64",
                                  "model.kv_lora_rank=64",
                                  "model.qk_nope_head_dim=128",
                                  "model.qk_rope_head_dim=64",
                                  "model.v_head_dim=128",
                                  "model.n_routed_experts=12",
                                  "model.num_experts_per_tok=4",
                                  "model.moe_intermediate_size=64",
                                  "train.sequence_length=64"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

HostBatch RandomBatch(int64_t micro_batches, int64_t tokens_of_one, int64_t S, uint64_t seed) {
  HostBatch batch;
  batch.micro_batches = micro_batches;
  for (int64_t i = 0; i < micro_batches * tokens_of_one; ++i) {
    const auto token = [&](int64_t at) {
      return static_cast<int32_t>(Philox4x32(seed, 1, static_cast<uint64_t>(at))[0] % 257);
    };
    batch.tokens.push_back(token(i));
    batch.targets.push_back(i % S == S - 1 ? -1 : token(i + 1));
    batch.positions.push_back(static_cast<int32_t>(i % S));
    batch.document_start.push_back(0);
  }
  return batch;
}

class Trainer {
 public:
  explicit Trainer(std::vector<std::string> overrides)
      : config_(SmallRun("nowhere", "run", Overrides(std::move(overrides))).loaded.config),
        device_(MakeCudaDevice({})),
        dispatcher_(config_.model.n_routed_experts, config_.model.num_experts_per_tok),
        engine_(EngineMode::kTraining, config_, groups(), &dispatcher_, device_.get(),
                Engine::Plan(EngineMode::kTraining, config_, groups(), &dispatcher_, DeviceKind::kCuda)) {
    engine_.Initialise(7);
  }
  Engine& engine() { return engine_; }

  void Step(int64_t micro_batches, uint64_t seed) {
    const HostBatch batch =
        RandomBatch(micro_batches, engine_.micro_batch_tokens(), config_.train.sequence_length, seed);
    engine_.Stage(batch);
    engine_.Step(micro_batches, micro_batches * engine_.micro_batch_tokens());
  }
  // All that a checkpoint would hold.
  std::string State() {
    std::string all;
    for (const StateTensor& t : engine_.SavedState()) {
      std::string bytes(static_cast<size_t>(t.tensor.bytes()), '\0');
      device_->CopyToHost(bytes.data(), t.tensor.data(), bytes.size());
      all += bytes;
    }
    return all;
  }

  std::vector<float> Values(const Tensor& f32) {
    std::vector<float> values(static_cast<size_t>(f32.elements()));
    device_->CopyToHost(values.data(), f32.data(), values.size() * sizeof(float));
    return values;
  }

 private:
  Groups groups() { return {self_.get(), self_.get(), self_.get()}; }

  Config config_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> self_ = MakeSelfCommunicator("self");
  LocalDispatcher dispatcher_;
  Engine engine_;
};

bool SameState(const StepState& a, const StepState& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

TEST_CASE("gpu step: a replayed step has the bits of an eager one, with new counts and a growing batch") {
  YM_NEEDS_GPU();
  const std::vector<int64_t> micro_batches = {1, 1, 1, 1, 2, 2, 2};
  const std::vector<std::string> ramp = {"train.global_batch_size=4"};
  Trainer replayed(ramp);
  std::vector<std::string> eager_settings = ramp;
  eager_settings.push_back("runtime.cuda_graph=false");
  Trainer eager(eager_settings), again(ramp);
  std::vector<std::vector<int64_t>> last_load;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    INFO("step " << i + 1);
    std::vector<StepReport> reports;
    for (Trainer* t : {&replayed, &eager, &again}) {
      t->Step(micro_batches[i], 100 + i);
      reports.push_back(std::move(t->engine().TakeReports().at(0)));
    }
    CHECK(replayed.engine().replayed() == (i != 0 && i != 4));
    CHECK_FALSE(eager.engine().replayed());
    CHECK(reports[0].state.verdict == 0);
    CHECK(reports[0].state.step == static_cast<int64_t>(i) + 1);
    CHECK(SameState(reports[0].state, reports[1].state));
    CHECK(SameState(reports[0].state, reports[2].state));
    CHECK(reports[0].load == reports[1].load);
    CHECK(reports[0].sums == reports[1].sums);
    CHECK(reports[0].load != last_load);  // what is replayed is not the same step
    last_load = reports[0].load;
  }
  CHECK(replayed.engine().recordings() == 2);
  CHECK(eager.engine().recordings() == 0);
  const std::string state = replayed.State();
  CHECK((state == eager.State()));
  CHECK((state == again.State()));
}

TEST_CASE("gpu step: several replays before the host looks; a timed step between them changes nothing") {
  YM_NEEDS_GPU();
  Trainer each({"train.global_batch_size=2"});
  Trainer late({"train.global_batch_size=2", "ep.overflow_check_every_n_steps=6"});
  std::vector<StepReport> expected;
  for (uint64_t i = 0; i < 6; ++i) {
    each.Step(1, i);
    expected.push_back(std::move(each.engine().TakeReports().at(0)));
    if (i == 3) late.engine().TimeNextStep();
    late.Step(1, i);
    CHECK(late.engine().replayed() == (i != 0 && i != 3));
  }
  std::vector<StepReport> reports = late.engine().TakeReports(/*running=*/2);
  REQUIRE(reports.size() == 4);
  for (StepReport& report : late.engine().TakeReports()) reports.push_back(std::move(report));
  REQUIRE(reports.size() == 6);
  for (size_t i = 0; i < 6; ++i) {
    INFO("step " << i + 1);
    CHECK(SameState(reports[i].state, expected[i].state));
    CHECK(reports[i].load == expected[i].load);
    CHECK(reports[i].bias_range == expected[i].bias_range);
    CHECK(reports[i].times.ops.empty() == (i != 3));
  }
  CHECK(late.engine().recordings() == 1);
  CHECK((late.State() == each.State()));

  const StepTimes& times = reports[3].times;
  double sum = 0;
  std::vector<std::string> missing = {"GroupedGemmForward", "GroupedGemmBackwardWeight",
                                      "AttentionBackward",  "Permute",
                                      "Unpermute",          "Gemm",
                                      "LinearCrossEntropy", "AdamWMulti",
                                      "RmsNormBackward"};
  for (const OpTime& op : times.ops) {
    CHECK(op.seconds >= 0);
    sum += op.seconds;
    std::erase(missing, op.op);
  }
  CHECK(missing.empty());
  CHECK(sum <= times.seconds * 1.001);  // one stream
}

TEST_CASE("gpu step: every implementation that a config can name gives the same training, nearly") {
  YM_NEEDS_GPU();
  std::vector<double> losses;
  for (const std::vector<std::string>& settings : {std::vector<std::string>{},
                                                   {"moe.gemm=portable"},
                                                   {"moe.gemm=loop", "runtime.cuda_graph=false"},
                                                   {"runtime.attention=unfused"},
                                                   {"runtime.deterministic=false"}}) {
    Trainer t(settings);
    for (uint64_t i = 0; i < 3; ++i)
      t.Step(1, i), losses.push_back(t.engine().TakeReports().at(0).state.loss);
  }
  for (size_t i = 3; i < losses.size(); ++i) CHECK(losses[i] == Approx(losses[i % 3]).epsilon(5e-3));
}

TEST_CASE("gpu recording: what cannot be recorded is an error, and the stream goes on") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 20, size_t{1} << 20);
  const Tensor x = gpu.Make(DType::kF32, {64});
  CHECK_THROWS_AS(gpu.device().Record(gpu.stream(), [&] { gpu.stream().Synchronize(); }), Error);
  CHECK_THROWS_AS(gpu.device().Record(gpu.stream(), [&] { gpu.device().Allocate(1024); }), Error);
  Fill(gpu.stream(), 3, x);
  CHECK(gpu.Values(x) == std::vector<double>(64, 3));
  const auto fill = gpu.device().Record(gpu.stream(), [&] { Fill(gpu.stream(), 5, x); });
  CHECK(gpu.Values(x) == std::vector<double>(64, 3));  // recorded, not run
  fill->Replay();
  CHECK(gpu.Values(x) == std::vector<double>(64, 5));
}

TEST_CASE("gpu step: a run stopped half-way and resumed is bit-identical, with a graph and without") {
  YM_NEEDS_GPU();
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  const auto train = [&](const std::string& name, std::vector<std::string> more) {
    REQUIRE(Train(SmallRun(temp.path(), name, Overrides(std::move(more))), nullptr) == 0);
  };
  train("straight", {});
  train("eager", {"runtime.cuda_graph=false"});
  train("halves", {"train.stop_at_step=6"});
  train("halves", {});
  const std::string straight = ShardBytes(temp.path(), "straight", 12);
  CHECK((ShardBytes(temp.path(), "eager", 12) == straight));
  CHECK((ShardBytes(temp.path(), "halves", 12) == straight));
}

TEST_CASE("gpu step: with 8-bit recipes too, and it trains as bf16 does, nearly") {
  YM_NEEDS_GPU();
  TempDir temp;
  WriteSmallDataset(temp.path() + "/text");
  const auto train = [&](const std::string& name, const RecipeCase& recipe, std::vector<std::string> more) {
    more.push_back(StrCat("precision.compute=", recipe.compute));
    more.push_back(StrCat("ep.payload=", recipe.payload));
    REQUIRE(Train(SmallRun(temp.path(), name, Overrides(std::move(more))), nullptr) == 0);
  };
  const auto last_loss = [&](const std::string& run) {
    const std::string line = MetricsLines(temp.path(), run)[11];
    return std::stod(line.substr(line.find("loss\":") + 6));
  };
  train("bf16", {"bf16", "bf16", "compute"}, {});
  for (const RecipeCase& recipe : kRecipes) {
    const std::string name = recipe.name;
    INFO(name);
    train(name, recipe, {});
    train(name + " eager", recipe, {"runtime.cuda_graph=false"});
    train(name + " halves", recipe, {"train.stop_at_step=6"});
    train(name + " halves", recipe, {});
    const std::string straight = ShardBytes(temp.path(), name, 12);
    CHECK((ShardBytes(temp.path(), name + " eager", 12) == straight));
    CHECK((ShardBytes(temp.path(), name + " halves", 12) == straight));
    CHECK(last_loss(name) == Approx(last_loss("bf16")).epsilon(0.02));
    CHECK(last_loss(name) != last_loss("bf16"));
  }
}

TEST_CASE("gpu step: the norm is that of the gradients, though experts' are not read for it") {
  YM_NEEDS_GPU();
  for (const char* compute : {"bf16", "fp8_block", "mxfp8"}) {
    INFO(compute);
    Trainer trainer({"model.hidden_size=256", "model.moe_intermediate_size=256", "train.global_batch_size=4",
                     std::string("precision.compute=") + compute});
    // One micro-batch: eager, recorded, replayed. Two: nobody squares what is added to.
    for (const int64_t micro_batches : {1, 1, 1, 2, 2, 2}) {
      trainer.Step(micro_batches, 300);
      const double norm = trainer.engine().TakeReports().back().state.grad_norm;
      double squares = 0;
      int64_t squared = 0;
      for (const auto& p : trainer.engine().registry().parameters()) {
        for (const double g : trainer.Values(p->grad)) squares += g * g;
        squared += p->squared;
      }
      CHECK(std::abs(norm - std::sqrt(squares)) <= 1e-8 * norm);
      CHECK((squared > 0) == (micro_batches == 1));
    }
  }
}

}  // namespace
}  // namespace yardmaster::testing
