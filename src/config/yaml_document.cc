#include "src/config/yaml_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "src/base/strings.h"

namespace yardmaster {
namespace {

constexpr size_t kMaxDepth = 16;

// Thrown out of yaml-cpp's parser when an issue makes going on pointless.
struct StopParsing {};

// The bytes of the UTF-8 character at `s` (RFC 3629: no overlong forms, no surrogates), or 0.
size_t Utf8Length(std::string_view s) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const auto tail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned a = byte(0), b = byte(1);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return tail(1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    if (!tail(1) || !tail(2) || (a == 0xE0 && b < 0xA0) || (a == 0xED && b > 0x9F)) return 0;
    return 3;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3) || (a == 0xF0 && b < 0x90) || (a == 0xF4 && b > 0x8F)) return 0;
    return 4;
  }
  return 0;
}

class TreeBuilder : public YAML::EventHandler {
 public:
  // `in_file` is false for a command line argument, whose places have no line.
  TreeBuilder(const std::string& text, const std::string& file, bool in_file, Issues& issues)
      : file_(file), in_file_(in_file), issues_(issues), lines_(StrSplit(text, '\n')) {}

  YamlNode& root() { return root_; }

  Place At(const YAML::Mark& mark) const {
    if (!in_file_) return {file_, 0, 0};
    if (mark.is_null()) return {file_, 1, 1};
    return {file_, mark.line + 1, mark.column + 1};
  }

  // Characters that no configuration needs and that readers disagree about. False: not worth parsing.
  bool CheckCharacters() {
    for (size_t i = 0; i < lines_.size(); ++i) {
      const std::string& line = lines_[i];
      const auto refuse = [&](size_t column, const std::string& message) {
        issues_.Add(in_file_ ? Place{file_, static_cast<int>(i) + 1, static_cast<int>(column) + 1}
                             : Place{file_, 0, 0},
                    "", message);
        return false;
      };
      if (!line.empty() && line[0] == '%') return refuse(0, "YAML directives (%) are not accepted");
      for (size_t j = 0; j < line.size();) {
        const unsigned char c = static_cast<unsigned char>(line[j]);
        const size_t length = Utf8Length(std::string_view(line).substr(j));
        if (length == 0) return refuse(j, "not UTF-8 text");
        if (c == '\t') return refuse(j, "a tab: indent and separate with spaces");
        if ((c < 0x20 && !(c == '\r' && j + 1 == line.size() && i + 1 < lines_.size())) || c == 0x7F) {
          return refuse(j, StrFormat("the control character 0x%02x", c));
        }
        j += length;
      }
    }
    return true;
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) Stop(mark, "text after the end of the document; one document per file");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    RefuseAnchor(mark, anchor);
    YamlNode node;
    node.place = At(mark);
    const std::string_view rest = RestOfLine(mark);
    const bool written = rest.starts_with("~") || rest.starts_with("null") || rest.starts_with("Null") ||
                         rest.starts_with("NULL");
    node.kind = written ? YamlNode::Kind::kNull : YamlNode::Kind::kEmpty;
    if (ExpectsKey()) Stop(mark, "a key without a name");
    Attach(std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Stop(mark, "aliases (*name) are not accepted: repeat the value");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.place = At(mark);
    node.text = value;
    node.quoted = tag == "!";
    CheckOneLine(mark, node);
    if (ExpectsKey()) {
      TakeKey(mark, node);
    } else {
      Attach(std::move(node));
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Frame {
    YamlNode node;
    std::string key;  // the pending key of a map
    Place key_place;
    bool has_key = false;
    bool drop_value = false;                     // of a duplicate or refused key
    std::unordered_map<std::string, int> lines;  // key -> line of its first use
  };

  [[noreturn]] void Stop(const YAML::Mark& mark, const std::string& message) {
    issues_.Add(At(mark), "", message);
    throw StopParsing();
  }

  bool ExpectsKey() const { return !stack_.empty() && stack_.back().node.is_map() && !stack_.back().has_key; }

  std::string_view RestOfLine(const YAML::Mark& mark) const {
    if (mark.is_null() || mark.line < 0 || static_cast<size_t>(mark.line) >= lines_.size()) return {};
    const std::string_view line = lines_[static_cast<size_t>(mark.line)];
    const size_t column = static_cast<size_t>(std::max(mark.column, 0));
    return column <= line.size() ? line.substr(column) : std::string_view();
  }

  void RefuseAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) Stop(mark, "anchors (&name) are not accepted: repeat the value");
  }

  // yaml-cpp gives "?" to plain and "!" to quoted scalars; everything else was written by the user.
  void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") Stop(mark, "tags (!name) are not accepted");
  }

  // A value folded over lines is nearly always a forgotten colon, quote or dash.
  void CheckOneLine(const YAML::Mark& mark, const YamlNode& node) {
    const std::string_view rest = RestOfLine(mark);
    if (!node.quoted) {
      if (!rest.starts_with(node.text)) {
        Stop(mark, "this value runs over several lines; is a colon or a bracket missing?");
      }
      return;
    }
    const char quote = rest.empty() ? '\0' : rest[0];
    if (quote != '"' && quote != '\'')
      Stop(mark, "block scalars (| and >) are not accepted: use a quoted string");
    for (size_t i = 1; i < rest.size(); ++i) {
      if (quote == '"' && rest[i] == '\\') {
        ++i;
      } else if (rest[i] == quote) {
        if (quote == '"' || i + 1 >= rest.size() || rest[i + 1] != quote) return;
        ++i;  // '' is a quote inside single quotes
      }
    }
    Stop(mark, "a quoted string must end on its line; is the closing quote missing?");
  }

  void TakeKey(const YAML::Mark& mark, const YamlNode& node) {
    Frame& frame = stack_.back();
    frame.key = node.text;
    frame.key_place = node.place;
    frame.has_key = true;
    frame.drop_value = true;
    if (node.text == "<<" && !node.quoted) {
      issues_.Add(node.place, "", "merge keys (<<) are not accepted: repeat the values");
    } else if (node.text.empty()) {
      issues_.Add(node.place, "", "a key without a name");
    } else if (const auto [it, fresh] = frame.lines.emplace(node.text, mark.line + 1); !fresh) {
      issues_.Add(node.place, "",
                  StrCat("duplicate key '", node.text, "'; it is already given",
                         in_file_ ? StrCat(" in line ", it->second) : std::string(), ""));
    } else {
      frame.drop_value = false;
    }
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    if (ExpectsKey()) Stop(mark, "a key must be a name, not a list or map; is a bracket missing?");
    if (stack_.size() >= kMaxDepth) Stop(mark, StrCat("nested deeper than ", kMaxDepth, " levels"));
    Frame frame;
    frame.node.kind = kind;
    frame.node.place = At(mark);
    stack_.push_back(std::move(frame));
  }

  void Close() {
    YamlNode node = std::move(stack_.back().node);
    stack_.pop_back();
    Attach(std::move(node));
  }

  void Attach(YamlNode node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = stack_.back();
    if (frame.node.is_list()) {
      frame.node.items.push_back(std::move(node));
      return;
    }
    // An absent value has no place of its own: yaml-cpp marks whatever follows.
    if (node.kind == YamlNode::Kind::kEmpty) node.place = frame.key_place;
    if (!frame.drop_value) frame.node.entries.push_back({frame.key, frame.key_place, std::move(node)});
    frame.has_key = false;
  }

  std::string file_;
  bool in_file_;
  Issues& issues_;
  std::vector<std::string> lines_;
  std::vector<Frame> stack_;
  YamlNode root_;
  int documents_ = 0;
};

std::optional<YamlNode> Parse(std::string text, const std::string& file, bool in_file, Issues& issues) {
  const Place start = in_file ? Place{file, 1, 1} : Place{file, 0, 0};
  if (text.size() > kMaxYamlBytes) {
    issues.Add(start, "", StrCat("larger than ", kMaxYamlBytes, " bytes, the most that a configuration has"));
    return std::nullopt;
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  TreeBuilder builder(text, file, in_file, issues);
  if (!builder.CheckCharacters()) return std::nullopt;
  std::istringstream stream(text);
  try {
    YAML::Parser parser(stream);
    // The second call finds text after the document, and syntax errors in it.
    if (parser.HandleNextDocument(builder)) parser.HandleNextDocument(builder);
  } catch (const StopParsing&) {
    return std::nullopt;
  } catch (const YAML::Exception& error) {
    issues.Add(builder.At(error.mark), "", StrCat("YAML syntax: ", error.msg));
    return std::nullopt;
  }
  if (builder.root().place.file.empty()) builder.root().place = start;
  return std::move(builder.root());
}

}  // namespace

const YamlEntry* YamlNode::Find(const std::string& key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

YamlEntry* YamlNode::Find(const std::string& key) {
  return const_cast<YamlEntry*>(static_cast<const YamlNode*>(this)->Find(key));
}

std::optional<YamlNode> ParseYaml(const std::string& text, const std::string& file, Issues& issues) {
  return Parse(text, file, true, issues);
}

std::optional<YamlNode> ParseYamlValue(const std::string& text, const std::string& argument, Issues& issues) {
  return Parse(text, argument, false, issues);
}

}  // namespace yardmaster
