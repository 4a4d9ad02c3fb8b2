// What a run does with its routers and says of them: bias, load, health.
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/catch.h"
#include "tests/train/many_ranks.h"

namespace yardmaster::testing {
namespace {

using Json = nlohmann::json;

std::string BiasName(int64_t layer) {
  return StrCat("model.layers.", layer, ".mlp.gate.e_score_correction_bias");
}

std::vector<Json> StepRecords(const ManyRanks& runs, const std::string& name) {
  std::vector<Json> out;
  for (const std::string& line : runs.Steps(name)) out.push_back(Json::parse(line));
  return out;
}

TEST_CASE("every bias of every MoE layer moves by its speed towards the load that it lacks") {
  ManyRanks runs;
  const double speed = 0.0078125;  // exact in every type
  for (const auto& [name, ranks] : {std::pair{"alone", 1}, {"two", 2}}) {
    INFO(name);
    const RunResult result = runs.Train(
        ranks, name,
        {"model.num_nextn_predict_layers=2", "train.mtp_loss_weight=0.3", "train.steps=4",
         StrCat("moe.bias_update_speed=", speed), "logging.every_steps=1",
         "checkpoint.every_steps=1", "checkpoint.keep_latest=0", "parallel.ep=auto"});
    INFO(result.output);
    REQUIRE(result.code == 0);
    std::map<std::string, std::vector<double>> before;
    const std::vector<Json> records = StepRecords(runs, name);
    REQUIRE(records.size() == 4);
    for (size_t step = 1; step <= records.size(); ++step) {
      const auto after = runs.Tensors(name, static_cast<int64_t>(step));
      const Json& routers = records[step - 1].at("router");
      REQUIRE(routers.size() == 4);  // layers 1 and 2, and two modules of multi-token prediction
      for (size_t m = 0; m < 4; ++m) {
        const auto layer = routers[m].at("layer").get<int64_t>();
        CHECK(layer == static_cast<int64_t>(m) + 1);
        const auto load = routers[m].at("load").get<std::vector<int64_t>>();
        const std::vector<double>& bias = after.at(BiasName(layer));
        REQUIRE(bias.size() == load.size());
        int64_t total = 0, up = 0, down = 0;
        for (const int64_t n : load) total += n;
        CHECK(total == 4 * 16 * 2);  // 4 sequences of 16 tokens, 2 experts each
        for (size_t e = 0; e < load.size(); ++e) {
          const int64_t lack = total - static_cast<int64_t>(load.size()) * load[e];
          const double last = step == 1 ? 0 : before.at(BiasName(layer))[e];
          INFO("step " << step << " layer " << layer << " expert " << e << " load " << load[e]);
          CHECK(bias[e] == last + (lack > 0 ? speed : lack < 0 ? -speed : 0));
          up += lack > 0;
          down += lack < 0;
        }
        CHECK(up > 0);  // the load is off, both ways
        CHECK(down > 0);
        CHECK(routers[m].at("bias_min") == *std::min_element(bias.begin(), bias.end()));
        CHECK(routers[m].at("bias_max") == *std::max_element(bias.begin(), bias.end()));
      }
      before = after;
    }
  }
  CHECK(runs.Tensors("alone", 1).at(BiasName(4)) == runs.Tensors("two", 1).at(BiasName(4)));
}

TEST_CASE("health in metrics.jsonl is what the load says, dead experts and drops included") {
  ManyRanks runs;
  const RunResult result = runs.Train(
      2, "run",
      {"train.steps=2", "logging.every_steps=2", "parallel.ep=2", "moe.capacity_factor=1",
       "moe.force_routing=skewed", "moe.force_skew=4", "model.num_experts_per_tok=1"});
  INFO(result.output);
  REQUIRE(result.code == 0);
  const std::vector<Json> records = StepRecords(runs, "run");
  REQUIRE(records.size() == 2);
  CHECK_FALSE(records[0].contains("router"));  // no console line, no health
  int64_t dropped = 0;
  REQUIRE(records[1].at("router").size() == 2);
  for (const Json& router : records[1].at("router")) {
    const auto load = router.at("load").get<std::vector<int64_t>>();
    REQUIRE(load.size() == 8);
    CHECK(load[0] == 32);  // four times 64 / 8
    double entropy = 0;
    int64_t dead = 0, over = 0;
    for (const int64_t n : load) {
      const double p = static_cast<double>(n) / 64;
      if (n > 0) entropy -= p * std::log(p) / std::log(8);
      dead += n == 0;
    }
    CHECK(router.at("entropy").get<double>() == Approx(entropy).epsilon(1e-5));
    CHECK(router.at("max_over_mean").get<double>() == 4);
    CHECK(router.at("dead") == dead);
    over = router.at("dropped").get<int64_t>();
    // Two micro-batches of 32 tokens: C = 4, and the first expert has 16 in each.
    CHECK(over >= 24);
    dropped += over;
  }
  CHECK(records[1].at("dropped") == dropped);
  CHECK(records[1].at("load_max_over_mean") == 4);
}

TEST_CASE("a router that leaves its range is told on the console, and that it is back") {
  ManyRanks runs;
  // The first step leaves a bias that spans more than the scores do; small ones bring it back.
  const RunResult result = runs.Train(2, "run",
                                      {"train.steps=24", "logging.every_steps=1", "parallel.ep=2",
                                       "model.n_group=1", "model.topk_group=1",
                                       "moe.bias_update_speed=[{constant: {value: 0.55, until: "
                                       "64}}, {linear: {from: 0.1, to: 0.01, until: "
                                       "1000}}, {constant: {value: 0.01}}]"});
  INFO(result.output);
  REQUIRE(result.code == 0);
  // By the steps that lines name: mpirun passes on warnings and other lines in no order.
  const auto steps = [&](const std::string& what) {
    const std::regex line(what + "[^\n]*\\(step ([0-9]+)\\)");
    std::set<int> found;
    for (std::sregex_iterator at(result.output.begin(), result.output.end(), line), end; at != end; ++at)
      CHECK(found.insert(std::stoi((*at)[1])).second);
    return found;
  };
  const std::set<int> out = steps("warning \\[rank 0\\]: router of layer"), back = steps("routers are in range again");
  REQUIRE(!out.empty());
  REQUIRE(!back.empty());
  CHECK(Contains(result.output, "router of layer 1: the router bias spans 1.10"));
  CHECK(*out.begin() == 1);
  CHECK(*back.begin() > 1);
  CHECK(std::distance(out.begin(), out.lower_bound(*back.begin())) == 1);  // told once until they are back
}

}  // namespace
}  // namespace yardmaster::testing
