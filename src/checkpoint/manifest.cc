#include "src/checkpoint/manifest.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/hash.h"
#include "src/base/strings.h"
#include "src/checkpoint/cover.h"
#include "src/checkpoint/layout.h"

namespace yardmaster {
namespace {

using Json = nlohmann::json;

const char kFormat[] = "yardmaster-checkpoint";
const char kCrcKey[] = ",\n\"crc32c\":\"";
const char kDamaged[] = "the checkpoint is damaged; another one may be chosen with checkpoint.resume";

std::string Hex(uint32_t crc) { return StrFormat("%08x", crc); }

std::string NumbersText(const std::vector<int64_t>& numbers) {
  std::string out = "[";
  for (size_t i = 0; i < numbers.size(); ++i) out += (i ? "," : "") + std::to_string(numbers[i]);
  return out + "]";
}

// Readers of one field each. What they throw becomes one CheckpointError in ManifestFromText.
const Json& Field(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key))
    throw std::runtime_error(StrCat("'", key, "' is missing"));
  return object[key];
}

int64_t Int(const Json& value, const char* key) {
  if (!value.is_number_integer()) throw std::runtime_error(StrCat("'", key, "' is not a whole number"));
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})
    throw std::runtime_error(StrCat("'", key, "' is too large"));
  return value.get<int64_t>();
}

uint64_t Size(const Json& object, const char* key) {
  const int64_t value = Int(Field(object, key), key);
  if (value < 0) throw std::runtime_error(StrCat("'", key, "' is negative"));
  return static_cast<uint64_t>(value);
}

std::string Text(const Json& value, const char* key) {
  if (!value.is_string()) throw std::runtime_error(StrCat("'", key, "' is not text"));
  return value.get<std::string>();
}

const Json& List(const Json& object, const char* key) {
  const Json& value = Field(object, key);
  if (!value.is_array()) throw std::runtime_error(StrCat("'", key, "' is not a list"));
  return value;
}

std::vector<int64_t> Ints(const Json& object, const char* key) {
  std::vector<int64_t> out;
  for (const Json& value : List(object, key)) out.push_back(Int(value, key));
  return out;
}

uint32_t Crc(const Json& value) {
  const std::string text = Text(value, "crc32c");
  if (text.size() != 8 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw std::runtime_error(StrCat("'", text, "' is not a crc32c"));
  return static_cast<uint32_t>(std::strtoul(text.c_str(), nullptr, 16));
}

std::string FileName(const Json& value) {
  const std::string name = Text(value, "name");
  if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos || name == kManifestName)
    throw std::runtime_error(StrCat("'", name, "' is not a name for a file of a checkpoint"));
  return name;
}

ManifestTensor ParseTensor(const Json& json, const std::string& name, const Manifest& manifest) {
  ManifestTensor tensor;
  const std::string dtype = Text(Field(json, "dtype"), "dtype");
  if (!DTypeFromName(dtype, &tensor.dtype))
    throw std::runtime_error(StrCat("tensor '", name, "' has dtype '", dtype, "'"));
  const std::vector<int64_t> dims = Ints(json, "shape");
  if (dims.size() > Shape::kMaxRank)
    throw std::runtime_error(StrCat("tensor '", name, "' has ", dims.size(), " axes"));
  int64_t bytes = DTypeBytes(tensor.dtype);
  for (const int64_t d : dims)
    if (d < 0 || __builtin_mul_overflow(bytes, d, &bytes))
      throw std::runtime_error(StrCat("tensor '", name, "' has an impossible shape"));
  tensor.shape = Shape(dims);
  std::vector<CoverPiece> pieces;
  for (const Json& p : List(json, "parts")) {
    TensorPart part;
    part.file = FileName(Field(p, "file"));
    part.offset = Size(p, "offset");
    part.bytes = Size(p, "bytes");
    part.box = {Ints(p, "begin"), Ints(p, "extent")};
    for (const Json& crc : List(p, "crc32c")) part.chunk_crc32c.push_back(Crc(crc));
    const auto file = manifest.files.find(part.file);
    if (file == manifest.files.end())
      throw std::runtime_error(StrCat("tensor '", name, "' lies in '", part.file, "', which is not listed"));
    if (part.bytes > file->second.bytes || part.offset > file->second.bytes - part.bytes)
      throw std::runtime_error(StrCat("tensor '", name, "' lies outside of '", part.file, "'"));
    pieces.push_back({part.box, part.file});
    tensor.parts.push_back(std::move(part));
  }
  const std::string problem = CoverProblem(tensor.shape, std::move(pieces));
  if (!problem.empty()) throw std::runtime_error(StrCat("tensor '", name, "': ", problem));
  for (const TensorPart& part : tensor.parts) {  // only now are the boxes known to be sane
    const uint64_t expected = static_cast<uint64_t>(part.box.elements() * DTypeBytes(tensor.dtype));
    const uint64_t chunks = (part.bytes + manifest.chunk_bytes - 1) / manifest.chunk_bytes;
    if (part.bytes != expected || part.chunk_crc32c.size() != chunks)
      throw std::runtime_error(StrCat("tensor '", name, "' in '", part.file, "' has ", part.bytes,
                                      " bytes and ", part.chunk_crc32c.size(), " crcs, not ", expected,
                                      " and ", chunks));
  }
  return tensor;
}

Manifest Parse(const std::string& text) {
  const Json json = Json::parse(text);
  if (Text(Field(json, "format"), "format") != kFormat) throw std::runtime_error("it is not of this format");
  const int64_t version = Int(Field(json, "version"), "version");
  if (version != kManifestVersion)
    throw std::runtime_error(
        StrCat("it has format version ", version, ", this build reads ", kManifestVersion));
  Manifest m;
  m.step = static_cast<int64_t>(Size(json, "step"));
  m.world = static_cast<int>(Size(json, "world"));
  m.config_sha256 = Text(Field(json, "config_sha256"), "config_sha256");
  m.chunk_bytes = Size(json, "chunk_bytes");
  if (m.chunk_bytes == 0) throw std::runtime_error("'chunk_bytes' is 0");
  for (const Json& f : List(json, "files")) {
    const std::string name = FileName(Field(f, "name"));
    if (!m.files.emplace(name, ManifestFile{Size(f, "bytes"), Crc(Field(f, "crc32c"))}).second)
      throw std::runtime_error(StrCat("the file '", name, "' is listed twice"));
  }
  for (const Json& t : List(json, "text")) {
    m.text.push_back(Text(t, "text"));
    if (!m.files.count(m.text.back()))
      throw std::runtime_error(StrCat("the text '", m.text.back(), "' is not a listed file"));
  }
  for (const Json& t : List(json, "tensors")) {
    const std::string name = Text(Field(t, "name"), "name");
    if (!m.tensors.emplace(name, ParseTensor(t, name, m)).second)
      throw std::runtime_error(StrCat("the tensor '", name, "' is listed twice"));
  }
  return m;
}

}  // namespace

std::string ManifestToText(const Manifest& m) {
  std::string out = StrCat("{\n\"format\":\"", kFormat, "\",\n\"version\":", kManifestVersion,
                           ",\n\"step\":", m.step, ",\n\"world\":", m.world, ",\n\"config_sha256\":\"",
                           m.config_sha256, "\",\n\"chunk_bytes\":", m.chunk_bytes, ",\n\"files\":[");
  const char* separator = "\n";
  for (const auto& [name, f] : m.files) {
    out += StrCat(separator, "{\"name\":", Json(name).dump(), ",\"bytes\":", f.bytes, ",\"crc32c\":\"",
                  Hex(f.crc32c), "\"}");
    separator = ",\n";
  }
  out += StrCat("],\n\"text\":", Json(m.text).dump(), ",\n\"tensors\":[");
  separator = "\n";
  for (const auto& [name, t] : m.tensors) {
    out += StrCat(separator, "{\"name\":", Json(name).dump(), ",\"dtype\":\"", DTypeName(t.dtype),
                  "\",\"shape\":", NumbersText(t.shape.vector()), ",\"parts\":[");
    separator = ",\n";
    const char* comma = "";
    for (const TensorPart& p : t.parts) {
      out += StrCat(comma, "{\"file\":", Json(p.file).dump(), ",\"offset\":", p.offset,
                    ",\"bytes\":", p.bytes, ",\"begin\":", NumbersText(p.box.begin),
                    ",\"extent\":", NumbersText(p.box.extent), ",\"crc32c\":[");
      for (size_t i = 0; i < p.chunk_crc32c.size(); ++i)
        out += StrCat(i ? "," : "", "\"", Hex(p.chunk_crc32c[i]), "\"");
      out += "]}";
      comma = ",";
    }
    out += "]}";
  }
  out += "]";
  return out + kCrcKey + Hex(Crc32c(out.data(), out.size())) + "\"\n}\n";
}

Manifest ManifestFromText(const std::string& text, const std::string& where) {
  const size_t end = text.rfind(kCrcKey);
  if (end == std::string::npos) throw CheckpointError("does not end as a manifest does", where, kDamaged);
  const std::string actual = Hex(Crc32c(text.data(), end));
  const std::string tail = StrCat(kCrcKey, actual, "\"\n}\n");
  if (text.compare(end, std::string::npos, tail) != 0)
    throw CheckpointError(StrCat("its text has crc32c ", actual, ", which is not the one at its end"), where,
                          kDamaged);
  try {
    return Parse(text);
  } catch (const std::exception& error) {  // also what the JSON library throws
    throw CheckpointError(error.what(), where, kDamaged);
  }
}

Manifest OpenManifest(const std::string& checkpoint_path) {
  const std::string path = JoinPath(checkpoint_path, kManifestName);
  if (!PathExists(path)) throw CheckpointError("is missing: the save did not finish", path);
  std::string text;
  try {
    text = ReadFile(path);
  } catch (const Error& error) {
    throw CheckpointError(error.what());
  }
  const Manifest manifest = ManifestFromText(text, path);
  if (StepDirectoryName(manifest.step) != BaseName(checkpoint_path))
    throw CheckpointError(StrCat("is of step ", manifest.step, ", its directory says otherwise"), path,
                          "directories of checkpoints must not be renamed");
  for (const auto& [name, f] : manifest.files) {
    const std::string file = JoinPath(checkpoint_path, name);
    if (!PathExists(file)) throw CheckpointError("is missing", file, kDamaged);
    uint64_t bytes = 0;
    try {
      bytes = FileSize(file);
    } catch (const Error& error) {
      throw CheckpointError(error.what());
    }
    if (bytes != f.bytes)
      throw CheckpointError(StrCat("has ", bytes, " bytes, the manifest says ", f.bytes), file, kDamaged);
  }
  return manifest;
}

void VerifyFile(const std::string& checkpoint_path, const std::string& name, const ManifestFile& file) {
  const std::string path = JoinPath(checkpoint_path, name);
  uint32_t crc = 0;
  uint64_t bytes = 0;
  try {
    const MappedFile map(path);
    bytes = map.size();
    crc = Crc32c(map.data(), map.size());
  } catch (const Error& error) {
    throw CheckpointError(error.what());
  }
  if (bytes != file.bytes)
    throw CheckpointError(StrCat("has ", bytes, " bytes, the manifest says ", file.bytes), path, kDamaged);
  if (crc != file.crc32c)
    throw CheckpointError(StrCat("has crc32c ", Hex(crc), ", the manifest says ", Hex(file.crc32c)), path,
                          kDamaged);
}

}  // namespace yardmaster
