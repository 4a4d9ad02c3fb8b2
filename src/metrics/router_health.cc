#include "src/metrics/router_health.h"

#include <algorithm>
#include <cmath>

#include "src/base/strings.h"

namespace yardmaster {
namespace {

int64_t Sum(const std::vector<int64_t>& load) {
  int64_t sum = 0;
  for (const int64_t n : load) sum += n;
  return sum;
}

std::string Number(double x) { return std::isfinite(x) ? StrFormat("%.6g", x) : "null"; }

std::string Optional(const char* name, const std::optional<double>& value) {
  return value ? StrCat(",\"", name, "\":", Number(*value)) : "";
}

std::string OutOfRange(const RouterHealth& h) {
  const auto experts = static_cast<double>(h.load.size());
  const double part = static_cast<double>(Sum(h.load)) / experts;
  if (part == 0) return "";
  if (h.Dead() > 0 && part >= 64) return StrCat(h.Dead(), " of ", h.load.size(), " experts get no token");
  const double limit = std::max(4.0, experts / static_cast<double>(h.top_k) / 2);
  if (h.MaxOverMean() > limit)
    return StrFormat("the busiest expert has %.1f times the mean load", h.MaxOverMean());
  if (h.Entropy() < 0.7) return StrFormat("the entropy of the load is %.2f of its largest", h.Entropy());
  if (h.bias && h.bias->second - h.bias->first > 1)
    return StrFormat("the router bias spans %.2f", h.bias->second - h.bias->first);
  return "";
}

}  // namespace

double RouterHealth::MaxOverMean() const {
  const int64_t sum = Sum(load);
  if (sum == 0) return 0;
  return static_cast<double>(*std::max_element(load.begin(), load.end())) * static_cast<double>(load.size()) /
         static_cast<double>(sum);
}

double RouterHealth::Entropy() const {
  const auto sum = static_cast<double>(Sum(load));
  if (sum == 0 || load.size() < 2) return 1;
  double entropy = 0;
  for (const int64_t n : load) {
    const double p = static_cast<double>(n) / sum;
    if (n > 0) entropy -= p * std::log(p);
  }
  return entropy / std::log(static_cast<double>(load.size()));
}

int64_t RouterHealth::Dead() const { return std::count(load.begin(), load.end(), 0); }

std::string RouterHealthJson(const std::vector<RouterHealth>& layers) {
  std::vector<std::string> objects;
  for (const RouterHealth& h : layers) {
    std::vector<std::string> load;
    for (const int64_t n : h.load) load.push_back(StrCat(n));
    objects.push_back(StrCat(
        "{\"layer\":", h.layer, ",\"load\":[", StrJoin(load, ","),
        "],\"max_over_mean\":", Number(h.MaxOverMean()), ",\"entropy\":", Number(h.Entropy()),
        ",\"dead\":", h.Dead(), ",\"dropped\":", h.dropped,
        h.bias ? StrCat(",\"bias_min\":", Number(h.bias->first), ",\"bias_max\":", Number(h.bias->second))
               : "",
        Optional("sequence_balance", h.sequence_balance),
        Optional("micro_batch_balance", h.micro_batch_balance),
        Optional("global_batch_balance", h.global_batch_balance), Optional("router_z", h.router_z), "}"));
  }
  return StrCat("\"router\":[", StrJoin(objects, ","), "]");
}

std::string RouterHealthWarning(const std::vector<RouterHealth>& layers) {
  std::string first;
  int64_t others = 0;
  for (const RouterHealth& h : layers) {
    const std::string what = OutOfRange(h);
    if (what.empty()) continue;
    if (first.empty()) {
      first = StrCat("router of layer ", h.layer, ": ", what);
    } else {
      ++others;
    }
  }
  if (others > 0) first += StrCat(", and ", others, " more layers out of range");
  return first;
}

RouterHealthWatch::Message RouterHealthWatch::Look(const std::vector<RouterHealth>& layers, int64_t step) {
  const std::string warning = RouterHealthWarning(layers);
  const bool was_out = std::exchange(out_of_range_, !warning.empty());
  if (was_out == out_of_range_) return {};
  if (out_of_range_) return {true, StrCat(warning, " (step ", step, ")")};
  return {false, StrCat("  routers are in range again (step ", step, ")")};
}

}  // namespace yardmaster
