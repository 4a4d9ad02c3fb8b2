// File: src/config/yaml_document.h
//
// YAML text as a small tree in which every key and value knows its place. The only user of yaml-cpp.
//
// The YAML accepted is a strict subset, so that a file has one meaning to every reader. On top of yaml-cpp
// 0.7's own errors it refuses duplicate keys, anchors, aliases, merge keys, tags, directives, several
// documents, tabs and other control characters, text that is not UTF-8, values that run over several lines,
// nesting deeper than 16 and files over 256 KiB. Scalars stay text here; scalar.h gives them types.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "src/config/issues.h"

namespace yardmaster {

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kEmpty, kScalar, kList, kMap };

  // kNull was written (`null`, `~`); kEmpty is nothing at all.
  Kind kind = Kind::kEmpty;
  Place place;
  std::string text;                // kScalar
  bool quoted = false;             // kScalar: was in quotes, so never a number, boolean or null
  std::vector<YamlNode> items;     // kList
  std::vector<YamlEntry> entries;  // kMap, in the order of the file, names distinct

  bool is_map() const { return kind == Kind::kMap; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_null() const { return kind == Kind::kNull; }
  const YamlEntry* Find(const std::string& key) const;  // nullptr if there is none
  YamlEntry* Find(const std::string& key);
};

struct YamlEntry {
  std::string key;
  Place place;  // of the key
  YamlNode value;
};

inline constexpr size_t kMaxYamlBytes = 256 << 10;

// Parses one document. Whatever is wrong goes to `issues`: nothing is returned where no tree can be made of
// the text, and a tree without the refused entries where it can, so that the caller finds what else is wrong.
// An empty text gives kEmpty. `file` names the text in messages.
std::optional<YamlNode> ParseYaml(const std::string& text, const std::string& file, Issues& issues);

// The same for the value of a command line override; every place is `argument` itself, without line and
// column.
std::optional<YamlNode> ParseYamlValue(const std::string& text, const std::string& argument, Issues& issues);

}  // namespace yardmaster
