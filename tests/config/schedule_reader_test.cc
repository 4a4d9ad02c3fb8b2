#include "src/config/schedule_reader.h"

#include "src/base/strings.h"
#include "src/config/schedule.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

struct Result {
  std::optional<Schedule> schedule;
  std::string issues;
};

// Reads "k: <text>"; a step has 100 tokens unless told otherwise.
Result Read(const std::string& text, bool whole = false, int64_t tokens_per_step = 100) {
  Issues issues;
  const auto root = ParseYaml("k: " + text + "\n", "f", issues);
  Result result;
  if (root && issues.empty()) {
    ScheduleContext context{"k", {}, whole, tokens_per_step};
    context.range.min = whole ? 1 : 0;
    result.schedule = ReadSchedule(root->Find("k")->value, context, issues);
  }
  result.issues = StrJoin(issues.Lines(), "\n");
  CHECK(result.schedule.has_value() == issues.empty());
  return result;
}

}  // namespace

TEST_CASE("a number is a constant schedule") {
  const Result r = Read("3e-4");
  REQUIRE(r.schedule);
  CHECK(*r.schedule == Schedule::Constant(3e-4));
}

TEST_CASE("segments, with from taken from the one before") {
  const Result r = Read(
      "\n  - linear: {from: 0, to: 1, until: 1e3}\n  - constant: {value: 1, until: 2000}\n"
      "  - cosine: {to: 0.1, until: 3000}\n  - constant: {value: 0.1}");
  INFO(r.issues);
  REQUIRE(r.schedule);
  const Schedule expected{{{SegmentKind::kLinear, 1000, 0, 1},
                           {SegmentKind::kConstant, 2000, 1, 1},
                           {SegmentKind::kCosine, 3000, 1, 0.1},
                           {SegmentKind::kConstant, -1, 0.1, 0.1}}};
  CHECK(*r.schedule == expected);
}

TEST_CASE("warmup_cosine in steps and in tokens") {
  const Schedule expected{{{SegmentKind::kLinear, 200, 0, 2}, {SegmentKind::kCosine, 1000, 2, 0.5}}};
  const Result steps = Read("{preset: warmup_cosine, peak: 2, warmup_steps: 2, total_steps: 10, min: 0.5}");
  const Result tokens =
      Read("{preset: warmup_cosine, peak: 2, warmup_tokens: 200, total_tokens: 1e3, min: 0.5}", false,
           ScheduleContext::kVarying);
  REQUIRE(steps.schedule);
  REQUIRE(tokens.schedule);
  CHECK(*steps.schedule == expected);
  CHECK(*tokens.schedule == expected);
  CHECK(EvaluateSchedule(*steps.schedule, 5000) == 0.5);
  const Result no_warmup = Read("{preset: warmup_cosine, peak: 2, warmup_steps: 0, total_steps: 10}");
  REQUIRE(no_warmup.schedule);
  CHECK(*no_warmup.schedule == Schedule{{{SegmentKind::kCosine, 1000, 2, 0}}});
}

TEST_CASE("wsd") {
  const Result r =
      Read("{preset: wsd, peak: 1, warmup_steps: 1, stable_tokens: 300, decay_steps: 2, decay: cosine}");
  INFO(r.issues);
  REQUIRE(r.schedule);
  CHECK(*r.schedule == Schedule{{{SegmentKind::kLinear, 100, 0, 1},
                                 {SegmentKind::kConstant, 400, 1, 1},
                                 {SegmentKind::kCosine, 600, 1, 0}}});
  const Result linear =
      Read("{preset: wsd, peak: 1, warmup_steps: 0, stable_steps: 0, decay_steps: 2, min: 0.5}");
  REQUIRE(linear.schedule);
  CHECK(*linear.schedule == Schedule{{{SegmentKind::kLinear, 200, 1, 0.5}}});
}

TEST_CASE("a linear segment of whole numbers becomes a staircase") {
  const Result r =
      Read("\n  - linear: {from: 4, to: 12, until: 100, multiple_of: 4}\n  - constant: {value: 12}", true);
  INFO(r.issues);
  REQUIRE(r.schedule);
  CHECK(*r.schedule == Schedule{{{SegmentKind::kConstant, 50, 4, 4},
                                 {SegmentKind::kConstant, 100, 8, 8},
                                 {SegmentKind::kConstant, -1, 12, 12}}});
  // The end of a staircase holds even when no segment says so.
  const Result last = Read("\n  - linear: {from: 6, to: 2, until: 100, multiple_of: 2}", true);
  REQUIRE(last.schedule);
  CHECK(EvaluateWholeSchedule(*last.schedule, 0) == 6);
  CHECK(EvaluateWholeSchedule(*last.schedule, 50) == 4);
  CHECK(EvaluateWholeSchedule(*last.schedule, 99) == 4);
  CHECK(EvaluateWholeSchedule(*last.schedule, 100) == 2);
  const Result v3 = Read("\n  - linear: {from: 3072, to: 15360, until: 469e9, multiple_of: 384}", true);
  REQUIRE(v3.schedule);
  CHECK(v3.schedule->segments.size() == 33);
}

TEST_CASE("formatted schedules read back") {
  const char* texts[] = {"0.5",
                         "\n  - linear: {from: 0, to: 0.1, until: 7}\n  - cosine: {to: 1e-5, until: 1e15}",
                         "{preset: wsd, peak: 1, warmup_steps: 1, stable_steps: 300, decay_steps: 2}",
                         "\n  - constant: {value: 1, until: 5}\n  - constant: {value: 2}",
                         "\n  - constant: {value: 1, until: 5}"};
  for (const char* text : texts) {
    INFO(text);
    const Result first = Read(text);
    REQUIRE(first.schedule);
    const Result second = Read(FormatSchedule(*first.schedule, 4));
    REQUIRE(second.schedule);
    CHECK(*first.schedule == *second.schedule);
  }
}

TEST_CASE("mistakes in schedules are named") {
  struct Case {
    const char *text, *expected;
    bool whole = false;
    int64_t tokens_per_step = 100;
  };
  const Case cases[] = {
      {"abc", "f:1:4: k: expected a number, a list of segments or a preset, found 'abc'"},
      {"-1", "must be at least 0, found -1"},
      {"null", "found null"},
      {"[]", "at least one segment"},
      {"{linear: {from: 0, to: 1, until: 5}}", "begins with a dash"},
      {"[5]", "k[0]: expected one of constant, linear or cosine"},
      {"[{linaer: {from: 0, to: 1, until: 5}}]", "did you mean linear?"},
      {"[{linear: 5}]", "expected a map in braces, found the number 5"},
      {"[{linear: {to: 1, until: 5}}]", "k[0].linear.from: missing"},
      {"[{linear: {from: 0, until: 5}}]", "k[0].linear.to: missing"},
      {"[{linear: {from: 0, to: 1}}]", "k[0].linear.until: missing"},
      {"[{linear: {from: 0, to: 1, untill: 5, until: 5}}]", "untill: unknown key; did you mean until?"},
      {"[{linear: {from: 0, to: 1, until: 5, multiple_of: 1}}]", "multiple_of: unknown key"},
      {"[{constant: {value: 1, until: 5}}, {constant: {value: 2, until: 5}}]", "must be above 5"},
      {"[{constant: {value: 1}}, {constant: {value: 2}}]", "only the last segment may last for ever"},
      {"[{constant: {value: 1, until: 0}}]", "must be at least 1"},
      {"[{constant: {value: 1, until: 1.5}}]", "expected an integer"},
      {"[{constant: {value: -1}}]", "must be at least 0, found -1"},
      {"[{constant: {value: 1, until: 5}, linear: {to: 1, until: 5}}]", "several keys"},
      {"{preset: wds, peak: 1}", "did you mean wsd?"},
      {"{preset: wsd, peak: 1, min: 2, warmup_steps: 1, decay_steps: 2}", "k.min: must be at most the peak (1)"},
      {"{preset: warmup_cosine, peak: 1, warmup_steps: 1}", "missing: total_tokens or total_steps"},
      {"{preset: warmup_cosine, warmup_steps: 1, total_steps: 5}", "k.peak: missing"},
      {"{preset: warmup_cosine, peak: 1, warmup_steps: 5, total_steps: 5}", "must exceed the warm-up"},
      {"{preset: warmup_cosine, peak: 1, warmup_steps: 1, warmup_tokens: 1, total_steps: 5}", "only one of"},
      {"{preset: warmup_cosine, peak: 1, warmup_steps: 1, total_steps: 5, decay: cosine}",
       "decay: unknown key"},
      {"{preset: warmup_cosine, peak: 1, warmup_steps: -1, total_steps: 5}", "must be at least 0"},
      {"{preset: warmup_cosine, peak: 1, warmup_steps: 0, total_steps: 1e18}", "exceed 2^60 tokens"},
      {"{preset: warmup_cosine, peak: 1, warmup_steps: 1, total_steps: 5}", "batch_size is a schedule", false,
       ScheduleContext::kVarying},
      {"{preset: wsd, peak: 1, warmup_steps: 0, stable_steps: 0, decay_steps: 0}",
       "all three phases are empty"},
      {"{preset: wsd, peak: 1, warmup_steps: 0, stable_steps: 1, decay_steps: 1, decay: exp}",
       "one of linear, cosine"},
      {"1.5", "expected a whole number", true},
      {"0", "must be at least 1", true},
      {"[{constant: {value: 2.5}}]", "expected a whole number", true},
      {"[{linear: {from: 2, to: 4, until: 10}}]", "multiple_of: missing", true},
      {"[{linear: {from: 2, to: 5, until: 10, multiple_of: 2}}]", "must be multiples of 2", true},
      {"[{linear: {from: 1, to: 100, until: 10, multiple_of: 1}}]", "99 stairs of 10 tokens", true},
      {"[{cosine: {from: 2, to: 4, until: 10}}]", "takes constant and linear segments", true},
      {"{preset: wsd, peak: 8, warmup_tokens: 1, stable_tokens: 1, decay_tokens: 1}", "presets are for rates",
       true},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    const Result r = Read(c.text, c.whole, c.tokens_per_step);
    INFO(r.issues);
    CHECK(r.issues.find(c.expected) != std::string::npos);
    CHECK(r.issues.starts_with("f:1:"));
  }
}

}  // namespace yardmaster
