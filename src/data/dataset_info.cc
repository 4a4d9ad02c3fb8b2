#include "src/data/dataset_info.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/strings.h"
#include "src/data/megatron_index.h"

namespace yardmaster {
namespace {

constexpr const char* kFormat = "yardmaster data set";
constexpr int kVersion = 1;

// Visits every field with its JSON pointer: the one list for writing and for reading.
template <class Info, class F>
void VisitFields(Info& info, F&& field) {
  field("/tokenizer", info.tokenizer);
  field("/vocab_size", info.vocab_size);
  field("/end_of_document", info.end_of_document);
  field("/bytes", info.bytes);
  field("/sha256", info.sha256);
  field("/train/documents", info.train.documents);
  field("/train/tokens", info.train.tokens);
  field("/heldout/documents", info.heldout.documents);
  field("/heldout/tokens", info.heldout.tokens);
  field("/heldout_entropy/bigram_nats_per_token", info.bigram_nats);
  field("/heldout_entropy/trigram_nats_per_token", info.trigram_nats);
  field("/heldout_entropy/bigram_smoothing", info.bigram_k);
  field("/heldout_entropy/trigram_smoothing", info.trigram_k);
}

bool TypeMatches(const nlohmann::ordered_json& value, const std::string&) { return value.is_string(); }
bool TypeMatches(const nlohmann::ordered_json& value, double) { return value.is_number(); }
bool TypeMatches(const nlohmann::ordered_json& value, int64_t) { return value.is_number_integer(); }
bool TypeMatches(const nlohmann::ordered_json& value, int32_t) { return value.is_number_integer(); }

}  // namespace

std::string DatasetInfoToJson(const DatasetInfo& info) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  VisitFields(info, [&](const char* pointer, const auto& value) {
    json[nlohmann::ordered_json::json_pointer(pointer)] = value;
  });
  return json.dump(2) + "\n";
}

DatasetInfo ReadDatasetInfo(const std::string& json_path) {
  const char* hint = "yardmaster tokenize writes this file again";
  const auto json = nlohmann::ordered_json::parse(ReadFile(json_path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw DataError("is not a JSON object", json_path, hint);
  if (json.value("/format"_json_pointer, nlohmann::ordered_json()) != kFormat ||
      json.value("/version"_json_pointer, nlohmann::ordered_json()) != kVersion) {
    throw DataError(StrCat("is not a \"", kFormat, "\" of version ", kVersion), json_path, hint);
  }
  DatasetInfo info;
  VisitFields(info, [&](const char* pointer, auto& value) {
    const nlohmann::ordered_json::json_pointer at(pointer);
    if (!json.contains(at)) throw DataError("is missing", StrCat(json_path, ": ", pointer), hint);
    if (!TypeMatches(json[at], value)) {
      throw DataError(
          StrCat("found ", json[at].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                 ", which has the wrong type"),
          StrCat(json_path, ": ", pointer), hint);
    }
    json[at].get_to(value);
  });
  return info;
}

std::optional<DatasetInfo> FindDatasetInfo(const std::string& path) {
  std::string prefix = DatasetPrefix(path);
  for (const std::string_view part : {".train", ".heldout"}) {
    if (std::string_view(prefix).ends_with(part)) {
      prefix.resize(prefix.size() - part.size());
      break;
    }
  }
  const std::string json_path = prefix + ".json";
  if (!PathExists(json_path)) return std::nullopt;
  return ReadDatasetInfo(json_path);
}

}  // namespace yardmaster
