#include "src/config/printer.h"

#include <string>

#include "src/base/files.h"
#include "src/config/reader.h"
#include "src/config/schema.h"
#include "tests/catch.h"
#include "tests/config/sample.h"

namespace yardmaster {
namespace {

Config Parse(const std::string& text) { return ParseConfig(text, "printed.yaml", {}).config; }

}  // namespace

TEST_CASE("a printed configuration parses to the same one") {
  const Config sample = Parse(testing::kSampleConfig);
  CHECK(Parse(PrintConfig(sample)) == sample);
  CHECK(PrintConfig(Parse(PrintConfig(sample))) == PrintConfig(sample));

  Config c = sample;
  c.run.dir = "a dir/with \"quotes\": #1";
  c.run.seed = 999999999999999;
  c.model.q_lora_rank = 0;
  c.model.rope_theta = 12345.678;
  c.model.rope_scaling = RopeScaling{};
  c.model.rope_scaling->mscale = 0.707;
  c.train.global_batch_size = {{{SegmentKind::kConstant, 1000, 4, 4}, {SegmentKind::kConstant, -1, 6, 6}}};
  c.schedule.learning_rate = {
      {{SegmentKind::kLinear, 100, 0, 1.0 / 3}, {SegmentKind::kCosine, 14800000000000, 1.0 / 3, 1e-7}}};
  c.moe.bias_update_speed = Schedule::Constant(0);
  c.optimizer.decay_norms = true;
  c.optimizer.eps = 1e-20;
  c.data.validation = "";
  c.checkpoint.resume = "12000";
  CHECK(Parse(PrintConfig(c)) == c);
  CHECK_FALSE(Parse(PrintConfig(c)) == sample);
}

// A field that the printer or the reader forgot would keep its default here.
TEST_CASE("every stored field survives on its own") {
  const Config sample = Parse(testing::kSampleConfig);
  int changed = 0;
  for (const Section& section : ConfigSchema()) {
    for (const Field& field : section.fields) {
      Config c = sample;
      c.model.rope_scaling.emplace();
      const Config before = c;
      const FieldPointer pointer = field.access(c);
      if (auto* p = std::get_if<int64_t*>(&pointer)) {
        **p = **p == field.range.min ? **p + 1 : static_cast<int64_t>(field.range.min);
      } else if (auto* p = std::get_if<double*>(&pointer)) {
        **p = **p * 0.5 + 0.25;
      } else if (auto* p = std::get_if<bool*>(&pointer)) {
        **p = !**p;
      } else if (auto* p = std::get_if<std::string*>(&pointer)) {
        if (field.choices.size() == 1) continue;  // nothing else to say
        **p = field.choices.empty()     ? "something else"
              : **p == field.choices[0] ? field.choices[1]
                                        : field.choices[0];
      } else if (auto* p = std::get_if<Schedule*>(&pointer)) {
        **p = {{{SegmentKind::kConstant, 1000, 8, 8}, {SegmentKind::kConstant, -1, 6, 6}}};
      } else {
        continue;
      }
      REQUIRE_FALSE(c == before);
      ++changed;
      const std::string path = section.path + "." + field.name;
      INFO(path);
      // Cross-field checks may refuse the value; the text is then compared instead.
      Config back;
      const std::string error = testing::ConfigErrorOf([&] { back = Parse(PrintConfig(c)); });
      if (error.empty()) {
        CHECK(back == c);
      } else {
        INFO(error);
        CHECK(PrintConfig(c) != PrintConfig(before));
      }
    }
  }
  CHECK(changed > 60);
}

TEST_CASE("the shipped configurations are valid and print themselves") {
  const std::string path = "configs/tiny_deepseek_v3.yaml";
  const LoadedConfig loaded = LoadConfig(path, {});
  CHECK(Parse(PrintConfig(loaded.config)) == loaded.config);
  CHECK(loaded.config.model.vocab_size == 257);
}

TEST_CASE("docs/config_reference.md is what the program generates") {
  INFO("regenerate it: yardmaster config-reference > docs/config_reference.md");
  CHECK(ReadFile("docs/config_reference.md") == ConfigReferenceMarkdown());
}

TEST_CASE("the reference page names every field, and its examples are valid") {
  const std::string page = ConfigReferenceMarkdown();
  for (const Section& section : ConfigSchema()) {
    CHECK(testing::Contains(page, "\n## " + section.path + "\n"));
    for (const Field& field : section.fields) {
      INFO(field.name);
      CHECK(testing::Contains(page, "| `" + field.name + "` |"));
      CHECK_FALSE(field.doc.empty());
    }
  }
  const size_t begin = page.find("```yaml\n") + 8;
  const std::string example = page.substr(begin, page.find("```", begin) - begin);
  std::string text = testing::Sample("schedule:\n  learning_rate: 1e-3\n", "");
  // The example's three sections take the places of the sample's.
  text.erase(text.find("train:\n  steps"), text.find("optimizer:") - text.find("train:\n  steps"));
  text += example;
  const Config c = ParseConfig(text, "example.yaml", {"train.steps=1", "train.sequence_length=32"}).config;
  CHECK(c.schedule.learning_rate.segments.size() == 5);
  CHECK(c.train.global_batch_size.segments.size() == 33);
  CHECK(c.moe.bias_update_speed.segments.size() == 2);
}

}  // namespace yardmaster
