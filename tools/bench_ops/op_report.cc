#include "tools/bench_ops/op_report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "src/base/strings.h"

namespace yardmaster {
namespace {

double PerSecond(double amount, double ms) { return ms > 0 ? amount / (ms * 1e-3) : 0; }

}  // namespace

double PercentOfCeiling(const OpResult& r, const BenchCeilings& c) {
  const double ceiling = r.flops > 0 ? c.flops_per_s : c.bytes_per_s;
  return ceiling > 0 ? 100 * PerSecond(r.flops > 0 ? r.flops : r.bytes, r.ms) / ceiling : 0;
}

std::string OpReportText(const OpReportHead& head, const std::vector<OpResult>& results) {
  std::string text =
      StrCat(head.device, ", ", head.precision, "\nerror: relative L2 against double, the worst of ",
             head.rounds, " random sizes (seed ", head.seed, ")\n");
  const bool timed = head.ceilings.bytes_per_s > 0;
  if (timed) {
    text += StrFormat(
        "ms: median of %d, inputs not in L2. Ceilings of this run: copy %.2f TB/s, product %.0f TFLOP/s.\n"
        "rate: the fewest bytes that must move, or the operations, / time\n",
        head.repeats, 1e-12 * head.ceilings.bytes_per_s, 1e-12 * head.ceilings.flops_per_s);
  }
  text += StrFormat("%-16s %-15s %-5s %9s", "op", "call", "", "error");
  if (timed) text += StrFormat(" %9s %14s %6s  %s", "ms", "rate", "%", "sizes");
  text += "\n";
  for (const OpResult& r : results) {
    text += StrFormat("%-16s %-15s %-5s %9.1e", r.op.c_str(), r.call.c_str(),
                      r.trouble.empty() ? "ok" : "WRONG", r.error);
    if (timed) {
      const double rate = 1e-12 * PerSecond(r.flops > 0 ? r.flops : r.bytes, r.ms);
      text += StrFormat(r.flops > 0 ? " %9.4f %6.0f TFLOP/s %5.0f%%  %s" : " %9.4f %9.3f TB/s %5.0f%%  %s",
                        r.ms, rate, PercentOfCeiling(r, head.ceilings), r.sizes.c_str());
    }
    text += "\n";
    if (!r.trouble.empty()) text += "  " + r.trouble + "\n";
  }
  return text;
}

std::string OpReportJson(const OpReportHead& head, const std::vector<OpResult>& results) {
  nlohmann::ordered_json out = {{"device", head.device},
                                {"precision", head.precision},
                                {"seed", head.seed},
                                {"random_sizes", head.rounds},
                                {"repeats", head.repeats},
                                {"copy_tb_per_s", 1e-12 * head.ceilings.bytes_per_s},
                                {"product_tflops", 1e-12 * head.ceilings.flops_per_s},
                                {"results", nlohmann::json::array()}};
  for (const OpResult& r : results) {
    nlohmann::ordered_json line = {{"op", r.op}, {"call", r.call}, {"ok", r.trouble.empty()}};
    line["relative_l2"] = std::isfinite(r.error) ? nlohmann::ordered_json(r.error) : nlohmann::ordered_json();
    line["tolerance"] = r.tolerance;
    if (!r.trouble.empty()) line["trouble"] = r.trouble;
    if (r.ms > 0) {
      line.update({{"sizes", r.sizes},
                   {"ms", r.ms},
                   {"bytes", r.bytes},
                   {"flops", r.flops},
                   {"tb_per_s", 1e-12 * PerSecond(r.bytes, r.ms)},
                   {"tflops", 1e-12 * PerSecond(r.flops, r.ms)},
                   {"percent_of_ceiling", PercentOfCeiling(r, head.ceilings)}});
    }
    out["results"].push_back(line);
  }
  return out.dump(2) + "\n";
}

}  // namespace yardmaster
