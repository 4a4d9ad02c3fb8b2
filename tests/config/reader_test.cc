#include "src/config/reader.h"

#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "tests/catch.h"
#include "tests/config/sample.h"

namespace yardmaster {
namespace {

using testing::ConfigErrorOf;
using testing::Contains;
using testing::kSampleConfig;
using testing::Sample;

std::string ErrorOf(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return ConfigErrorOf([&] { ParseConfig(text, "c.yaml", overrides); });
}

}  // namespace

TEST_CASE("values and defaults arrive in the structs") {
  const LoadedConfig loaded = ParseConfig(kSampleConfig, "c.yaml", {});
  const Config& c = loaded.config;
  CHECK(c.run.dir == "runs/sample");
  CHECK(c.run.seed == 1);
  CHECK(c.model.hidden_size == 64);
  CHECK(c.model.q_lora_rank == 24);
  CHECK_FALSE(c.model.rope_scaling.has_value());
  CHECK(c.train.global_batch_size == Schedule::Constant(4));
  CHECK(c.schedule.learning_rate == Schedule::Constant(1e-3));
  CHECK(c.moe.bias_update_speed == Schedule::Constant(0.001));
  CHECK(c.optimizer.beta2 == 0.95);
  CHECK(c.data.train == "data/a");
  CHECK(loaded.places.Of("train.steps").ToString() == "c.yaml:23:10");
  CHECK(loaded.places.Of("train.stop_at_step").ToString() == "c.yaml:22:1");
  CHECK(loaded.places.Of("logging.color").ToString() == "c.yaml:1:1");
}

TEST_CASE("fields with several forms") {
  CHECK(ParseConfig(Sample("q_lora_rank: 24", "q_lora_rank: null"), "c", {}).config.model.q_lora_rank == 0);
  const auto yarn = ParseConfig(
      Sample("model:\n", "model:\n  rope_scaling: {type: yarn, factor: 8, mscale_all_dim: 1}\n"), "c", {});
  REQUIRE(yarn.config.model.rope_scaling.has_value());
  CHECK(yarn.config.model.rope_scaling->factor == 8);
  CHECK(yarn.config.model.rope_scaling->mscale_all_dim == 1);
  CHECK(yarn.config.model.rope_scaling->beta_fast == 32);
  CHECK_FALSE(ParseConfig(Sample("model:\n", "model:\n  rope_scaling: null\n"), "c", {})
                  .config.model.rope_scaling.has_value());
  CHECK(ParseConfig(Sample("every_steps: 5", "resume: 100"), "c", {}).config.checkpoint.resume == "100");
  CHECK(ParseConfig(Sample("every_steps: 5", "resume: never"), "c", {}).config.checkpoint.resume == "never");
  CHECK(ErrorOf(Sample("model:\n",
                       "model:\n  hidden_act: silu\n  tie_word_embeddings: false\n"
                       "  attention_bias: false\n  moe_layer_freq: 1\n")) == "");
}

TEST_CASE("what a family fixes is the default, and can be said otherwise") {
  const auto model = [](const std::vector<std::string>& overrides) {
    return ParseConfig(kSampleConfig, "c", overrides).config.model;
  };
  const std::vector<std::string> v2 = {"model.model_type=deepseek_v2", "model.n_group=1", "model.topk_group=1"};
  CHECK(model(v2).scoring_func == "softmax");
  CHECK(model(v2).topk_method == "greedy");
  CHECK(model(v2).norm_topk_prob);  // the sample says true
  CHECK(model({v2[0], "model.topk_method=group_limited_greedy"}).topk_method == "group_limited_greedy");
  CHECK(model({"model.scoring_func=softmax"}).topk_method == "noaux_tc");
}

TEST_CASE("each kind of error names its place and its remedy") {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"beta1: 0.9", "lr: 1", "c.yaml:28:3: optimizer.lr: unknown key; did you mean schedule.learning_rate?"},
      {"beta1: 0.9", "bet1: 0.9", "c.yaml:28:3: optimizer.bet1: unknown key; did you mean optimizer.beta1?"},
      {"steps: 10", "steps: 10\n  weight_decay: 0",
       "train.weight_decay: unknown key; did you mean optimizer.weight_decay?"},
      {"optimizer:", "optimiser:", "c.yaml:27:1: optimiser: unknown section; did you mean optimizer?"},
      {"optimizer:", "beta2: 0.9\noptimizer:",
       "c.yaml:27:1: beta2: unknown section; did you mean optimizer.beta2?"},
      {"beta1: 0.9", "zzqqxxzz: 1", "c.yaml:28:3: optimizer.zzqqxxzz: unknown key"},
      {"  hidden_size: 64\n", "", "c.yaml:3:1: model.hidden_size: missing: hidden width D"},
      {"run:\n  dir: runs/sample\n", "", "c.yaml:1:1: run.dir: missing"},
      {"hidden_size: 64", "hidden_size: \"64\"", "c.yaml:5:16: model.hidden_size: expected an integer"},
      {"hidden_size: 64", "hidden_size:", "c.yaml:5:3: model.hidden_size: has no value"},
      {"hidden_size: 64", "hidden_size: null", "expected an integer, found null"},
      {"hidden_size: 64", "hidden_size: 64.5", "expected an integer, found the number 64.5"},
      {"hidden_size: 64", "hidden_size: 064", "leading zero"},
      {"hidden_size: 64", "hidden_size: 0", "must be at least 1 and at most 1048576, found 0"},
      {"hidden_size: 64", "hidden_size: 1e18", "must be at least 1 and at most 1048576"},
      {"hidden_size: 64", "hidden_size: [64]", "expected an integer, found a list"},
      {"beta1: 0.9", "beta1: 1", "must be at least 0 and below 1, found 1"},
      {"beta1: 0.9", "beta1: nan", "only finite numbers"},
      {"norm_topk_prob: true", "norm_topk_prob: yes", "expected true or false, found 'yes'"},
      {"dir: runs/sample", "dir: 5", "c.yaml:2:8: run.dir: expected text, found the number 5"},
      {"dir: runs/sample", "dir: \"\"", "run.dir: must not be empty"},
      {"optimizer:\n", "optimizer:\n  moments: bf61\n",
       "must be one of fp32, bf16, found 'bf61'; did you mean bf16?"},
      {"model:\n", "model:\n  hidden_act: gelu\n", "c.yaml:4:15: model.hidden_act: only silu is supported"},
      {"model:\n", "model:\n  tie_word_embeddings: true\n", "only false is supported, found 'true'"},
      {"model:\n", "model:\n  attention_bias: \"false\"\n", "only false is supported"},
      {"model:\n", "model:\n  moe_layer_freq: 2\n", "only 1 is supported, found the number 2"},
      {"model:\n", "model:\n  rope_scaling: 5\n", "model.rope_scaling: expected a map"},
      {"model:\n", "model:\n  rope_scaling: {fator: 5}\n", "did you mean model.rope_scaling.factor?"},
      {"model:\n", "model:\n  rope_scaling: {type: linear}\n", "model.rope_scaling.type: must be yarn"},
      {"every_steps: 5", "resume: sometimes", "must be one of auto, never or an integer"},
      {"every_steps: 5", "resume: -3", "checkpoint.resume: expected text, found the number -3"},
      {"optimizer:\n  beta1: 0.9\n  weight_decay: 0.1\n", "optimizer: 3\n",
       "optimizer: expected a map, found the number 3"},
      {"learning_rate: 1e-3", "learning_rate: fast",
       "c.yaml:31:18: schedule.learning_rate: expected a number"},
      {"beta1: 0.9", "beta1: 0.9\n  beta1: 0.8", "c.yaml:29:3: duplicate key 'beta1'"},
  };
  for (const auto& [from, to, expected] : cases) {
    INFO(to);
    const std::string found = ErrorOf(Sample(from, to));
    INFO(found);
    CHECK(Contains(found, expected));
    CHECK(found.starts_with("c.yaml:"));
  }
}

TEST_CASE("a text that is no map of sections") {
  CHECK(ErrorOf("").starts_with("c.yaml:1:1: run.dir: missing"));
  CHECK(Contains(ErrorOf("# nothing\n"), "c.yaml:1:1: model.hidden_size: missing"));
  CHECK(Contains(ErrorOf("- a\n"), "expected a map of sections, found a list"));
  CHECK(Contains(ErrorOf("hello"), "c.yaml:1:1: expected a map of sections, found 'hello'"));
}

TEST_CASE("all errors come at once, in the order of the file") {
  std::string text = Sample("beta1: 0.9", "beta1: 2");
  text.replace(text.find("hidden_size: 64"), 15, "hiden_size: 64");
  text.replace(text.find("steps: 10"), 9, "steps: x");
  text.replace(text.find("n_group: 4"), 10, "n_group: 5");
  CHECK(ErrorOf(text, {"logging.color=blue", "data.seed=-1"}) ==
        "c.yaml:3:1: model.hidden_size: missing: hidden width D\n"
        "c.yaml:5:3: model.hiden_size: unknown key; did you mean model.hidden_size?\n"
        "c.yaml:19:12: model.n_group: must divide n_routed_experts (16), found 5\n"
        "c.yaml:23:10: train.steps: expected an integer, found 'x'\n"
        "c.yaml:28:10: optimizer.beta1: must be at least 0 and below 1, found 2\n"
        "--set data.seed=-1: data.seed: must be at least 0 and at most 1e+15, found -1\n"
        "--set logging.color=blue: logging.color: must be one of auto, always, never, found 'blue'");
}

TEST_CASE("overrides") {
  const auto with = [](const std::vector<std::string>& overrides) {
    return ParseConfig(kSampleConfig, "c.yaml", overrides).config;
  };
  CHECK(with({"train.steps=100"}).train.steps == 100);
  CHECK(with({"train.steps=100", "train.steps=200"}).train.steps == 200);
  CHECK(with({"train.steps=1e3"}).train.steps == 1000);
  CHECK(with({"run.dir=runs/a=b"}).run.dir == "runs/a=b");
  CHECK(with({"logging.every_steps=7"}).logging.every_steps == 7);  // a section that the file does not have
  CHECK(with({"model.q_lora_rank=null"}).model.q_lora_rank == 0);
  CHECK(with({"model.rope_scaling.factor=4"}).model.rope_scaling->factor == 4);
  CHECK(with({"model.rope_scaling={factor: 4}", "model.rope_scaling.factor=5"}).model.rope_scaling->factor ==
        5);
  CHECK(with({"schedule.learning_rate=[{linear: {from: 0, to: 1, until: 10}}]"}).schedule.learning_rate ==
        Schedule{{{SegmentKind::kLinear, 10, 0, 1}}});
  CHECK(with({"schedule.learning_rate={preset: warmup_cosine, peak: 1, warmup_steps: 1, total_steps: 2}"})
            .schedule.learning_rate ==
        Schedule{{{SegmentKind::kLinear, 128, 0, 1}, {SegmentKind::kCosine, 256, 1, 0}}});
}

TEST_CASE("mistakes in overrides name the argument") {
  CHECK(ErrorOf(kSampleConfig, {"train.stpes=5"}) ==
        "--set train.stpes=5: train.stpes: unknown key; did you mean train.steps?");
  CHECK(ErrorOf(kSampleConfig, {"train.steps"}) == "--set train.steps: expected section.key=value");
  CHECK(ErrorOf(kSampleConfig, {"=5"}) == "--set =5: expected section.key=value");
  CHECK(ErrorOf(kSampleConfig, {"train..steps=5"}) == "--set train..steps=5: expected section.key=value");
  CHECK(ErrorOf(kSampleConfig, {"train.steps="}) == "--set train.steps=: train.steps: has no value");
  CHECK(Contains(ErrorOf(kSampleConfig, {"train.steps=[1"}), "--set train.steps=[1: "));
  CHECK(Contains(ErrorOf(kSampleConfig, {"trian.steps=1"}), "trian: unknown section; did you mean train?"));
  // Nothing is near: no guess, but what there is.
  CHECK(ErrorOf(kSampleConfig, {"foo.bar=1"}).starts_with(
      "--set foo.bar=1: foo: unknown section; there are run, runtime, model, train,"));
  CHECK(ErrorOf(kSampleConfig, {"train.bar=1"}) == "--set train.bar=1: train.bar: unknown key");
  CHECK(Contains(ErrorOf(kSampleConfig, {"train=1"}), "--set train=1: train: expected a map"));
  CHECK(ErrorOf(kSampleConfig, {"train.steps.x=1"}) ==
        "--set train.steps.x=1: train.steps.x: train.steps is no section");
  CHECK(Contains(ErrorOf(kSampleConfig, {"train.global_batch_size=3"}),
                 "--set train.global_batch_size=3: train.global_batch_size: must be a multiple"));
}

TEST_CASE("presets in steps need a constant batch") {
  std::string text = Sample("learning_rate: 1e-3",
                            "learning_rate: {preset: wsd, peak: 1, warmup_steps: 1, "
                            "stable_steps: 1, decay_steps: 1}");
  text.replace(text.find("global_batch_size: 4"), 20,
               "global_batch_size: [{constant: {value: 4, until: 1e3}}, {constant: {value: 8}}]");
  CHECK(Contains(ErrorOf(text), "schedule.learning_rate.warmup_steps: steps cannot be turned into tokens"));
  // A batch with an error of its own is reported alone.
  CHECK(
      ErrorOf(Sample("learning_rate: 1e-3",
                     "learning_rate: {preset: wsd, peak: 1, warmup_steps: 1, stable_steps: 1, "
                     "decay_steps: 1}"),
              {"train.global_batch_size=x"}) ==
      "--set train.global_batch_size=x: train.global_batch_size: expected an integer or a list of segments, "
      "found 'x'");
}

TEST_CASE("files that cannot be read") {
  CHECK(Contains(ConfigErrorOf([] { LoadConfig("no/such/file.yaml", {}); }), "no/such/file.yaml"));
  CHECK(Contains(ConfigErrorOf([] { LoadConfig("/", {}); }), "cannot read the configuration"));
  const std::string path =
      std::string(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp") + "/c.yaml";
  std::ofstream(path) << kSampleConfig;
  CHECK(LoadConfig(path, {}).config == ParseConfig(kSampleConfig, "c", {}).config);
  std::ofstream(path).close();
  CHECK(Contains(ConfigErrorOf([&] { LoadConfig(path, {}); }), path + ":1:1: run.dir: missing"));
  std::ofstream(path) << std::string(1 << 20, '#');
  CHECK(Contains(ConfigErrorOf([&] { LoadConfig(path, {}); }), path + ":1:1: larger than"));
  std::remove(path.c_str());
  // A pipe without a writer would be waited for; a device has no end.
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(Contains(ConfigErrorOf([&] { LoadConfig(path, {}); }), path + ": is not a regular file"));
  std::remove(path.c_str());
  CHECK(Contains(ConfigErrorOf([] { LoadConfig("/dev/zero", {}); }), "is not a regular file"));
}

}  // namespace yardmaster
