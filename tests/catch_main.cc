// main() of every test. Runs Catch2 with its usual console output and, under Bazel, also writes
// the test cases as JUnit XML to $XML_OUTPUT_FILE. Catch2 2.13 allows one reporter only, so
// the XML comes from a listener; without it Bazel would count a whole program as one test.
#define CATCH_CONFIG_RUNNER
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "tests/catch.h"

namespace yardmaster::testing {
namespace {

struct CaseResult {
  std::string name;
  double seconds = 0;
  bool failed = false;
  bool skipped = false;
  std::string message;
};

// Listeners are built by Catch2 itself, so what they collect has to live here.
struct Report {
  std::vector<CaseResult> cases;
  CaseResult current;
};

Report& TheReport() {
  static Report report;
  return report;
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // XML 1.0 has no way to write most control characters.
        out += (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') ? '?' : c;
    }
  }
  return out;
}

void WriteXml(const std::string& path, const std::string& suite) {
  const auto& cases = TheReport().cases;
  int failures = 0;
  int skipped = 0;
  for (const auto& c : cases) {
    failures += c.failed;
    skipped += c.skipped && !c.failed;
  }
  std::ofstream out(path);
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\""
      << Escaped(suite) << "\" tests=\"" << cases.size() << "\" failures=\"" << failures
      << "\" errors=\"0\" skipped=\"" << skipped << "\">\n";
  for (const auto& c : cases) {
    out << "<testcase name=\"" << Escaped(c.name) << "\" classname=\"" << Escaped(suite)
        << "\" time=\"" << c.seconds << "\">";
    if (c.failed) {
      out << "<failure>" << Escaped(c.message) << "</failure>";
    } else if (c.skipped) {
      out << "<skipped message=\"" << Escaped(c.message) << "\"/>";
    }
    out << "</testcase>\n";
  }
  out << "</testsuite>\n</testsuites>\n";
  out.flush();
  if (!out) {
    std::cerr << "tests: cannot write the report " << path << "\n";
  }
}

#if __has_include(<catch2/catch_all.hpp>)
using ListenerBase = Catch::EventListenerBase;
using AssertionReturn = void;
#else
using ListenerBase = Catch::TestEventListenerBase;
using AssertionReturn = bool;  // 2.13: "assertion buffered", ignored for listeners
#endif

class XmlListener : public ListenerBase {
 public:
  using ListenerBase::ListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    TheReport().current = CaseResult{};
    TheReport().current.name = info.name;
  }

  AssertionReturn assertionEnded(const Catch::AssertionStats& stats) override {
    const auto& result = stats.assertionResult;
    if (!result.isOk()) {
      auto& message = TheReport().current.message;
      message += std::string(result.getSourceInfo().file) + ":" +
                 std::to_string(result.getSourceInfo().line) + ": " +
                 std::string(result.getExpressionInMacro()) + " with " +
                 std::string(result.getExpandedExpression()) + " " +
                 std::string(result.getMessage()) + "\n";
    }
    return AssertionReturn(true);
  }

  void sectionEnded(const Catch::SectionStats& stats) override {
    // A test case that has sections runs several times; the outermost section's time adds up.
    if (stats.sectionInfo.name == TheReport().current.name) {
      TheReport().current.seconds += stats.durationInSeconds;
    }
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    auto& current = TheReport().current;
    current.failed = !stats.totals.assertions.allOk();
    TheReport().cases.push_back(current);
  }
};

CATCH_REGISTER_LISTENER(XmlListener)

// Under mpirun every rank runs the same cases; one of them reports.
bool IsReportingRank() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr || std::string(rank) == "0";
}

}  // namespace

void MarkSkipped(const std::string& reason) {
  auto& current = TheReport().current;
  if (current.skipped) return;  // one line per test case
  current.skipped = true;
  current.message = reason;
  std::cout << "SKIPPED " << current.name << ": " << reason << std::endl;
}

}  // namespace yardmaster::testing

int main(int argc, char** argv) {
  const int status = Catch::Session().run(argc, argv);
  const char* xml = std::getenv("XML_OUTPUT_FILE");
  if (xml != nullptr && yardmaster::testing::IsReportingRank()) {
    const char* target = std::getenv("TEST_TARGET");
    yardmaster::testing::WriteXml(xml, target != nullptr ? target : argv[0]);
  }
  return status;
}
