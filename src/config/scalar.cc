#include "src/config/scalar.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include "src/base/check.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// A decimal number as written: sign, digits without the point, and the power of ten that they are to be
// scaled by.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;
};

// [-+]? (digits [. digits*] | . digits) ([eE] [-+]? digits)?  Nothing, and the reason, for anything else.
std::optional<Decimal> ParseDecimal(std::string_view s, std::string& why) {
  Decimal out;
  size_t i = 0;
  if (i < s.size() && (s[i] == '-' || s[i] == '+')) out.negative = s[i++] == '-';
  const size_t first = i;
  while (i < s.size() && IsDigit(s[i])) out.digits += s[i++];
  const size_t whole = i - first;
  if (i < s.size() && s[i] == '.') {
    for (++i; i < s.size() && IsDigit(s[i]); ++i) out.digits += s[i], --out.exponent;
  }
  if (out.digits.empty()) return std::nullopt;
  if (i < s.size() && (s[i] == 'e' || s[i] == 'E')) {
    ++i;
    bool negative = false;
    if (i < s.size() && (s[i] == '-' || s[i] == '+')) negative = s[i++] == '-';
    const size_t begin = i;
    int64_t exponent = 0;
    for (; i < s.size() && IsDigit(s[i]); ++i)
      exponent = std::min<int64_t>(exponent * 10 + (s[i] - '0'), 1000000);
    if (i == begin) return std::nullopt;
    out.exponent += negative ? -exponent : exponent;
  }
  if (i != s.size()) {
    if (s[i] == '_' || s[i] == ',') why = "; write numbers without separators";
    return std::nullopt;
  }
  if (whole > 1 && s[first] == '0') {
    why = "; write it without the leading zero (YAML 1.1 reads it as octal)";
    return std::nullopt;
  }
  return out;
}

bool LooksLikeNumber(std::string_view text) {
  std::string why;
  return ParseDecimal(text, why).has_value() || !why.empty();
}

// Words that some YAML readers take for booleans, nulls or numbers.
bool IsReservedWord(std::string_view text) {
  static constexpr std::string_view kWords[] = {"true", "false", "yes", "no",   "on",    "off",   "y",
                                                "n",    "null",  "~",   ".inf", "-.inf", "+.inf", ".nan"};
  const std::string lower = Lower(text);
  return std::find(std::begin(kWords), std::end(kWords), lower) != std::end(kWords);
}

bool IsPlainScalar(const YamlNode& node) { return node.kind == YamlNode::Kind::kScalar && !node.quoted; }

}  // namespace

std::string DescribeNode(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kEmpty:
      return "no value";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a map";
    case YamlNode::Kind::kScalar:
      break;
  }
  std::string text = node.text.substr(0, 60);
  if (text.size() < node.text.size()) text += "...";
  if (node.quoted) return StrCat("the text \"", text, "\"");
  if (LooksLikeNumber(node.text)) return StrCat("the number ", text);
  return StrCat("'", text, "'");
}

std::optional<int64_t> ReadInteger(const YamlNode& node, std::string& why) {
  why = StrCat("expected an integer, found ", DescribeNode(node));
  if (node.quoted && LooksLikeNumber(node.text)) why += "; write it without quotes";
  if (!IsPlainScalar(node)) return std::nullopt;
  std::string detail;
  std::optional<Decimal> decimal = ParseDecimal(node.text, detail);
  why += detail;
  if (!decimal) return std::nullopt;
  std::string& digits = decimal->digits;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return 0;
  while (digits.back() == '0') digits.pop_back(), ++decimal->exponent;
  if (decimal->exponent < 0) return std::nullopt;  // a fraction is left
  std::optional<int64_t> value;
  if (decimal->exponent < 19 && digits.size() + static_cast<size_t>(decimal->exponent) <= 19) {
    digits.append(static_cast<size_t>(decimal->exponent), '0');
    if (decimal->negative) digits.insert(0, "-");
    int64_t parsed = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), parsed);
    if (result.ec == std::errc()) value = parsed;
  }
  if (!value) why = StrCat(node.text.substr(0, 60), " is outside the range of 64-bit integers");
  return value;
}

std::optional<double> ReadNumber(const YamlNode& node, std::string& why) {
  why = StrCat("expected a number, found ", DescribeNode(node));
  if (node.quoted && LooksLikeNumber(node.text)) why += "; write it without quotes";
  if (!IsPlainScalar(node)) return std::nullopt;
  std::string detail;
  const std::optional<Decimal> decimal = ParseDecimal(node.text, detail);
  why += detail;
  if (!decimal) {
    const std::string lower = Lower(node.text);
    if (lower.find("inf") != std::string::npos || lower.find("nan") != std::string::npos) {
      why += "; only finite numbers are accepted";
    }
    return std::nullopt;
  }
  std::string_view text = node.text;
  if (text[0] == '+') text.remove_prefix(1);  // from_chars takes no plus sign
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || !std::isfinite(value)) {
    why = StrCat(node.text.substr(0, 60), " is outside the range of doubles");
    return std::nullopt;
  }
  return value;
}

std::optional<bool> ReadBoolean(const YamlNode& node, std::string& why) {
  why = StrCat("expected true or false, found ", DescribeNode(node));
  if (!IsPlainScalar(node)) return std::nullopt;
  if (node.text == "true") return true;
  if (node.text == "false") return false;
  return std::nullopt;
}

std::optional<std::string> ReadText(const YamlNode& node, std::string& why) {
  why = StrCat("expected text, found ", DescribeNode(node));
  if (node.kind != YamlNode::Kind::kScalar) return std::nullopt;
  if (!node.quoted && (LooksLikeNumber(node.text) || IsReservedWord(node.text))) {
    why += StrCat("; if it is meant as text, write \"", node.text.substr(0, 60), "\"");
    return std::nullopt;
  }
  return node.text;
}

std::string FormatNumber(double value) {
  YM_CHECK(std::isfinite(value));
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  YM_CHECK(result.ec == std::errc());
  return std::string(buffer, result.ptr);
}

std::string FormatText(const std::string& text) {
  const bool plain = !text.empty() && !LooksLikeNumber(text) && !IsReservedWord(text) && text[0] != '-' &&
                     std::all_of(text.begin(), text.end(), [](unsigned char c) {
                       return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/';
                     });
  if (plain) return text;
  std::string out = "\"";
  for (const char c : text) {
    const unsigned char u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20 || u == 0x7F) {
      out += StrFormat("\\x%02x", u);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace yardmaster
