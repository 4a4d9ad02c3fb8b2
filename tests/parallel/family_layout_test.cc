// The families, and what may be added to a router, in several layouts: as layout_test.cc.
#include "tests/catch.h"
#include "tests/train/many_ranks.h"

namespace yardmaster::testing {
namespace {

using Overrides = std::vector<std::string>;

Overrides Join(Overrides a, const Overrides& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Overrides GroupedQuery(const std::string& family) {
  return {"model.model_type=" + family,
          "model.q_lora_rank=0",
          "model.kv_lora_rank=0",
          "model.qk_nope_head_dim=0",
          "model.qk_rope_head_dim=0",
          "model.v_head_dim=0",
          "model.head_dim=8",
          "model.num_attention_heads=4",
          "model.num_key_value_heads=2",
          "model.n_group=1",
          "model.routed_scaling_factor=1",
          "model.first_k_dense_replace=0",
          "model.n_shared_experts=0",
          "moe.global_batch_balance_weight=0.05"};
}

const Overrides kMtp = {"model.num_nextn_predict_layers=2", "train.mtp_loss_weight=0.3"};
const Overrides kBalance = {"moe.sequence_balance_weight=0.03", "moe.micro_batch_balance_weight=0.02",
                            "moe.global_batch_balance_weight=0.05", "moe.router_z_weight=0.01"};

// The gradients of the first step (first moments after it) and the weights after six, in double.
void CheckLayouts(const Overrides& model) {
  ManyRanks runs;
  const Overrides settings = Join(
      {"precision.compute=fp64", "schedule.learning_rate=2e-3", "train.micro_batch_size=1", "train.steps=6",
       "checkpoint.every_steps=1", "checkpoint.keep_latest=0", "train.eval_sequences=8"},
      model);
  const std::tuple<const char*, int, Overrides> layouts[] = {
      {"alone", 1, {}},
      {"dp2", 2, {"parallel.ep=1"}},
      {"ep2_deduplicated", 2, {"parallel.ep=2", "ep.mode=deduplicated"}},
      {"ep2_rounds", 2, {"parallel.ep=2", "ep.ragged_buffer_factor=0.4"}},
      {"ep4_zero0", 4, {"parallel.ep=4", "parallel.zero=0"}},
      {"dp4_ep2", 4, {"parallel.ep=2"}}};
  for (const auto& [name, ranks, overrides] : layouts) {
    INFO(name);
    const RunResult result = runs.Train(ranks, name, Join(settings, overrides));
    INFO(result.output);
    REQUIRE(result.code == 0);
    if (ranks == 1) continue;
    const auto first = runs.Tensors(name, 1), first_alone = runs.Tensors("alone", 1);
    CHECK(LargestDifference(first, first_alone, "adamw.m/") < 1e-10);
    const auto last = runs.Tensors(name, 6), last_alone = runs.Tensors("alone", 6);
    CHECK(LargestDifference(last, last_alone, "model.") < 1e-8);
    int exact = 0;
    for (const auto& [tensor, values] : last) {
      if (!Contains(tensor, "e_score_correction_bias") && !Contains(tensor, "previous_load")) continue;
      CHECK(values == last_alone.at(tensor));
      ++exact;
    }
    CHECK(exact > 0);
    CHECK(LargestDifference(last, first, "model.") > 1e-3);
  }
}

TEST_CASE("qwen3_moe and mixtral in every layout") {
  CheckLayouts(GroupedQuery("qwen3_moe"));
  CheckLayouts(GroupedQuery("mixtral"));
}

TEST_CASE("deepseek_v3 with multi-token prediction, balance losses and documents apart in every layout") {
  CheckLayouts(
      Join(Join(kMtp, kBalance), {"data.attend_across_documents=false", "data.reset_positions=true"}));
}

TEST_CASE("deepseek_v3 with multi-token prediction, balance losses and capacity in every layout") {
  CheckLayouts(Join(Join(kMtp, kBalance), {"moe.capacity_factor=1", "moe.drop_policy=position"}));
}

TEST_CASE("padding to capacity in every layout, and beside the same run without") {
  const Overrides capacity = Join(kMtp, {"moe.capacity_factor=1.25", "moe.drop_policy=probs"});
  CheckLayouts(Join(capacity, {"moe.pad_to_capacity=true"}));
  ManyRanks runs;
  const Overrides settings = Join(capacity, {"precision.compute=fp64", "train.steps=6", "parallel.ep=2"});
  REQUIRE(runs.Train(2, "ragged", settings).code == 0);
  REQUIRE(runs.Train(2, "padded", Join(settings, {"moe.pad_to_capacity=true"})).code == 0);
  CHECK(LargestDifference(runs.Tensors("padded", 6), runs.Tensors("ragged", 6), "model.") < 1e-10);
  CHECK(NumberIn(runs.Steps("padded").back(), "dropped") > 0);
  CHECK(NumberIn(runs.Steps("padded").back(), "dropped") == NumberIn(runs.Steps("ragged").back(), "dropped"));
}

TEST_CASE("stopped and resumed, a run with all of it has the same bits") {
  ManyRanks runs;
  const Overrides all =
      Join(Join(kMtp, kBalance), {"moe.capacity_factor=1", "moe.drop_policy=position", "train.steps=6",
                                  "logging.every_steps=1", "parallel.ep=2"});
  REQUIRE(runs.Train(2, "straight", all).code == 0);
  REQUIRE(runs.Train(2, "halves", Join(all, {"train.stop_at_step=3"})).code == 0);
  const RunResult result = runs.Train(2, "halves", all);
  INFO(result.output);
  REQUIRE(result.code == 0);
  CHECK(runs.Steps("straight") == runs.Steps("halves"));
  CHECK((runs.Tensors("straight", 6) == runs.Tensors("halves", 6)));
  const std::string last = runs.Steps("straight").back();
  CHECK(NumberIn(last, "mtp_loss") > 0);
  CHECK(NumberIn(last, "dropped") > 0);
  CHECK(NumberIn(last, "sequence_balance") >= 0.9);
  CHECK(Contains(last, "\"router\":[{\"layer\":1,\"load\":["));
}

}  // namespace
}  // namespace yardmaster::testing
