#include "src/train/resume.h"

#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

using nlohmann::json;

json FileToJson(const FileFingerprint& f) {
  return {{"path", f.path}, {"bytes", f.bytes}, {"sha256", f.sha256}};
}

FileFingerprint FileFromJson(const json& j) {
  return {j.at("path").get<std::string>(), j.at("bytes").get<uint64_t>(), j.at("sha256").get<std::string>()};
}

}  // namespace

std::string ToJson(const TrainerState& s) {
  const json j = {{"step", s.step},
                  {"updates", s.updates},
                  {"tokens", s.tokens},
                  {"skipped", s.skipped},
                  {"sample_index", s.sample_index},
                  {"replays", s.replays},
                  {"rows_needed", s.rows_needed},
                  {"train_idx", FileToJson(s.train.idx)},
                  {"train_bin", FileToJson(s.train.bin)},
                  {"validation_idx", FileToJson(s.validation.idx)},
                  {"validation_bin", FileToJson(s.validation.bin)},
                  {"commit", s.commit}};
  return j.dump(1) + "\n";
}

TrainerState TrainerStateFromJson(const std::string& text, const std::string& where) {
  try {
    const json j = json::parse(text);
    TrainerState s;
    s.step = j.at("step").get<int64_t>();
    s.updates = j.at("updates").get<int64_t>();
    s.tokens = j.at("tokens").get<int64_t>();
    s.skipped = j.at("skipped").get<int64_t>();
    s.sample_index = j.at("sample_index").get<int64_t>();
    s.replays = j.at("replays").get<int64_t>();
    s.rows_needed = j.at("rows_needed").get<int64_t>();
    s.train = {FileFromJson(j.at("train_idx")), FileFromJson(j.at("train_bin"))};
    s.validation = {FileFromJson(j.at("validation_idx")), FileFromJson(j.at("validation_bin"))};
    s.commit = j.at("commit").get<std::string>();
    if (s.step < 0 || s.updates < 0 || s.tokens < 0 || s.sample_index < 0)
      throw CheckpointError("negative counter in trainer.json", where);
    return s;
  } catch (const json::exception& e) {
    throw CheckpointError(StrCat("trainer.json is not what this version writes: ", e.what()), where);
  }
}

}  // namespace yardmaster
