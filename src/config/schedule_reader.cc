#include "src/config/schedule_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 60;
constexpr int64_t kMaxStairs = 4096;

// Reads the keys of one small map and reports what is missing, wrong or unknown.
class FormReader {
 public:
  FormReader(const YamlNode& node, const std::string& path, const ScheduleContext& context, Issues& issues)
      : node_(node), path_(path), context_(context), issues_(issues), issues_before_(issues.size()) {
    if (!node.is_map()) Fail(node.place, "", StrCat("expected a map in braces, found ", DescribeNode(node)));
  }

  bool Has(const std::string& key) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
    return node_.Find(key) != nullptr;
  }

  // A value of what is scheduled, in the range of its field.
  double Value(const std::string& key, std::optional<double> otherwise) {
    const YamlEntry* entry = Take(key, !otherwise);
    if (entry == nullptr) return otherwise.value_or(0);
    std::string why;
    std::optional<double> value = ReadNumber(entry->value, why);
    if (value && context_.whole_numbers && *value != std::floor(*value)) {
      why = StrCat("expected a whole number, found ", DescribeNode(entry->value));
      value.reset();
    }
    if (value && !context_.range.Contains(*value)) {
      why = StrCat("must be ", context_.range.ToString(), ", found ", FormatNumber(*value));
      value.reset();
    }
    if (!value) Fail(entry->value.place, key, why);
    return value.value_or(0);
  }

  // An integer in [least, kMaxTokens].
  int64_t Count(const std::string& key, int64_t least) {
    const YamlEntry* entry = Take(key, true);
    if (entry == nullptr) return least;
    std::string why;
    std::optional<int64_t> value = ReadInteger(entry->value, why);
    if (value && (*value < least || *value > kMaxTokens)) {
      why = StrCat("must be at least ", least, " and at most 2^60, found ", *value);
      value.reset();
    }
    if (!value) Fail(entry->value.place, key, why);
    return value.value_or(least);
  }

  // `name`_tokens or `name`_steps, in tokens.
  int64_t Length(const std::string& name, int64_t least) {
    const bool tokens = Has(name + "_tokens"), steps = Has(name + "_steps");
    if (tokens == steps) {
      if (node_.is_map()) {
        Fail(node_.place, "",
             StrCat(tokens ? "give only one of " : "missing: ", name, "_tokens or ", name, "_steps"));
      }
      return least;
    }
    if (tokens) return Count(name + "_tokens", least);
    const int64_t count = Count(name + "_steps", least);
    const Place& place = node_.Find(name + "_steps")->place;
    if (context_.tokens_per_step == ScheduleContext::kVarying) {
      Fail(place, name + "_steps",
           StrCat("steps cannot be turned into tokens where train.global_batch_size is a schedule; give ",
                  name, "_tokens"));
      return least;
    }
    if (context_.tokens_per_step == ScheduleContext::kUnknown) return std::max<int64_t>(count, 1);
    if (count > kMaxTokens / context_.tokens_per_step) {
      Fail(place, name + "_steps",
           StrCat(count, " steps of ", context_.tokens_per_step, " tokens exceed 2^60 tokens"));
      return least;
    }
    return count * context_.tokens_per_step;
  }

  std::string Choice(const std::string& key, const std::vector<std::string>& choices, bool required) {
    const YamlEntry* entry = Take(key, required);
    if (entry == nullptr) return choices[0];
    std::string why;
    const std::optional<std::string> text = ReadText(entry->value, why);
    if (text && std::find(choices.begin(), choices.end(), *text) != choices.end()) return *text;
    if (text) {
      why = StrCat("must be one of ", StrJoin(choices, ", "), ", found ", DescribeNode(entry->value));
      const std::string near = NearestName(*text, choices);
      if (!near.empty()) why += StrCat("; did you mean ", near, "?");
    }
    Fail(entry->value.place, key, why);
    return choices[0];
  }

  void Fail(const Place& place, const std::string& key, const std::string& message) {
    issues_.Add(place, key.empty() ? path_ : StrCat(path_, ".", key), message);
  }

  // Reports keys that nobody asked for. True if the whole map was right.
  bool Finish() {
    for (const YamlEntry& entry : node_.entries) {
      if (std::find(known_.begin(), known_.end(), entry.key) != known_.end()) continue;
      const std::string near = NearestName(entry.key, known_);
      Fail(entry.place, entry.key,
           near.empty() ? StrCat("unknown key; known here: ", StrJoin(known_, ", "))
                        : StrCat("unknown key; did you mean ", near, "?"));
    }
    return Good();
  }

  // Nothing was wrong so far.
  bool Good() const { return issues_.size() == issues_before_; }

 private:
  const YamlEntry* Take(const std::string& key, bool required) {
    const YamlEntry* entry = Has(key) ? node_.Find(key) : nullptr;
    if (entry == nullptr && required && node_.is_map()) Fail(node_.place, key, "missing");
    return entry;
  }

  const YamlNode& node_;
  std::string path_;
  const ScheduleContext& context_;
  Issues& issues_;
  size_t issues_before_;
  std::vector<std::string> known_;
};

// Appends from -> to over the tokens up to `until` as constant pieces that are multiples of `step`.
void AppendStairs(Schedule& schedule, int64_t begin, int64_t until, double from, double to, int64_t step) {
  const int64_t stairs = std::max<int64_t>(1, static_cast<int64_t>(std::abs(to - from)) / step);
  const double rise = to < from ? -static_cast<double>(step) : static_cast<double>(step);
  for (int64_t i = 0; i < stairs; ++i) {
    const int64_t end = begin + static_cast<int64_t>(static_cast<__int128>(until - begin) * (i + 1) / stairs);
    const double value = from + rise * static_cast<double>(i);
    schedule.segments.push_back({SegmentKind::kConstant, end, value, value});
  }
}

class SegmentsReader {
 public:
  SegmentsReader(const YamlNode& list, const ScheduleContext& context, Issues& issues)
      : list_(list), context_(context), issues_(issues) {}

  std::optional<Schedule> Read() {
    if (list_.items.empty()) issues_.Add(list_.place, context_.path, "a schedule needs at least one segment");
    for (size_t i = 0; i < list_.items.size() && !issues_.full(); ++i) ReadSegment(i);
    if (!good_ || schedule_.segments.empty()) return std::nullopt;
    // A staircase ends one stair below its last value, which holds from then on.
    if (schedule_.segments.back().to != end_value_) {
      schedule_.segments.push_back({SegmentKind::kConstant, -1, end_value_, end_value_});
    }
    return schedule_;
  }

 private:
  void ReadSegment(size_t index) {
    const YamlNode& item = list_.items[index];
    const std::string path = StrCat(context_.path, "[", index, "]");
    if (!item.is_map() || item.entries.size() != 1) {
      issues_.Add(
          item.place, path,
          StrCat(
              "expected one of constant, linear or cosine with a map, as in `linear: {to: 1, until: 1e6}`,",
              " found ", item.is_map() ? "several keys" : DescribeNode(item)));
      good_ = false;
      return;
    }
    const YamlEntry& entry = item.entries[0];
    static const std::vector<std::string> kKinds = {"constant", "linear", "cosine"};
    if (std::find(kKinds.begin(), kKinds.end(), entry.key) == kKinds.end()) {
      const std::string near = NearestName(entry.key, kKinds);
      issues_.Add(
          entry.place, path,
          StrCat("unknown segment '", entry.key, "'; ",
                 near.empty() ? "known: constant, linear, cosine" : StrCat("did you mean ", near, "?")));
      good_ = false;
      return;
    }
    const bool last = index + 1 == list_.items.size();
    if (ended_) {
      issues_.Add(item.place, path, "the segment before this one has no `until`, so this one never begins");
      ended_ = false;  // once is enough
      good_ = false;
    }
    FormReader form(entry.value, StrCat(path, ".", entry.key), context_, issues_);
    const bool constant = entry.key == "constant";
    std::optional<double> start;
    if (index > 0) start.emplace(end_value_);
    const double from = constant ? form.Value("value", std::nullopt) : form.Value("from", start);
    const double to = constant ? from : form.Value("to", std::nullopt);
    int64_t until = -1;
    if (!constant || form.Has("until")) {
      until = form.Count("until", 1);
    } else if (!last) {
      form.Fail(entry.place, "until", "missing; only the last segment may last for ever");
    } else {
      ended_ = true;
    }
    if (until >= 0 && until <= begin_ && form.Has("until") && begin_ > 0) {
      form.Fail(entry.value.Find("until")->place, "until",
                StrCat("must be above ", begin_, ", where the segment before ends, found ", until));
    }
    int64_t multiple = 0;
    if (context_.whole_numbers && !constant) multiple = ReadMultiple(form, entry, from, to, until);
    if (!form.Finish()) {
      good_ = false;
    } else if (multiple > 0) {
      AppendStairs(schedule_, begin_, until, from, to, multiple);
    } else {
      const SegmentKind kind = constant                ? SegmentKind::kConstant
                               : entry.key == "linear" ? SegmentKind::kLinear
                                                       : SegmentKind::kCosine;
      schedule_.segments.push_back({kind, until, from, to});
    }
    begin_ = std::max(begin_, until);
    end_value_ = to;
  }

  // The height of a stair of a whole-number schedule.
  int64_t ReadMultiple(FormReader& form, const YamlEntry& entry, double from, double to, int64_t until) {
    if (entry.key != "linear") {
      form.Fail(entry.place, "", "a schedule of whole numbers takes constant and linear segments");
      return 0;
    }
    const int64_t multiple = form.Count("multiple_of", 1);
    if (std::fmod(from, static_cast<double>(multiple)) != 0 ||
        std::fmod(to, static_cast<double>(multiple)) != 0) {
      form.Fail(entry.value.place, "multiple_of",
                StrCat("from (", FormatNumber(from), ") and to (", FormatNumber(to),
                       ") must be multiples of ", multiple));
    }
    const double stairs = std::abs(to - from) / static_cast<double>(multiple);
    if (stairs > static_cast<double>(std::min<int64_t>(kMaxStairs, until - begin_)) && until > begin_) {
      form.Fail(entry.value.place, "multiple_of",
                StrCat("makes ", FormatNumber(stairs), " stairs of ", until - begin_, " tokens; at most ",
                       kMaxStairs, " of at least one token each"));
    }
    return multiple;
  }

  const YamlNode& list_;
  const ScheduleContext& context_;
  Issues& issues_;
  Schedule schedule_;
  int64_t begin_ = 0;     // end of the segments so far
  double end_value_ = 0;  // and their last value
  bool ended_ = false;    // the last segment lasts for ever
  bool good_ = true;
};

std::optional<Schedule> ReadPreset(const YamlNode& node, const ScheduleContext& context, Issues& issues) {
  FormReader form(node, context.path, context, issues);
  if (context.whole_numbers) {
    form.Fail(node.place, "preset", "presets are for rates; give a list of segments with multiple_of");
    return std::nullopt;
  }
  const size_t issues_before = issues.size();
  const std::string preset = form.Choice("preset", {"warmup_cosine", "wsd"}, true);
  if (issues.size() != issues_before) return std::nullopt;  // its keys depend on it
  const double peak = form.Value("peak", std::nullopt);
  const double min = form.Value("min", std::max(0.0, context.range.min));
  if (form.Good() && min > peak)
    form.Fail(node.place, "min",
              StrCat("must be at most the peak (", FormatNumber(peak), "), found ", FormatNumber(min)));
  const int64_t warmup = form.Length("warmup", 0);
  Schedule schedule;
  auto& segments = schedule.segments;
  if (warmup > 0) segments.push_back({SegmentKind::kLinear, warmup, 0, peak});
  if (preset == "warmup_cosine") {
    const int64_t total = form.Length("total", 1);
    if (form.Good() && total <= warmup) {
      form.Fail(node.place, "",
                StrCat("the total (", total, " tokens) must exceed the warm-up (", warmup, ")"));
    }
    segments.push_back({SegmentKind::kCosine, total, peak, min});
  } else {
    const int64_t stable = warmup + form.Length("stable", 0);
    const int64_t decayed = stable + form.Length("decay", 0);
    const std::string shape = form.Choice("decay", {"linear", "cosine"}, false);
    if (stable > warmup) segments.push_back({SegmentKind::kConstant, stable, peak, peak});
    if (decayed > stable) {
      segments.push_back(
          {shape == "linear" ? SegmentKind::kLinear : SegmentKind::kCosine, decayed, peak, min});
    }
    if (form.Good() && segments.empty()) form.Fail(node.place, "", "all three phases are empty");
  }
  return form.Finish() ? std::optional(schedule) : std::nullopt;
}

}  // namespace

std::optional<Schedule> ReadSchedule(const YamlNode& node, const ScheduleContext& context, Issues& issues) {
  if (node.is_list()) return SegmentsReader(node, context, issues).Read();
  if (node.is_map() && node.Find("preset") != nullptr) return ReadPreset(node, context, issues);
  std::string why;
  std::optional<double> value = ReadNumber(node, why);
  if (!value) {
    why = StrCat("expected ",
                 context.whole_numbers ? "an integer or a list of segments"
                                       : "a number, a list of segments or a preset",
                 ", found ", DescribeNode(node));
    if (node.is_map()) why += "; each segment begins with a dash: `- linear: {...}`";
  } else if (context.whole_numbers && *value != std::floor(*value)) {
    why = StrCat("expected a whole number, found ", DescribeNode(node));
    value.reset();
  } else if (!context.range.Contains(*value)) {
    why = StrCat("must be ", context.range.ToString(), ", found ", FormatNumber(*value));
    value.reset();
  }
  if (!value) {
    issues.Add(node.place, context.path, why);
    return std::nullopt;
  }
  return Schedule::Constant(*value);
}

std::string FormatSchedule(const Schedule& schedule, int indent) {
  YM_CHECK(!schedule.segments.empty());
  const ScheduleSegment& first = schedule.segments[0];
  if (first.kind == SegmentKind::kConstant && first.until_tokens < 0) return FormatNumber(first.from);
  std::string out;
  for (const ScheduleSegment& s : schedule.segments) {
    std::vector<std::string> parts;
    if (s.kind == SegmentKind::kConstant) {
      parts.push_back("value: " + FormatNumber(s.from));
    } else {
      parts.push_back(StrCat("from: ", FormatNumber(s.from), ", to: ", FormatNumber(s.to)));
    }
    if (s.until_tokens >= 0) parts.push_back(StrCat("until: ", s.until_tokens));
    const char* names[] = {"constant", "linear", "cosine"};
    out += StrCat("\n", std::string(static_cast<size_t>(indent), ' '), "- ", names[static_cast<int>(s.kind)],
                  ": {", StrJoin(parts, ", "), "}");
  }
  return out;
}

}  // namespace yardmaster
