#include "src/tensor/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "src/base/hash.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
const char kMetadataKey[] = "__metadata__";

// Bits per element of every dtype of the format; 0: unknown.
uint64_t DTypeBits(const std::string& name) {
  static const std::map<std::string, uint64_t> bits = {
      {"BOOL", 8},        {"U8", 8},      {"I8", 8},      {"U16", 16},    {"I16", 16},    {"U32", 32},
      {"I32", 32},        {"U64", 64},    {"I64", 64},    {"F16", 16},    {"BF16", 16},   {"F32", 32},
      {"F64", 64},        {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};
  const auto it = bits.find(name);
  return it == bits.end() ? 0 : it->second;
}

// One entry as the JSON says it, before any check of its meaning.
struct RawEntry {
  bool has_dtype = false, has_shape = false, has_offsets = false;
  std::string dtype;
  std::vector<uint64_t> shape, offsets;
};

// Takes the header's JSON as a stream of events, so that duplicate keys, nesting and number types are seen as
// they are written (a parsed tree has silently kept the last of two equal keys).
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  std::map<std::string, RawEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool key(string_t& name) override {
    if (depth_ == 1) {
      tensor_ = name;
      if (!names_.insert(name).second) return Fail(StrCat("'", name, "' is there twice"));
      in_metadata_ = name == kMetadataKey;
      expect_object_ = true;
      return true;
    }
    field_ = name;
    if (in_metadata_) {
      if (metadata.count(name)) return Fail(StrCat("metadata '", name, "' is there twice"));
      return true;
    }
    RawEntry& entry = entries[tensor_];
    bool* seen = name == "dtype"          ? &entry.has_dtype
                 : name == "shape"        ? &entry.has_shape
                 : name == "data_offsets" ? &entry.has_offsets
                                          : nullptr;
    if (seen == nullptr) return Fail(StrCat("tensor '", tensor_, "' has an unknown field '", name, "'"));
    if (*seen) return Fail(StrCat("tensor '", tensor_, "' has '", name, "' twice"));
    *seen = true;
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ == 0 || (depth_ == 1 && expect_object_)) {
      if (depth_ == 1 && !in_metadata_) entries[tensor_];
      expect_object_ = false;
      ++depth_;
      return true;
    }
    return Unexpected("an object");
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || (field_ != "shape" && field_ != "data_offsets"))
      return Unexpected("an array");
    return ++depth_, true;
  }
  bool end_array() override { return --depth_, true; }
  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) return metadata[field_] = value, true;
    if (depth_ == 2 && field_ == "dtype") return entries[tensor_].dtype = value, true;
    return Unexpected("a string");
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3) return Unexpected("a number");
    RawEntry& entry = entries[tensor_];
    (field_ == "shape" ? entry.shape : entry.offsets).push_back(value);
    return true;
  }
  bool number_integer(number_integer_t) override { return Unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected(StrCat("the number ", text.substr(0, 40), " (not a whole number of 64 bits)"));
  }
  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(StrCat("the header is not valid JSON at byte ", position));
  }

 private:
  bool Fail(const std::string& text) {
    if (problem.empty()) problem = text;
    return false;
  }
  bool Unexpected(const std::string& what) {
    if (depth_ == 0) return Fail(StrCat("the header is not an object but ", what));
    return Fail(
        StrCat(what, " where none belongs, in '", tensor_, "'", depth_ > 1 ? " '" + field_ + "'" : ""));
  }
  int depth_ = 0;  // 1: in the header, 2: in an entry or the metadata, 3: in an array
  bool in_metadata_ = false, expect_object_ = false;
  std::string tensor_, field_;
  std::set<std::string> names_;
};

MappedFile MapWithCode(const std::string& path, ExitCode code) {
  try {
    return MappedFile(path);
  } catch (const Error& error) {
    throw Error(code, error.what());
  }
}

// Empty if all is well.
std::string CheckEntry(const std::string& name, const RawEntry& raw, SafetensorsFile::Entry* entry) {
  const std::string where = StrCat("tensor '", name, "' ");
  if (!raw.has_dtype || !raw.has_shape || !raw.has_offsets)
    return where + "lacks " + (!raw.has_dtype ? "dtype" : !raw.has_shape ? "shape" : "data_offsets");
  const uint64_t bits = DTypeBits(raw.dtype);
  if (bits == 0) return where + "has the unknown dtype '" + raw.dtype + "'";
  if (raw.offsets.size() != 2) return StrCat(where, "has ", raw.offsets.size(), " data_offsets, not 2");
  if (raw.offsets[0] > raw.offsets[1])
    return StrCat(where, "ends (", raw.offsets[1], ") before it begins (", raw.offsets[0], ")");
  uint64_t total = 1;
  for (const uint64_t d : raw.shape)
    if (d > uint64_t{std::numeric_limits<int64_t>::max()} || __builtin_mul_overflow(total, d, &total))
      return where + "has a shape of more than 2^63 elements";
  if (total > uint64_t{std::numeric_limits<int64_t>::max()} || __builtin_mul_overflow(total, bits, &total))
    return where + "has a shape of more than 2^63 elements";
  if (total % 8 != 0) return where + "does not end at a whole byte";
  entry->bytes = raw.offsets[1] - raw.offsets[0];
  if (entry->bytes != total / 8)
    return StrCat(where, "has ", entry->bytes, " bytes of data, but its shape and dtype need ", total / 8);
  entry->dtype = raw.dtype;
  entry->shape.assign(raw.shape.begin(), raw.shape.end());
  return "";
}

uint64_t LoadU64(const std::byte* p) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= uint64_t{static_cast<unsigned char>(p[i])} << 8 * i;
  return value;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path, ExitCode code)
    : file_(MapWithCode(path, code)), code_(code) {
  const auto fail = [&](const std::string& what) {
    throw Error(code, what, path, "the file is damaged, incomplete or not a safetensors file");
  };
  if (file_.size() < 8) fail(StrCat("has ", file_.size(), " bytes, too few for a safetensors header"));
  const uint64_t header_bytes = LoadU64(file_.data());
  if (header_bytes > kMaxHeaderBytes)
    fail(StrCat("the header says that it is ", header_bytes, " bytes long, over 100 MB"));
  if (header_bytes > file_.size() - 8)
    fail(StrCat("the header says that it is ", header_bytes, " bytes long, the file has ", file_.size()));
  const char* header = reinterpret_cast<const char*>(file_.data()) + 8;
  if (header_bytes == 0 || header[0] != '{') fail("the header does not begin with {");
  HeaderHandler handler;
  if (!Json::sax_parse(header, header + header_bytes, &handler) || !handler.problem.empty())
    fail(handler.problem.empty() ? "the header is not valid JSON" : handler.problem);
  metadata_ = std::move(handler.metadata);

  struct Extent {
    uint64_t begin, end;
    const std::string* name;
  };
  std::vector<Extent> extents;
  const uint64_t data_begin = 8 + header_bytes, data_bytes = file_.size() - data_begin;
  for (const auto& [name, raw] : handler.entries) {
    Entry entry;
    const std::string problem = CheckEntry(name, raw, &entry);
    if (!problem.empty()) fail(problem);
    if (raw.offsets[1] > data_bytes)
      fail(StrCat("tensor '", name, "' ends at byte ", raw.offsets[1], " of the data, the file has ",
                  data_bytes));
    entry.offset = data_begin + raw.offsets[0];
    extents.push_back({raw.offsets[0], raw.offsets[1], &name});
    names_.push_back(name);
    entries_.emplace(name, std::move(entry));
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t expected = 0;
  for (const Extent& e : extents) {
    if (e.begin != expected)
      fail(StrCat("tensor '", *e.name, "' begins at byte ", e.begin, " of the data, the one before ends at ",
                  expected));
    expected = e.end;
  }
  if (expected != data_bytes)
    fail(StrCat("the tensors end at byte ", expected, " of the data, the file has ", data_bytes));
}

const SafetensorsFile::Entry& SafetensorsFile::Describe(const std::string& name) const {
  const auto it = entries_.find(name);
  if (it != entries_.end()) return it->second;
  const std::string near = NearestName(name, names_);
  throw Error(code_, StrCat("has no tensor '", name, "'"), path(),
              near.empty() ? "" : StrCat("there is '", near, "'"));
}

Tensor SafetensorsFile::Get(const std::string& name) const {
  const Entry& entry = Describe(name);
  DType dtype;
  if (!DTypeFromName(entry.dtype, &dtype))
    throw Error(code_, StrCat("tensor '", name, "' has dtype ", entry.dtype, ", which cannot be read here"),
                path());
  if (entry.shape.size() > Shape::kMaxRank)
    throw Error(code_,
                StrCat("tensor '", name, "' has ", entry.shape.size(), " axes, at most ", Shape::kMaxRank,
                       " can be read here"),
                path());
  const Shape shape(entry.shape);
  const std::byte* data = file_.data() + entry.offset;
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(DTypeBytes(dtype)) == 0)
    return Tensor(const_cast<std::byte*>(data), dtype, shape);
  auto it = aligned_.find(name);
  if (it == aligned_.end()) {
    it = aligned_.emplace(name, HostTensor(dtype, shape)).first;
    std::memcpy(it->second.view().data(), data, entry.bytes);
  }
  return it->second.view();
}

namespace {

std::string Quoted(const std::string& text, const std::string& path) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    throw Error(ExitCode::kData, "a tensor name or metadata text is not valid UTF-8", path);
  }
}

std::string MakeHeader(const std::vector<const SafetensorsSource*>& order,
                       const std::map<std::string, std::string>& metadata, const std::string& path) {
  std::string header = "{";
  const char* separator = "";
  if (!metadata.empty()) {
    header += Quoted(kMetadataKey, path) + ":{";
    for (const auto& [key, value] : metadata) {
      header += separator + Quoted(key, path) + ":" + Quoted(value, path);
      separator = ",";
    }
    header += "}";
    separator = ",";
  }
  uint64_t begin = 0;
  for (const SafetensorsSource* s : order) {
    const uint64_t end = begin + static_cast<uint64_t>(s->shape.elements() * DTypeBytes(s->dtype));
    header +=
        StrCat(separator, Quoted(s->name, path), ":{\"dtype\":\"", DTypeName(s->dtype), "\",\"shape\":[");
    for (int i = 0; i < s->shape.rank(); ++i) header += (i ? "," : "") + std::to_string(s->shape[i]);
    header += StrCat("],\"data_offsets\":[", begin, ",", end, "]}");
    begin = end;
    separator = ",";
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

SafetensorsWritten WriteSafetensorsFrom(const std::string& path,
                                        const std::vector<SafetensorsSource>& sources,
                                        const std::map<std::string, std::string>& metadata, bool fsync,
                                        uint64_t chunk_bytes) {
  YM_CHECK(chunk_bytes > 0);
  std::vector<const SafetensorsSource*> order;
  for (const SafetensorsSource& s : sources) {
    YM_CHECK(s.name != kMetadataKey, "not a name for a tensor: ", s.name);
    order.push_back(&s);
  }
  // All our dtypes are as large as their alignment.
  std::sort(order.begin(), order.end(), [](const SafetensorsSource* a, const SafetensorsSource* b) {
    return std::pair(-DTypeBytes(a->dtype), a->name) < std::pair(-DTypeBytes(b->dtype), b->name);
  });
  std::set<std::string> seen;
  for (const SafetensorsSource* s : order)
    if (!seen.insert(s->name).second)
      throw Error(ExitCode::kData, StrCat("tensor '", s->name, "' is there twice"), path);

  const std::string header = MakeHeader(order, metadata, path);
  if (header.size() > kMaxHeaderBytes) throw Error(ExitCode::kData, "the header would be over 100 MB", path);
  SafetensorsWritten out;
  FileWriter writer(path);
  const auto write = [&](const void* data, uint64_t bytes) {
    writer.Write(data, bytes);
    out.crc32c = Crc32c(data, bytes, out.crc32c);
  };
  unsigned char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(header.size() >> 8 * i);
  write(length, 8);
  write(header.data(), header.size());
  std::vector<char> chunk;
  for (const SafetensorsSource* s : order) {
    const uint64_t bytes = static_cast<uint64_t>(s->shape.elements() * DTypeBytes(s->dtype));
    out.offsets[s->name] = writer.bytes_written();
    std::vector<uint32_t>& crcs = out.chunk_crc32c[s->name];
    for (uint64_t begin = 0; begin < bytes; begin += chunk_bytes) {
      const uint64_t now = std::min(chunk_bytes, bytes - begin);
      if (chunk.size() < now) chunk.resize(now);
      s->read(begin, now, chunk.data());
      crcs.push_back(Crc32c(chunk.data(), now));
      write(chunk.data(), now);
    }
  }
  writer.Close(fsync);
  out.file_bytes = writer.bytes_written();
  return out;
}

SafetensorsWritten WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                                    const std::map<std::string, std::string>& metadata, bool fsync) {
  std::vector<SafetensorsSource> sources;
  for (const NamedTensor& t : tensors) {
    YM_CHECK(t.tensor.contiguous(), "only contiguous tensors can be written: ", t.name);
    const char* data = static_cast<const char*>(t.tensor.data());
    YM_CHECK(data != nullptr || t.tensor.elements() == 0, "tensor without data: ", t.name);
    sources.push_back(
        {t.name, t.tensor.dtype(), t.tensor.shape(),
         [data](uint64_t begin, uint64_t bytes, void* out) { std::memcpy(out, data + begin, bytes); }});
  }
  return WriteSafetensorsFrom(path, sources, metadata, fsync, uint64_t{64} << 20);
}

}  // namespace yardmaster
