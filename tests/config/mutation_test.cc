// Damaged configurations: each must be refused with a place, never crash, hang or be accepted.

#include <cctype>
#include <string>
#include <vector>

#include "src/base/check.h"
#include "src/base/files.h"
#include "src/base/philox.h"
#include "src/base/strings.h"
#include "src/config/printer.h"
#include "src/config/reader.h"
#include "src/config/schema.h"
#include "tests/catch.h"
#include "tests/config/sample.h"

namespace yardmaster {
namespace {

// A line `  key: value` of a known section. The comment behind the value is kept apart.
struct Leaf {
  size_t line;
  std::string section, key, value, comment;
  const Field* field;
  bool numeric() const {
    Config config;
    const FieldPointer pointer = field->access(config);
    return !std::holds_alternative<std::string*>(pointer) && !std::holds_alternative<bool*>(pointer);
  }
  std::string With(const std::string& new_value) const { return StrCat("  ", key, ": ", new_value, comment); }
};

class Mutator {
 public:
  Mutator(const std::string& text, uint64_t seed) : lines_(StrSplit(text, '\n')), seed_(seed) {
    std::string section;
    for (size_t i = 0; i < lines_.size(); ++i) {
      const std::string& line = lines_[i];
      if (line.empty() || line.find_first_not_of(' ') == line.find('#')) continue;
      const size_t colon = line.find(':');
      if (line[0] != ' ') {
        section = line.substr(0, colon);
        sections_.push_back(i);
        continue;
      }
      Leaf leaf;
      leaf.line = i;
      leaf.section = section;
      leaf.key = line.substr(2, colon - 2);
      const size_t comment = std::min(line.find("  #"), line.size());
      leaf.value = line.substr(colon + 2, comment - colon - 2);
      leaf.comment = line.substr(comment);
      leaf.field = FindField(*FindSection(section), leaf.key);
      YM_CHECK(leaf.field != nullptr, "the base has an unknown key: ", line);
      leaves_.push_back(leaf);
    }
  }

  static constexpr int kKinds = 25;

  // The text after a mutation that makes it invalid whatever line it hits; `what` names it.
  std::string Mutate(int kind, std::string& what) {
    std::vector<std::string> out = lines_;
    Leaf leaf = Pick([](const Leaf&) { return true; });
    const auto numeric = [](const Leaf& l) { return l.numeric(); };
    const auto set = [&](const char* name, const std::string& line) {
      what = StrCat(name, " in line ", leaf.line + 1);
      out[leaf.line] = line;
    };
    const auto replace = [&](const char* name, const std::vector<std::string>& values) {
      set(name, leaf.With(values[Random(values.size())]));
    };
    switch (kind) {
      case 0:
        set("no colon", StrCat("  ", leaf.key, " ", leaf.value, leaf.comment));
        break;
      case 1: {
        std::string key = leaf.key;
        set("misspelt key",
            StrCat("  ", key.insert(Random(key.size() + 1), "q"), ": ", leaf.value, leaf.comment));
        break;
      }
      case 2:
        set("duplicate key", StrCat(lines_[leaf.line], "\n", lines_[leaf.line]));
        break;
      case 3:
        leaf = Pick(numeric);
        replace("text for a number", {"abc", "\"5\"", "five", "true", "1.2.3", "5 6", "12ab", "- 5"});
        break;
      case 4:
        leaf = Pick(numeric);
        replace("negative number", {"-1", "-7", "-0.5", "-1e9"});
        break;
      case 5:
        leaf = Pick(numeric);
        replace("huge number", {"1e999", "-1e999", "99999999999999999999999999e299"});
        break;
      case 6:
        leaf = Pick([](const Leaf& l) { return l.numeric() && !l.field->range.Contains(0); });
        replace("zero", {"0", "0.0", "-0", "0e5"});
        break;
      case 7:
        leaf = Pick([&](const Leaf& l) { return l.line > 0 && IsLeaf(l.line - 1); });
        set("deeper line", "  " + lines_[leaf.line]);
        break;
      case 8:
        set("line outside its section", lines_[leaf.line].substr(2));
        break;
      case 9:
        set("tab", "\t" + lines_[leaf.line].substr(2));
        break;
      case 10: {
        // `data` is the last section with required fields; without a part of it nothing is valid.
        const std::string text = StrJoin(lines_, "\n");
        const size_t end = Random(text.find("\ndata:"));
        what = StrCat("cut to ", end, " bytes");
        return text.substr(0, end);
      }
      case 11:
        set("open quote", leaf.With("\"" + leaf.value));
        break;
      case 12:
        leaf = Pick([](const Leaf& l) { return l.field->required; });
        what = StrCat("without line ", leaf.line + 1);
        out.erase(out.begin() + static_cast<std::ptrdiff_t>(leaf.line));
        break;
      case 13:
        replace("list or map for a value", {"[[1]]", "[5, 6]", "{a: 5}", "{}", "[]"});
        break;
      case 14:
        leaf = Pick(numeric);
        replace("number that readers disagree about",
                {"010", "0x10", "1_000", ".nan", ".inf", "0o17", "1,000"});
        break;
      case 15: {
        std::string& line = out[Random(out.size())];
        const std::vector<std::string> bytes = {std::string(1, '\0'), "\x01", "\x1b", "\xff", "\xc3(",
                                                "\xed\xa0\x80",       "\r "};
        line.insert(Random(line.size() + 1), bytes[Random(bytes.size())]);
        what = "damaged byte";
        // A damaged byte inside a character would be another character; the base is ASCII.
        break;
      }
      case 16:
        out.push_back(StrCat("---\nrun:\n  dir: other"));
        what = "second document";
        break;
      case 17:
        replace("anchor, alias or tag", {"&a 5", "*a", "!!int 5", "!x y", "&a"});
        break;
      case 18:
        replace("open bracket", {"[5", "{a: 5", "[", "{", "[{"});
        break;
      case 19:
        leaf.line = sections_[Random(sections_.size())];
        what = StrCat("no section header in line ", leaf.line + 1);
        out.erase(out.begin() + static_cast<std::ptrdiff_t>(leaf.line));
        break;
      case 20:
        replace("no value", {"", "   ", "# 5"});
        break;
      case 21:
        set("no colon but another sign", StrCat("  ", leaf.key, Random(2) ? "= " : "; ", leaf.value));
        break;
      case 22: {
        const std::string header = lines_[sections_[Random(sections_.size())]];
        what = "duplicate section " + header;
        out.push_back(header + " {}");
        break;
      }
      case 23: {
        const std::vector<std::pair<std::string, std::string>> impossible = {{"n_group", "5"},
                                                                             {"topk_group", "9"},
                                                                             {"num_experts_per_tok", "999"},
                                                                             {"qk_rope_head_dim", "7"},
                                                                             {"first_k_dense_replace", "99"},
                                                                             {"sequence_length", "1e6"},
                                                                             {"micro_batch_size", "7"},
                                                                             {"n_group", "16"}};
        const auto& [key, value] = impossible[Random(impossible.size())];
        leaf = Pick([&](const Leaf& l) { return l.key == key; });
        set("impossible value", leaf.With(value));
        break;
      }
      case 24:
        set("no space after the colon", StrCat("  ", leaf.key, ":", leaf.value, leaf.comment));
        break;
      default:
        YM_CHECK(false, kind);
    }
    return StrJoin(out, "\n");
  }

  size_t Random(size_t below) {
    return static_cast<size_t>(PhiloxUniform(seed_, 0, draws_++) * static_cast<double>(below));
  }

 private:
  template <class Predicate>
  Leaf Pick(const Predicate& accept) {
    for (;;) {
      const Leaf& leaf = leaves_[Random(leaves_.size())];
      if (accept(leaf)) return leaf;
    }
  }
  bool IsLeaf(size_t line) const {
    for (const Leaf& leaf : leaves_) {
      if (leaf.line == line) return true;
    }
    return false;
  }

  std::vector<std::string> lines_;
  std::vector<size_t> sections_;
  std::vector<Leaf> leaves_;
  uint64_t seed_;
  uint64_t draws_ = 0;
};

// "mutant.yaml:<line>:<column>: ..."
bool NamesAPlace(const std::string& message) {
  const std::string file = "mutant.yaml:";
  if (!message.starts_with(file)) return false;
  size_t i = file.size();
  for (int part = 0; part < 2; ++part) {
    const size_t begin = i;
    while (i < message.size() && std::isdigit(static_cast<unsigned char>(message[i]))) ++i;
    if (i == begin || message[begin] == '0' || i >= message.size() || message[i++] != ':') return false;
  }
  return true;
}

void CheckRefused(Mutator& mutator, int kind) {
  std::string what;
  const std::string text = mutator.Mutate(kind, what);
  INFO(what);
  INFO(text);
  const std::string message = testing::ConfigErrorOf([&] { ParseConfig(text, "mutant.yaml", {}); });
  INFO(message);
  CHECK(NamesAPlace(message));
}

}  // namespace

TEST_CASE("the base of the mutations is valid") {
  CHECK(testing::ConfigErrorOf([] { LoadConfig("configs/tiny_deepseek_v3.yaml", {}); }) == "");
  CHECK(testing::ConfigErrorOf([] { ParseConfig(testing::kSampleConfig, "mutant.yaml", {}); }) == "");
}

TEST_CASE("100 mutations of the shipped configuration are refused with a place") {
  Mutator mutator(ReadFile("configs/tiny_deepseek_v3.yaml"), 20260101);
  for (int i = 0; i < 100; ++i) CheckRefused(mutator, i % Mutator::kKinds);
}

TEST_CASE("1000 mutations of the sample are refused with a place") {
  Mutator mutator(testing::kSampleConfig, 7);
  for (int i = 0; i < 1000; ++i) CheckRefused(mutator, i % Mutator::kKinds);
}

// Random edits may leave a valid file. Then it must mean what it says: it prints and reads back to the same.
TEST_CASE("random bytes never crash the reader") {
  const std::string base = ReadFile("configs/tiny_deepseek_v3.yaml");
  const std::string signs = "{}[]:,-#&*!|>'\"%@`~?\n\t 0eE._x<=";
  Mutator random(base, 11);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = base;
    const size_t edits = 1 + random.Random(6);
    for (size_t j = 0; j < edits; ++j) {
      const size_t at = random.Random(text.size());
      const char c =
          random.Random(4) == 0 ? static_cast<char>(random.Random(256)) : signs[random.Random(signs.size())];
      switch (random.Random(4)) {
        case 0:
          text.insert(at, 1, c);
          break;
        case 1:
          text.erase(at, 1 + random.Random(8));
          break;
        case 2:
          text[at] = c;
          break;
        default:
          text.insert(at, std::string(1 + random.Random(40), c));
          break;
      }
    }
    INFO(text);
    Config config;
    const std::string message =
        testing::ConfigErrorOf([&] { config = ParseConfig(text, "mutant.yaml", {}).config; });
    if (message.empty()) {
      CHECK(ParseConfig(PrintConfig(config), "printed.yaml", {}).config == config);
    } else {
      ++refused;
      INFO(message);
      CHECK(NamesAPlace(message));
    }
  }
  CHECK(refused > 500);
}

}  // namespace yardmaster
