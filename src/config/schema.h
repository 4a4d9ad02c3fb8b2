// File: src/config/schema.h
//
// The one list of what a configuration may contain: each field with its name, meaning, accepted values and
// place in Config. Reading, overriding, printing and the reference page all walk this list, so that they
// cannot disagree. To add a field: a member in config.h (with its default) and a line in schema.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/config/config.h"
#include "src/config/value_range.h"

namespace yardmaster {

// Where a field's value lies, and of which type it is. monostate: a field of published config.json files that
// has one accepted value here and is not stored (`only`).
using FieldPointer = std::variant<std::monostate, int64_t*, double*, bool*, std::string*, Schedule*,
                                  std::optional<RopeScaling>*>;

struct Field {
  std::string name, doc;
  std::function<FieldPointer(Config&)> access;
  ValueRange range;                  // of integers, numbers and schedules
  std::vector<std::string> choices;  // of text; empty: any
  bool or_integer = false;           // text may also be an integer of at least 0
  bool required = false;
  bool null_is_zero = false;  // null stands for 0, as in config.json
  bool auto_is_zero = false;  // an integer that may be `auto`, kept as 0
  bool whole = false;         // a schedule of whole numbers
  bool non_empty = false;     // text must not be empty
  std::string only;           // the accepted value of a field that is not stored

  Field& Required() { return required = true, *this; }
  Field& AtLeast(double v) { return range.min = v, range.above = false, *this; }
  Field& AtMost(double v) { return range.max = v, range.below = false, *this; }
  Field& Above(double v) { return range.min = v, range.above = true, *this; }
  Field& Below(double v) { return range.max = v, range.below = true, *this; }
  Field& OneOf(std::vector<std::string> v) { return choices = std::move(v), *this; }
  Field& OrInteger() { return or_integer = true, *this; }
  Field& NullIsZero() { return null_is_zero = true, *this; }
  Field& AutoIsZero() { return auto_is_zero = true, *this; }
  Field& Whole() { return whole = true, *this; }
  Field& NonEmpty() { return non_empty = true, *this; }
};

struct Section {
  std::string path;  // "optimizer"; "model.rope_scaling" is a section inside a section
  std::string doc;
  std::vector<Field> fields;
};

// In the order in which sections are read and printed: `train` comes before the sections with schedules,
// because it says how many tokens a step has.
const std::vector<Section>& ConfigSchema();

// nullptr if there is none.
const Section* FindSection(const std::string& path);
const Field* FindField(const Section& section, const std::string& name);

}  // namespace yardmaster
