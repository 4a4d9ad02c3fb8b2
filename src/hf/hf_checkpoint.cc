#include "src/hf/hf_checkpoint.h"

#include <nlohmann/json.hpp>

namespace yardmaster {
namespace {

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

// tensor -> file name, from the index.
std::map<std::string, std::string> ReadIndex(const std::string& path) {
  const nlohmann::json index = nlohmann::json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw CheckpointError("no JSON object with a weight_map", path, "fetch the file again");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string()) throw CheckpointError(StrCat("weight_map names no file for ", tensor), path);
    const std::string name = file.get<std::string>();
    if (name.empty() || name.find('/') != std::string::npos) {
      throw CheckpointError(StrCat("weight_map puts ", tensor, " into ", name, ", which is not beside it"),
                            path);
    }
    files[tensor] = name;
  }
  return files;
}

}  // namespace

HfCheckpoint::HfCheckpoint(const std::string& directory) : directory_(directory) {
  const std::string index_path = JoinPath(directory, kIndex);
  std::map<std::string, std::string> index;
  std::vector<std::string> file_names;
  if (PathExists(index_path)) {
    index = ReadIndex(index_path);
    std::map<std::string, bool> distinct;
    for (const auto& [tensor, file] : index) distinct[file] = true;
    for (const auto& [file, unused] : distinct) file_names.push_back(file);
  } else {
    file_names = {kSingle};
  }
  // All of them, before what is in any is judged: a missing file must not be told of another.
  for (const std::string& file_name : file_names) {
    const std::string path = JoinPath(directory, file_name);
    if (!PathExists(path)) {
      throw CheckpointError("no such file", path,
                            index.empty() ? StrCat("a model directory holds ", kSingle, " or ", kIndex)
                                          : StrCat(kIndex, " names it"));
    }
  }
  for (const std::string& file_name : file_names) {
    const std::string path = JoinPath(directory, file_name);
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    for (const std::string& tensor : files_.back()->names()) {
      const auto [at, added] = file_of_.emplace(tensor, files_.size() - 1);
      if (!added) throw CheckpointError(StrCat(tensor, " is also in ", files_[at->second]->path()), path);
      if (index.empty()) continue;
      const auto named = index.find(tensor);
      if (named == index.end() || named->second != file_name) {
        throw CheckpointError(StrCat(tensor, " is not in the index, or named in another file"), path);
      }
    }
  }
  for (const auto& [tensor, file] : index) {
    if (!Has(tensor))
      throw CheckpointError(StrCat(tensor, " is in the index, but not in the file"),
                            JoinPath(directory, file));
  }
}

std::vector<std::string> HfCheckpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, unused] : file_of_) names.push_back(name);
  return names;
}

const SafetensorsFile& HfCheckpoint::Find(const std::string& name) const {
  const auto at = file_of_.find(name);
  YM_CHECK(at != file_of_.end(), name, " is not in ", directory_);
  return *files_[at->second];
}

Tensor HfCheckpoint::Get(const std::string& name) const { return Find(name).Get(name); }
const std::string& HfCheckpoint::FileOf(const std::string& name) const { return Find(name).path(); }

}  // namespace yardmaster
