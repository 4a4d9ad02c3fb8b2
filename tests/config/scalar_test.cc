#include "src/config/scalar.h"

#include <cmath>
#include <limits>

#include "tests/catch.h"

namespace yardmaster {
namespace {

YamlNode Plain(const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = text;
  return node;
}

YamlNode Quoted(const std::string& text) {
  YamlNode node = Plain(text);
  node.quoted = true;
  return node;
}

std::string WhyNoInteger(const YamlNode& node) {
  std::string why;
  return ReadInteger(node, why) ? "" : why;
}

std::string WhyNoNumber(const YamlNode& node) {
  std::string why;
  return ReadNumber(node, why) ? "" : why;
}

}  // namespace

TEST_CASE("integers, also in whole scientific form") {
  const std::pair<const char*, int64_t> cases[] = {{"0", 0},
                                                   {"-0", 0},
                                                   {"7", 7},
                                                   {"+7", 7},
                                                   {"-7", -7},
                                                   {"1e9", 1000000000},
                                                   {"14.8e12", 14800000000000},
                                                   {"1.50e1", 15},
                                                   {"100e-2", 1},
                                                   {"2.0", 2},
                                                   {"0e999999999", 0},
                                                   {"9223372036854775807", INT64_MAX},
                                                   {"-9223372036854775808", INT64_MIN},
                                                   {"9.223372036854775807e18", INT64_MAX},
                                                   {"0.0", 0}};
  for (const auto& [text, expected] : cases) {
    INFO(text);
    std::string why;
    const auto value = ReadInteger(Plain(text), why);
    INFO(why);
    REQUIRE(value.has_value());
    CHECK(*value == expected);
  }
}

TEST_CASE("what is no integer says why") {
  CHECK(WhyNoInteger(Plain("010")).find("leading zero") != std::string::npos);
  CHECK(WhyNoInteger(Plain("1_000")).find("separators") != std::string::npos);
  CHECK(WhyNoInteger(Plain("1,000")).find("separators") != std::string::npos);
  CHECK(WhyNoInteger(Plain("9223372036854775808")).find("64-bit") != std::string::npos);
  CHECK(WhyNoInteger(Plain("1e19")).find("64-bit") != std::string::npos);
  CHECK(WhyNoInteger(Plain("1e999999999999999999999")).find("64-bit") != std::string::npos);
  CHECK(WhyNoInteger(Quoted("5")).find("without quotes") != std::string::npos);
  CHECK(WhyNoInteger(Plain("1.5")) == "expected an integer, found the number 1.5");
  CHECK(WhyNoInteger(Plain("1e-1")) != "");
  for (const char* text :
       {"0x10", "0o7", "1e", "e1", "+", "-", ".", "", "12a", "1 2", "--1", "true", "1#x"}) {
    INFO(text);
    CHECK(WhyNoInteger(Plain(text)) != "");
    CHECK(WhyNoNumber(Plain(text)) != "");
  }
}

TEST_CASE("numbers are finite decimals") {
  std::string why;
  CHECK(ReadNumber(Plain("2.2e-4"), why) == 2.2e-4);
  CHECK(ReadNumber(Plain("+.5"), why) == 0.5);
  CHECK(ReadNumber(Plain("5."), why) == 5.0);
  CHECK(ReadNumber(Plain("-3"), why) == -3.0);
  for (const char* text : {"nan", ".nan", ".inf", "-.inf", "inf", "Infinity"}) {
    INFO(text);
    CHECK(WhyNoNumber(Plain(text)).find("finite") != std::string::npos);
  }
  CHECK(WhyNoNumber(Plain("1e400")).find("range") != std::string::npos);
  CHECK(WhyNoNumber(Plain("007")).find("leading zero") != std::string::npos);
  CHECK(WhyNoNumber(Quoted("1.0")).find("without quotes") != std::string::npos);
}

TEST_CASE("booleans are true and false") {
  std::string why;
  CHECK(ReadBoolean(Plain("true"), why) == true);
  CHECK(ReadBoolean(Plain("false"), why) == false);
  for (const char* text : {"yes", "no", "on", "off", "True", "TRUE", "y", "1", "0", ""}) {
    INFO(text);
    CHECK_FALSE(ReadBoolean(Plain(text), why).has_value());
  }
  CHECK_FALSE(ReadBoolean(Quoted("true"), why).has_value());
}

TEST_CASE("text is not taken from numbers and reserved words") {
  std::string why;
  CHECK(ReadText(Plain("runs/tiny"), why) == "runs/tiny");
  CHECK(ReadText(Quoted("5"), why) == "5");
  CHECK(ReadText(Quoted("true"), why) == "true");
  for (const char* text : {"5", "1e3", "true", "No", "010", "1_0"}) {
    INFO(text);
    CHECK_FALSE(ReadText(Plain(text), why).has_value());
  }
}

TEST_CASE("formatted numbers and text read back") {
  for (const double value : {0.0, 1.0, -1.5, 0.1, 2.2e-4, 1e-8, 1e22, 3072.0, 1.7976931348623157e308}) {
    const std::string text = FormatNumber(value);
    INFO(text);
    std::string why;
    CHECK(ReadNumber(Plain(text), why) == value);
  }
  for (const std::string text :
       {"", "a b", "5", "yes", "a: b", "#", "x#y", "\"", "\\", "a\nb", "runs/x-1.0", "-", "~"}) {
    const std::string formatted = FormatText(text);
    INFO(formatted);
    Issues issues;
    const auto root = ParseYaml("k: " + formatted + "\n", "f", issues);
    REQUIRE(root.has_value());
    REQUIRE(issues.empty());
    std::string why;
    CHECK(ReadText(root->Find("k")->value, why) == text);
  }
}

}  // namespace yardmaster
