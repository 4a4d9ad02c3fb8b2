#include "src/metrics/step_parts.h"

#include <algorithm>
#include <array>
#include <map>

#include "src/base/strings.h"

namespace yardmaster {
namespace {

struct OpPart {
  const char *prefix, *part;  // of op names; the first that fits
};
constexpr std::array kOpParts = {
    OpPart{"GroupedGemm", "grouped_gemm"},
    OpPart{"Permute", "dispatch"},
    OpPart{"Dispatch", "dispatch"},
    OpPart{"Unpermute", "combine"},
    OpPart{"Combine", "combine"},
    OpPart{"Attention", "attention"},
    OpPart{"Gemm", "dense_gemm"},
    OpPart{"ScaledGemm", "dense_gemm"},
    OpPart{"Quantize", "quantise"},
    OpPart{"Dequantize", "quantise"},
    OpPart{"PackRows", "quantise"},
    OpPart{"UnpackRows", "quantise"},
    OpPart{"Router", "router"},
    OpPart{"SplitBf16", "router"},
    OpPart{"AddTerms", "router"},
    OpPart{"RmsNorm", "norm"},
    OpPart{"Swiglu", "activation"},
    OpPart{"LinearCrossEntropy", "loss"},
    OpPart{"Mtp", "loss"},
    OpPart{"SumNormAddends", "optimizer"},
    OpPart{"SumSquares", "optimizer"},
    OpPart{"SumTileSquares", "optimizer"},
    OpPart{"AdamW", "optimizer"},
    OpPart{"JudgeStep", "optimizer"},
    OpPart{"FinishStep", "optimizer"},
};
constexpr const char* kOther = "other";
constexpr const char* kBetween = "between";

}  // namespace

const char* PartOf(const std::string& op) {
  for (const OpPart& p : kOpParts) {
    if (op.starts_with(p.prefix)) return p.part;
  }
  return kOther;
}

std::vector<PartTime> PartTimes(const StepTimes& times) {
  std::map<std::string, double> sums;
  double all = 0;
  for (const OpTime& op : times.ops) {
    sums[PartOf(op.op)] += op.seconds;
    all += op.seconds;
  }
  std::vector<PartTime> parts;
  const auto take = [&](const char* part) {
    const auto found = sums.find(part);
    if (found == sums.end()) return;
    parts.push_back({part, found->second * 1e3});
    sums.erase(found);
  };
  for (const OpPart& p : kOpParts) take(p.part);
  take(kOther);
  if (!times.ops.empty()) parts.push_back({kBetween, std::max(0.0, times.seconds - all) * 1e3});
  return parts;
}

std::string PartTimesJson(const std::vector<PartTime>& parts) {
  std::string out;
  for (const PartTime& p : parts)
    out += StrCat(out.empty() ? "" : ",", "\"", p.part, "\":", StrFormat("%.4f", p.milliseconds));
  return StrCat("\"parts_ms\":{", out, "}");
}

std::string PartTimesLine(const std::vector<PartTime>& parts) {
  std::vector<PartTime> sorted = parts;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const PartTime& a, const PartTime& b) { return a.milliseconds > b.milliseconds; });
  double all = 0;
  for (const PartTime& p : sorted) all += p.milliseconds;
  std::string out;
  for (const PartTime& p : sorted) {
    out += StrFormat("%s%s %.2f (%.0f %%)", out.empty() ? "" : ", ", p.part.c_str(), p.milliseconds,
                     all > 0 ? 100 * p.milliseconds / all : 0);
  }
  return StrCat("by part, ms: ", out);
}

}  // namespace yardmaster
