#include "src/metrics/step_record.h"

#include <cmath>

#include "src/base/strings.h"

namespace yardmaster {
namespace {

std::string Number(double x) { return std::isfinite(x) ? StrFormat("%.17g", x) : "null"; }

}  // namespace

std::string ToJson(const StepRecord& r) {
  return StrCat(
      "{\"step\":", r.step, ",\"tokens\":", r.tokens, ",\"loss\":", Number(r.loss),
      r.mtp_loss < 0 ? "" : StrCat(",\"mtp_loss\":", Number(r.mtp_loss)),
      ",\"grad_norm\":", Number(r.grad_norm), ",\"lr\":", Number(r.learning_rate),
      ",\"ms\":", StrFormat("%.3f", r.milliseconds),
      ",\"tokens_per_second\":", StrFormat("%.1f", r.tokens_per_second), ",\"tflops\":", Number(r.tflops),
      ",\"load_max_over_mean\":", StrFormat("%.4f", r.load_max_over_mean), ",\"dropped\":", r.dropped,
      ",\"skipped\":", r.skipped, ",\"replays\":", r.replays, ",\"batch\":", r.batch, ",\"verdict\":\"",
      r.verdict, "\"", r.router.empty() ? "" : "," + r.router, r.parts.empty() ? "" : "," + r.parts, "}\n");
}

std::string EvaluationJson(int64_t step, int64_t tokens, double loss, int64_t counted) {
  return StrCat("{\"step\":", step, ",\"tokens\":", tokens, ",\"val_loss\":", Number(loss), ",\"val_tokens\":", counted, "}\n");
}

std::string ConsoleHeader() {
  return StrFormat("%13s %9s %9s %9s %9s %8s %9s %9s %6s %7s %8s", "step", "tokens", "loss", "norm", "lr",
                   "ms", "tokens/s", "TFLOP/s", "load", "dropped", "ETA");
}

std::string ConsoleLine(const StepRecord& r, int64_t last_step, double seconds_left) {
  std::string line = StrFormat(
      "%13s %9s %9.4f %9.4f %9.2e %8.1f %9s %9.4f %6.2f %7lld %8s", StrCat(r.step, "/", last_step).c_str(),
      HumanCount(static_cast<double>(r.tokens)).c_str(), r.loss, r.grad_norm, r.learning_rate, r.milliseconds,
      HumanCount(r.tokens_per_second).c_str(), r.tflops, r.load_max_over_mean,
      static_cast<long long>(r.dropped), HumanSeconds(seconds_left).c_str());
  if (r.verdict != "ok") line += "  skipped: " + r.verdict;
  return line;
}

}  // namespace yardmaster
