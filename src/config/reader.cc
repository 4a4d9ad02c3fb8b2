#include "src/config/reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/strings.h"
#include "src/config/issues.h"
#include "src/config/scalar.h"
#include "src/config/schedule.h"
#include "src/config/schedule_reader.h"
#include "src/config/schema.h"
#include "src/config/validate.h"
#include "src/config/yaml_document.h"

namespace yardmaster {
namespace {

// Names that other trainers use for our fields.
struct Synonym {
  const char *theirs, *ours;
};
constexpr Synonym kSynonyms[] = {
    {"lr", "schedule.learning_rate"},
    {"max_lr", "schedule.learning_rate"},
    {"warmup_steps", "schedule.learning_rate"},
    {"batch_size", "train.global_batch_size"},
    {"seq_len", "train.sequence_length"},
    {"seq_length", "train.sequence_length"},
    {"max_steps", "train.steps"},
    {"train_steps", "train.steps"},
    {"grad_clip", "optimizer.clip_grad_norm"},
    {"max_grad_norm", "optimizer.clip_grad_norm"},
    {"num_layers", "model.num_hidden_layers"},
    {"num_experts", "model.n_routed_experts"},
    {"num_local_experts", "model.n_routed_experts"},
    {"top_k", "model.num_experts_per_tok"},
    {"topk", "model.num_experts_per_tok"},
    {"dtype", "precision.compute"},
    {"save_every", "checkpoint.every_steps"},
    {"output_dir", "run.dir"},
};

// What an unknown key may have meant: the same name elsewhere, then another trainer's name, then a near name
// here, then a near name elsewhere.
std::string Suggest(const std::string& key, const Section* here) {
  std::vector<std::string> near_here, everywhere, everywhere_paths;
  for (const Section& section : ConfigSchema()) {
    for (const Field& field : section.fields) {
      everywhere.push_back(field.name);
      everywhere_paths.push_back(StrCat(section.path, ".", field.name));
      if (&section == here) near_here.push_back(field.name);
    }
    if (here == nullptr && section.path.find('.') == std::string::npos) near_here.push_back(section.path);
  }
  const auto path_of = [&](const std::string& name) {
    return everywhere_paths[static_cast<size_t>(std::find(everywhere.begin(), everywhere.end(), name) -
                                                everywhere.begin())];
  };
  if (std::find(everywhere.begin(), everywhere.end(), key) != everywhere.end()) return path_of(key);
  for (const Synonym& synonym : kSynonyms) {
    if (key == synonym.theirs) return synonym.ours;
  }
  const std::string near = NearestName(key, near_here);
  if (!near.empty()) return here == nullptr ? near : StrCat(here->path, ".", near);
  const std::string far = NearestName(key, everywhere);
  return far.empty() ? "" : path_of(far);
}

class Reader {
 public:
  Reader(const std::string& file, Issues& issues) : issues_(issues) { loaded_.places.file = file; }

  LoadedConfig Read(YamlNode root, const std::vector<std::string>& overrides) {
    if (root.kind == YamlNode::Kind::kEmpty)
      root.kind = YamlNode::Kind::kMap;  // then all that is required is missing
    if (!root.is_map()) {
      issues_.Add(root.place, "", StrCat("expected a map of sections, found ", DescribeNode(root)));
      issues_.ThrowIfAny();
    }
    for (const std::string& argument : overrides) Override(root, argument);
    for (const YamlEntry& entry : root.entries) {
      if (FindSection(entry.key) != nullptr && entry.key.find('.') == std::string::npos) continue;
      Unknown(entry, nullptr, entry.key);
    }
    for (const Section& section : ConfigSchema()) {
      if (section.path.find('.') == std::string::npos) ReadSection(section, root.Find(section.path));
    }
    return std::move(loaded_);
  }

 private:
  // Puts the value of "a.b=yaml" into the tree, so that it is read and checked like the file's.
  void Override(YamlNode& root, const std::string& argument) {
    const Place place{StrCat("--set ", argument), 0, 0};
    const size_t equals = argument.find('=');
    if (equals == std::string::npos || equals == 0) {
      issues_.Add(place, "", "expected section.key=value");
      return;
    }
    const std::string path = argument.substr(0, equals);
    const size_t before = issues_.size();
    std::optional<YamlNode> value = ParseYamlValue(argument.substr(equals + 1), place.file, issues_);
    if (!value || issues_.size() != before) return;
    std::vector<std::string> names = StrSplit(path, '.');
    YamlNode* node = &root;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) {
        issues_.Add(place, "", "expected section.key=value");
        return;
      }
      if (!node->is_map()) {
        if (node->kind == YamlNode::Kind::kScalar || node->is_list()) {
          names.resize(i);
          issues_.Add(place, path, StrCat(StrJoin(names, "."), " is no section"));
          return;
        }
        node->kind = YamlNode::Kind::kMap;
      }
      YamlEntry* entry = node->Find(names[i]);
      if (entry == nullptr) {
        node->entries.push_back({names[i], place, {}});
        entry = &node->entries.back();
        entry->value.place = place;
      }
      if (i + 1 == names.size()) {
        entry->place = place;
        entry->value = std::move(*value);
        entry->value.place = place;
        return;
      }
      node = &entry->value;
    }
  }

  void Unknown(const YamlEntry& entry, const Section* section, const std::string& path) {
    if (issues_.full()) return;
    const std::string suggestion = Suggest(entry.key, section);
    std::string what = section == nullptr ? "unknown section" : "unknown key";
    if (!suggestion.empty()) {
      what += StrCat("; did you mean ", suggestion, "?");
    } else if (section == nullptr) {
      std::vector<std::string> names;
      for (const Section& s : ConfigSchema()) {
        if (s.path.find('.') == std::string::npos) names.push_back(s.path);
      }
      what += StrCat("; there are ", StrJoin(names, ", "));
    }
    issues_.Add(entry.place, path, what);
  }

  void ReadSection(const Section& section, const YamlEntry* entry) {
    if (entry != nullptr) loaded_.places.places[section.path] = entry->place;
    const bool given = entry != nullptr && entry->value.kind != YamlNode::Kind::kEmpty;
    if (given && !entry->value.is_map()) {
      issues_.Add(entry->value.place, section.path,
                  StrCat("expected a map, found ", DescribeNode(entry->value)));
      for (const Field& field : section.fields)
        loaded_.places.bad.insert(StrCat(section.path, ".", field.name));
      return;
    }
    if (given) {
      for (const YamlEntry& e : entry->value.entries) {
        if (FindField(section, e.key) == nullptr) Unknown(e, &section, StrCat(section.path, ".", e.key));
      }
    }
    for (const Field& field : section.fields) {
      const std::string path = StrCat(section.path, ".", field.name);
      const YamlEntry* value = given ? entry->value.Find(field.name) : nullptr;
      if (value != nullptr) {
        loaded_.places.places[path] = value->value.place;
        ReadField(field, path, *value);
        if (path == "model.model_type")
          FamilyDefaults(loaded_.config.model);  // the first field of its section
      } else if (field.required) {
        issues_.Add(loaded_.places.Of(section.path), path, StrCat("missing: ", field.doc));
        loaded_.places.bad.insert(path);
      }
    }
  }

  void Bad(const YamlNode& node, const std::string& path, const std::string& message) {
    issues_.Add(node.place, path, message);
    loaded_.places.bad.insert(path);
  }

  void ReadField(const Field& field, const std::string& path, const YamlEntry& entry) {
    const YamlNode& node = entry.value;
    const FieldPointer pointer = field.access(loaded_.config);
    std::string why;
    if (node.kind == YamlNode::Kind::kEmpty) {
      Bad(node, path, "has no value");
    } else if (auto* integer = std::get_if<int64_t*>(&pointer)) {
      if (field.null_is_zero && node.is_null()) {
        **integer = 0;
      } else if (field.auto_is_zero && node.kind == YamlNode::Kind::kScalar && node.text == "auto") {
        **integer = 0;
      } else if (const auto value = ReadInteger(node, why); !value) {
        Bad(node, path, field.auto_is_zero ? StrCat(why, ", or auto") : why);
      } else if (!field.range.Contains(static_cast<double>(*value))) {
        Bad(node, path, StrCat("must be ", field.range.ToString(), ", found ", *value));
      } else {
        **integer = *value;
      }
    } else if (auto* number = std::get_if<double*>(&pointer)) {
      if (const auto value = ReadNumber(node, why); !value) {
        Bad(node, path, why);
      } else if (!field.range.Contains(*value)) {
        Bad(node, path, StrCat("must be ", field.range.ToString(), ", found ", FormatNumber(*value)));
      } else {
        **number = *value;
      }
    } else if (auto* boolean = std::get_if<bool*>(&pointer)) {
      if (const auto value = ReadBoolean(node, why); !value) {
        Bad(node, path, why);
      } else {
        **boolean = *value;
      }
    } else if (auto* text = std::get_if<std::string*>(&pointer)) {
      ReadTextField(field, path, node, **text);
    } else if (auto* schedule = std::get_if<Schedule*>(&pointer)) {
      const ScheduleContext context{path, field.range, field.whole,
                                    field.whole ? ScheduleContext::kVarying : TokensPerStep()};
      if (auto value = ReadSchedule(node, context, issues_)) {
        **schedule = std::move(*value);
      } else {
        loaded_.places.bad.insert(path);
      }
    } else if (auto* scaling = std::get_if<std::optional<RopeScaling>*>(&pointer)) {
      if (!node.is_null()) {
        (*scaling)->emplace();
        ReadSection(*FindSection(path), &entry);
      }
    } else if (node.kind != YamlNode::Kind::kScalar || node.text != field.only ||
               (node.quoted && FormatText(field.only) != field.only)) {  // a quoted 1 or false is text
      Bad(node, path, StrCat("only ", field.only, " is supported, found ", DescribeNode(node)));
    }
  }

  void ReadTextField(const Field& field, const std::string& path, const YamlNode& node, std::string& out) {
    std::string why;
    std::optional<std::string> value;
    if (field.or_integer && node.kind == YamlNode::Kind::kScalar && !node.quoted) {
      const auto integer = ReadInteger(node, why);
      if (integer && *integer >= 0) value = StrCat(*integer);
    }
    if (!value) {
      value = ReadText(node, why);
      if (value && !field.choices.empty() &&
          std::find(field.choices.begin(), field.choices.end(), *value) == field.choices.end()) {
        why = StrCat("must be ", field.choices.size() > 1 ? "one of " : "", StrJoin(field.choices, ", "),
                     field.or_integer ? " or an integer" : "", ", found ", DescribeNode(node));
        const std::string near = NearestName(*value, field.choices);
        if (!near.empty() && field.choices.size() > 1) why += StrCat("; did you mean ", near, "?");
        value.reset();
      }
      if (value && field.non_empty && value->empty()) {
        why = "must not be empty";
        value.reset();
      }
    }
    if (value) {
      out = *value;
    } else {
      Bad(node, path, why);
    }
  }

  // For presets in steps. `train` is read before every section that has schedules.
  int64_t TokensPerStep() const {
    const ConfigPlaces& places = loaded_.places;
    if (!places.IsGood("train.global_batch_size") || !places.IsGood("train.sequence_length")) {
      return ScheduleContext::kUnknown;
    }
    const Schedule& batch = loaded_.config.train.global_batch_size;
    if (!IsConstantSchedule(batch)) return ScheduleContext::kVarying;
    return EvaluateWholeSchedule(batch, 0) * loaded_.config.train.sequence_length;  // both below 2^31
  }

  LoadedConfig loaded_;
  Issues& issues_;
};

}  // namespace

LoadedConfig ParseConfig(const std::string& text, const std::string& file,
                         const std::vector<std::string>& overrides) {
  Issues issues;
  std::optional<YamlNode> root = ParseYaml(text, file, issues);
  if (!root) issues.ThrowIfAny();  // of a file that is no YAML nothing more can be said
  LoadedConfig loaded = Reader(file, issues).Read(std::move(*root), overrides);
  ValidateConfig(loaded.config, loaded.places, issues);
  issues.ThrowIfAny();
  return loaded;
}

LoadedConfig LoadConfig(const std::string& path, const std::vector<std::string>& overrides) {
  std::string text;
  try {
    const MappedFile file(path);
    // One byte over the limit is enough to be refused; a huge file is not read.
    if (file.size() > 0)
      text.assign(reinterpret_cast<const char*>(file.data()), std::min(file.size(), kMaxYamlBytes + 1));
  } catch (const Error& error) {
    throw ConfigError(StrCat("cannot read the configuration: ", error.what()));
  }
  return ParseConfig(text, path, overrides);
}

}  // namespace yardmaster
