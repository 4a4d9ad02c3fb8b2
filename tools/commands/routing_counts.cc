#include "tools/commands/routing_counts.h"

#include <charconv>
#include <cmath>

#include "src/base/error.h"
#include "src/base/philox.h"

namespace yardmaster {

namespace {

// S of "skew:S".
double SkewOf(const std::string& routing, int experts) {
  const char* const begin = routing.data() + 5;
  const char* const end = routing.data() + routing.size();
  double skew = 0;
  const auto [at, error] = std::from_chars(begin, end, skew);
  if (error != std::errc() || at != end || !(skew >= 1.0 && skew <= experts)) {
    throw ConfigError("bad skew in routing '" + routing + "'", "",
                      "skew:S with S from 1 to the number of experts, " + std::to_string(experts));
  }
  return skew;
}

}  // namespace

std::vector<int64_t> RoutingCounts(const std::string& routing, int experts, int64_t rows) {
  std::vector<double> weight(static_cast<size_t>(experts), 1.0);
  const auto uniform = [&](size_t e) { return PhiloxUniform(7, StreamOf("routing"), e); };
  if (routing == "jitter") {
    for (size_t e = 0; e < weight.size(); ++e) weight[e] = 0.7 + 0.6 * uniform(e);
  } else if (routing == "one") {
    weight.assign(weight.size(), 0.0);
    weight[weight.size() / 2] = 1.0;
  } else if (routing == "empty") {
    for (size_t e = 1; e < weight.size(); e += 2) weight[e] = 0.0;
  } else if (routing.rfind("skew:", 0) == 0) {
    const double skew = SkewOf(routing, experts);
    const size_t large = weight.size() / 3;
    double others = 0;
    for (size_t e = 0; e < weight.size(); ++e) {
      weight[e] = 0.9 + 0.2 * uniform(e);
      if (e != large) others += weight[e];
    }
    for (double& w : weight) w *= experts > 1 ? (experts - skew) / others : 0.0;
    weight[large] = skew;
  } else if (routing != "balanced") {
    throw ConfigError("unknown routing '" + routing + "'", "",
                      "balanced, jitter, skew:S, one or empty");
  }
  double total = 0;
  for (double w : weight) total += w;
  std::vector<int64_t> counts;
  double sum = 0;
  int64_t given = 0;
  for (double w : weight) {
    sum += w;
    const int64_t until = std::llround(static_cast<double>(rows) * (sum / total));
    counts.push_back(until - given);
    given = until;
  }
  return counts;
}

}  // namespace yardmaster
