#include "src/ops/cpu/router_balance_cpu.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/device/cpu_parallel.h"
#include "src/ops/cpu/math.h"

namespace yardmaster::cpu {
namespace {

// f_e of the global-batch loss: 1 where nothing is known yet or kept.
std::vector<double> PreviousFractions(const RouterSpec& spec, const Tensor& previous) {
  std::vector<double> f(static_cast<size_t>(spec.num_experts), 1.0);
  if (!previous.defined()) return f;
  const int64_t* load = previous.as<int64_t>();
  int64_t sum = 0;
  for (int64_t e = 0; e < spec.num_experts; ++e) sum += load[e];
  for (int64_t e = 0; sum > 0 && e < spec.num_experts; ++e)
    f[static_cast<size_t>(e)] =
        static_cast<double>(spec.num_experts) * static_cast<double>(load[e]) / static_cast<double>(sum);
  return f;
}

template <class T>
double SumOf(const T* s, int64_t E) {
  double sum = 0;
  for (int64_t e = 0; e < E; ++e) sum += static_cast<double>(s[e]);
  return sum;
}

template <class T>
double LogSumExp(const T* z, int64_t E) {
  double largest = static_cast<double>(z[0]), sum = 0;
  for (int64_t e = 1; e < E; ++e) largest = std::max(largest, static_cast<double>(z[e]));
  for (int64_t e = 0; e < E; ++e) sum += std::exp(static_cast<double>(z[e]) - largest);
  return largest + std::log(sum);
}

// Adds 1 to the load of the K largest scores.
template <class T>
void CountLargest(const T* s, int64_t E, int64_t K, std::vector<int64_t>& order, int64_t* load) {
  for (int64_t e = 0; e < E; ++e) order[static_cast<size_t>(e)] = e;
  // A NaN compares as the smallest, so that the order stays strict and a step with NaN reaches its
  // verdict.
  const auto value = [s](int64_t e) { return std::isnan(s[e]) ? -HUGE_VAL : static_cast<double>(s[e]); };
  std::partial_sort(order.begin(), order.begin() + K, order.end(),
                    [&](int64_t a, int64_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
  for (int64_t k = 0; k < K; ++k) ++load[order[static_cast<size_t>(k)]];
}

template <class T>
void Forward(const Stream& stream, const RouterSpec& spec, const RouterBalanceArgs& g) {
  const int64_t n_T = g.scores.dim(0), E = spec.num_experts, K = spec.top_k, B = g.load.dim(0), S = n_T / B;
  int64_t* load = g.load.as<int64_t>();
  std::fill(load, load + B * E, int64_t{0});
  const std::vector<double> f = PreviousFractions(spec, g.previous);
  std::vector<double> mass(static_cast<size_t>(B * E), 0.0);  // sum_t n_te of each sequence
  std::vector<double> z(static_cast<size_t>(B), 0.0);
  ParallelFor(stream, B, 1, [&](int64_t b, int64_t) {
    std::vector<int64_t> order(static_cast<size_t>(E));
    for (int64_t t = b * S; t < (b + 1) * S; ++t) {
      const T* s = g.scores.as<T>() + t * E;
      CountLargest(s, E, K, order, load + b * E);
      const double sum = SumOf(s, E);
      for (int64_t e = 0; e < E; ++e) mass[static_cast<size_t>(b * E + e)] += static_cast<double>(s[e]) / sum;
      if (!g.logits.defined()) continue;
      const double lse = LogSumExp(g.logits.as<T>() + t * E, E);
      z[static_cast<size_t>(b)] += lse * lse;
    }
  });
  if (!g.sums.defined()) return;
  const double dE = static_cast<double>(E), dK = static_cast<double>(K), dS = static_cast<double>(S),
               dT = static_cast<double>(n_T);
  double sequence = 0, micro = 0, global = 0, squares = 0;
  for (int64_t e = 0; e < E; ++e) {
    double all_mass = 0, all_load = 0;
    for (int64_t b = 0; b < B; ++b) {
      const double m = mass[static_cast<size_t>(b * E + e)], l = static_cast<double>(load[b * E + e]);
      sequence += m * l;
      all_mass += m;
      all_load += l;
    }
    micro += all_mass * all_load;
    global += all_mass * f[static_cast<size_t>(e)];
  }
  for (const double v : z) squares += v;
  double* sums = g.sums.as<double>();
  sums[0] += g.share * sequence * dE / (dK * dS * dS * static_cast<double>(B));
  sums[1] += g.share * micro * dE / (dK * dT * dT);
  sums[2] += g.share * global / dT;
  sums[3] += g.share * squares / dT;
}

template <class T>
void Backward(const Stream& stream, const RouterSpec& spec, const RouterBalanceWeights& w,
              const RouterBalanceArgs& g, const Tensor& dlogits) {
  const int64_t n_T = g.scores.dim(0), E = spec.num_experts, B = g.load.dim(0), S = n_T / B;
  const int64_t* load = g.load.as<int64_t>();
  const std::vector<double> f = PreviousFractions(spec, g.previous);
  const double dE = static_cast<double>(E), dK = static_cast<double>(spec.top_k), dS = static_cast<double>(S),
               dT = static_cast<double>(n_T);
  // d(weighted losses) / dn_te depends on the sequence and the expert alone.
  std::vector<double> slope(static_cast<size_t>(B * E));
  for (int64_t e = 0; e < E; ++e) {
    double all = 0;
    for (int64_t b = 0; b < B; ++b) all += static_cast<double>(load[b * E + e]);
    for (int64_t b = 0; b < B; ++b) {
      slope[static_cast<size_t>(b * E + e)] =
          g.share *
          (w.sequence * dE * static_cast<double>(load[b * E + e]) / (dK * dS * dS * static_cast<double>(B)) +
           w.micro_batch * dE * all / (dK * dT * dT) + w.global_batch * f[static_cast<size_t>(e)] / dT);
    }
  }
  ParallelFor(stream, n_T, GrainFor(n_T, 32), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* s = g.scores.as<T>() + t * E;
      T* d = dlogits.as<T>() + t * E;
      const double* slope_b = slope.data() + t / S * E;
      const double sum = SumOf(s, E);
      double mean = 0;
      for (int64_t e = 0; e < E; ++e) mean += static_cast<double>(s[e]) / sum * slope_b[e];
      const double lse = w.z != 0 ? LogSumExp(g.logits.as<T>() + t * E, E) : 0;
      for (int64_t e = 0; e < E; ++e) {
        const double score = static_cast<double>(s[e]);
        const double inner = spec.score == RouterScore::kSoftmax ? score : score * (1 - score);
        double gradient = (slope_b[e] - mean) / sum * inner;
        if (w.z != 0)
          gradient +=
              g.share * w.z * 2 * lse / dT * std::exp(static_cast<double>(g.logits.as<T>()[t * E + e]) - lse);
        d[e] += static_cast<T>(gradient);
      }
    }
  });
}

}  // namespace

void RouterBalanceForward(const Stream& stream, const RouterSpec& spec, const RouterBalanceArgs& args) {
  DispatchFloat(args.scores.dtype(), [&]<class T>() { Forward<T>(stream, spec, args); });
}

void RouterBalanceBackward(const Stream& stream, const RouterSpec& spec, const RouterBalanceWeights& weights,
                           const RouterBalanceArgs& forward, const Tensor& dlogits) {
  DispatchFloat(forward.scores.dtype(),
                [&]<class T>() { Backward<T>(stream, spec, weights, forward, dlogits); });
}

}  // namespace yardmaster::cpu
