#include "src/config/yaml_document.h"

#include "src/base/strings.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

// The issues of a text, one line each.
std::string IssuesOf(const std::string& text) {
  Issues issues;
  ParseYaml(text, "f.yaml", issues);
  return StrJoin(issues.Lines(), "\n");
}

}  // namespace

TEST_CASE("a document becomes a tree with places") {
  Issues issues;
  const auto root = ParseYaml("# c\na: 1\nb:\n  c: [x, \"2\"]\n  d: ~\n  e:\n", "f.yaml", issues);
  REQUIRE(issues.empty());
  REQUIRE(root.has_value());
  REQUIRE(root->is_map());
  REQUIRE(root->entries.size() == 2);
  CHECK(root->entries[0].place.ToString() == "f.yaml:2:1");
  CHECK(root->entries[0].value.place.ToString() == "f.yaml:2:4");
  CHECK(root->entries[0].value.text == "1");
  const YamlNode& b = root->entries[1].value;
  REQUIRE(b.Find("c") != nullptr);
  REQUIRE(b.Find("c")->value.items.size() == 2);
  CHECK_FALSE(b.Find("c")->value.items[0].quoted);
  CHECK(b.Find("c")->value.items[1].quoted);
  CHECK(b.Find("c")->value.items[1].place.ToString() == "f.yaml:4:10");
  CHECK(b.Find("d")->value.kind == YamlNode::Kind::kNull);
  CHECK(b.Find("e")->value.kind == YamlNode::Kind::kEmpty);
  CHECK(b.Find("e")->value.place.ToString() == "f.yaml:6:3");
  CHECK(b.Find("f") == nullptr);
}

TEST_CASE("an absent value before a key named null is not null") {
  Issues issues;
  const auto root = ParseYaml("a:\nb: null\n", "f", issues);
  REQUIRE(root.has_value());
  CHECK(root->Find("a")->value.kind == YamlNode::Kind::kEmpty);
  CHECK(root->Find("b")->value.kind == YamlNode::Kind::kNull);
}

TEST_CASE("what readers of YAML disagree about is refused with its place") {
  const std::pair<const char*, const char*> cases[] = {
      {"a: 1\nb: 2\na: 3\n", "f.yaml:3:1: duplicate key 'a'; it is already given in line 1"},
      {"a: {b: 1, b: 2}\n", "f.yaml:1:11: duplicate key 'b'"},
      {"a: &x 1\n", "anchors"},
      {"a: &x {b: 1}\nc: *x\n", "anchors"},
      {"a: *x\n", "f.yaml:1:4"},
      {"a:\n  <<: {b: 1}\n", "f.yaml:2:3: merge keys"},
      {"a: !!int 1\n", "tags"},
      {"a: !x {b: 1}\n", "tags"},
      {"a: 1\n---\nb: 2\n", "f.yaml:2:1: text after the end of the document"},
      {"a: 1\n...\nb: 2\n", "text after the end of the document"},
      {"%YAML 1.2\n---\na: 1\n", "f.yaml:1:1: YAML directives"},
      {"a: 1\n\tb: 2\n", "f.yaml:2:1: a tab"},
      {"a:\t1\n", "f.yaml:1:3: a tab"},
      {"a: \x01\n", "f.yaml:1:4: the control character 0x01"},
      {"a: \xff\n", "f.yaml:1:4: not UTF-8"},
      {"a: \xc0\xaf\n", "not UTF-8"},
      {"a: \xed\xa0\x80\n", "not UTF-8"},
      {"a: x\n  y\n", "f.yaml:1:4: this value runs over several lines"},
      {"a: \"x\n  y\"\n", "f.yaml:1:4: a quoted string must end on its line"},
      {"a: |\n  x\n", "block scalars"},
      {"? [a]\n: 1\n", "a key must be a name"},
      {"{a: 1\n", "f.yaml:"},
      {"a: [1, 2\nb: 3\n", "f.yaml:"},
      {"a: 1\n b: 2\n", "f.yaml:1:4: this value runs over several lines"},
      {"a: 1\nb 2\nc: 3\n", "f.yaml:"},
      {"a\n  b: 1\n", "f.yaml:"},
      {"a: \"x\n", "f.yaml:"},
      {"a: 1\n]\n", "f.yaml:2:1"},
      {": 1\n", "f.yaml:1:1"},
      {"\"\": 1\n", "f.yaml:1:1: a key without a name"},
  };
  for (const auto& [text, expected] : cases) {
    INFO(text);
    const std::string found = IssuesOf(text);
    INFO(found);
    CHECK(found.find(expected) != std::string::npos);
    CHECK(found.starts_with("f.yaml:"));
  }
  CHECK(IssuesOf(std::string("a: 1\0\n", 6)).find("0x00") != std::string::npos);
}

TEST_CASE("sizes and depths have limits") {
  CHECK(IssuesOf(std::string(kMaxYamlBytes + 1, '#')).find("larger than") != std::string::npos);
  CHECK(IssuesOf(std::string(kMaxYamlBytes, '#')).empty());
  CHECK(IssuesOf("a: " + std::string(16, '[') + std::string(16, ']')).find("nested deeper") !=
        std::string::npos);
  CHECK(IssuesOf("a: " + std::string(15, '[') + std::string(15, ']')).empty());
  CHECK(IssuesOf("a: " + std::string(100000, '[') + std::string(100000, ']')).find("nested deeper") !=
        std::string::npos);
  CHECK(IssuesOf("a: " + std::string(100000, '[')).starts_with("f.yaml:1:"));
  CHECK(IssuesOf("a: " + std::string(100000, '{')).starts_with("f.yaml:1:"));
  std::string dashes;
  for (int i = 0; i < 50000; ++i) dashes += "- ";
  CHECK(IssuesOf(dashes).find("nested deeper") != std::string::npos);
}

TEST_CASE("several recoverable mistakes are reported together, in order") {
  const std::string found = IssuesOf("a: 1\na: 2\nb:\n  c: 1\n  c: 2\n");
  CHECK(found ==
        "f.yaml:2:1: duplicate key 'a'; it is already given in line 1\n"
        "f.yaml:5:3: duplicate key 'c'; it is already given in line 4");
}

TEST_CASE("a byte order mark, Windows line ends and quotes are fine") {
  Issues issues;
  const auto root = ParseYaml(
      "\xEF\xBB\xBF"
      "a: 'it''s'\r\nb: \"x \\\" y\"\r\nc: \"\xc3\xa9\" # comment\n",
      "f", issues);
  CHECK(StrJoin(issues.Lines(), "\n") == "");
  REQUIRE(root.has_value());
  CHECK(root->Find("a")->value.text == "it's");
  CHECK(root->Find("b")->value.text == "x \" y");
  CHECK(root->Find("c")->value.text == "\xc3\xa9");
}

TEST_CASE("issues beyond the limit are counted") {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "a: 1\n";
  Issues issues;
  ParseYaml(text, "f", issues);
  CHECK(issues.Lines().size() == 201);
  CHECK(issues.Lines().back() == "... and 99 more");
}

}  // namespace yardmaster
