#include <map>

#include "src/base/strings.h"
#include "src/config/printer.h"
#include "src/config/reader.h"
#include "src/train/resume.h"

namespace yardmaster {
namespace {

// "section.key" -> printed value (several lines joined), of PrintConfig's two-level YAML.
std::map<std::string, std::string> Flatten(const std::string& yaml) {
  std::map<std::string, std::string> out;
  std::string section, key;
  for (const std::string& line : StrSplit(yaml, '\n')) {
    if (line.empty() || line[0] == '#') continue;
    const size_t indent = line.find_first_not_of(' ');
    const size_t colon = line.find(':');
    if (indent == 0) {
      section = line.substr(0, colon);
    } else if (indent == 2 && colon != std::string::npos && line[2] != '-') {
      key = section + "." + line.substr(2, colon - 2);
      const size_t value = line.find_first_not_of(' ', colon + 1);
      out[key] = value == std::string::npos ? "" : line.substr(value);
    } else if (!key.empty() && indent != std::string::npos) {
      out[key] += (out[key].empty() ? "" : " ") + line.substr(indent);
    }
  }
  return out;
}

// What belongs to the launch, not to what is computed, taken from `now`.
Config WithLaunchSettingsOf(Config saved, const Config& now) {
  saved.run.dir = now.run.dir;
  saved.runtime = now.runtime;
  saved.train.steps = now.train.steps;
  saved.train.stop_at_step = now.train.stop_at_step;
  saved.train.micro_batch_size = now.train.micro_batch_size;
  saved.train.eval_every_steps = now.train.eval_every_steps;
  saved.train.eval_sequences = now.train.eval_sequences;
  saved.train.max_skipped_steps = now.train.max_skipped_steps;
  saved.train.replica_check_every_steps = now.train.replica_check_every_steps;
  saved.parallel = now.parallel;
  const std::string payload = saved.ep.payload;  // what the experts multiply
  saved.ep = now.ep;
  saved.ep.payload = payload;
  saved.data.train = now.data.train;  // the fingerprint speaks for the content
  saved.data.validation = now.data.validation;
  saved.checkpoint = now.checkpoint;
  saved.logging = now.logging;
  return saved;
}

}  // namespace

std::vector<std::string> ChangedSettings(const std::string& saved_yaml, const Config& now) {
  const Config saved =
      WithLaunchSettingsOf(ParseConfig(saved_yaml, "config.yaml of the checkpoint", {}).config, now);
  std::map<std::string, std::string> before = Flatten(PrintConfig(saved)), after = Flatten(PrintConfig(now));
  std::vector<std::string> out;
  for (const auto& [key, value] : after) {
    if (before[key] != value)
      out.push_back(StrCat(key, ": ", before[key].empty() ? "absent" : before[key], " in the checkpoint, ",
                           value, " now"));
  }
  for (const auto& [key, value] : before) {
    if (!after.count(key)) out.push_back(StrCat(key, ": ", value, " in the checkpoint, absent now"));
  }
  return out;
}

}  // namespace yardmaster
