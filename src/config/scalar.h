// File: src/config/scalar.h
//
// Types for YAML scalars, stricter than YAML 1.1 where it surprises: `010` is no octal 8 but an error, only
// `true` and `false` are booleans, quoted numbers are text, `1_000`, hexadecimal, nan and inf are refused. An
// integer may be written as a whole number in scientific form, as tokens are: 14.8e12.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/config/yaml_document.h"

namespace yardmaster {

// Each gives the value, or nothing and in `why` a sentence without a place ("expected an integer, found
// true").
std::optional<int64_t> ReadInteger(const YamlNode& node, std::string& why);
std::optional<double> ReadNumber(const YamlNode& node, std::string& why);
std::optional<bool> ReadBoolean(const YamlNode& node, std::string& why);
std::optional<std::string> ReadText(const YamlNode& node, std::string& why);

// "the number 5", "the text 'abc'", "a map", "no value": what a message says was found.
std::string DescribeNode(const YamlNode& node);

// The shortest text that ReadNumber turns into the same double. `value` is finite.
std::string FormatNumber(double value);
// A YAML scalar that ReadText turns into the same text; quoted where it must be.
std::string FormatText(const std::string& text);

}  // namespace yardmaster
