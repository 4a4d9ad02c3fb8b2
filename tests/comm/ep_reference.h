// What dispatch and combine over several ranks must give, computed in one place from everybody's routing: plain loops in
// the order that mpi_dispatcher.h states. Both the dispatcher over MPI and the one over peer memory are held to it.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "src/base/philox.h"
#include "src/comm/ep/ep_plan.h"

namespace yardmaster::testing {

enum class EpRouting { kBalanced, kRandom, kReal, kSkewed, kEmptyExpert, kEmptyRank, kAllToOne };
inline constexpr EpRouting kEpRoutings[] = {EpRouting::kBalanced,    EpRouting::kRandom,    EpRouting::kReal,
                                            EpRouting::kSkewed,      EpRouting::kEmptyExpert, EpRouting::kEmptyRank,
                                            EpRouting::kAllToOne};

// Rank p's tokens are rows [begin[p], begin[p + 1]) of the gathered arrays.
struct EpProblem {
  int64_t n = 1, E = 1, K = 1, D = 1;
  uint64_t seed = 1;
  std::vector<int64_t> T, begin;
  std::vector<int32_t> idx;  // [sum T, K], ascending; -1: not computed

  int64_t L() const { return E / n; }
  int64_t most() const { return *std::max_element(T.begin(), T.end()); }
  std::vector<int32_t> IdxOf(int64_t p) const { return {idx.begin() + begin[p] * K, idx.begin() + begin[p + 1] * K}; }
};

// dropped: the share of pairs that are -1. Skewed: one expert is chosen by eight times its share of the tokens, or by all.
inline EpProblem MakeEpProblem(int64_t n, EpRouting routing, int64_t E, int64_t K, int64_t D, std::vector<int64_t> T,
                               uint64_t seed, double dropped = 0) {
  EpProblem p{n, E, K, D, seed, std::move(T), {0}, {}};
  p.T.resize(static_cast<size_t>(n), p.T.back());
  for (int64_t t : p.T) p.begin.push_back(p.begin.back() + t);
  const double share = static_cast<double>(K) / static_cast<double>(E);
  for (int64_t t = 0; t < p.begin.back(); ++t) {
    std::vector<double> key(static_cast<size_t>(E));
    const auto at = static_cast<uint64_t>(t);
    const bool hot = PhiloxUniform(seed, 51, at) < 8 * share;
    for (int64_t e = 0; e < E; ++e) {
      const double u = PhiloxUniform(seed, 100 + at, static_cast<uint64_t>(e));
      double& k = key[static_cast<size_t>(e)];  // the K smallest are chosen
      k = u;
      // Popularity of experts as trained models show it: a few times more or less than the mean.
      if (routing == EpRouting::kReal)
        k = -std::log(1 - u) * std::exp(0.7 * PhiloxNormal(seed, 52, static_cast<uint64_t>(e)));
      if (routing == EpRouting::kBalanced) k = static_cast<double>((e + E - t * K % E) % E);
      if (routing == EpRouting::kSkewed && e == E / 3) k = hot ? -1 : 2;
      if (routing == EpRouting::kEmptyExpert && e == std::min<int64_t>(1, E - 1) && E > K) k += 2;
      if (routing == EpRouting::kEmptyRank && e / p.L() == n - 1 && (n - 1) * p.L() >= K) k += 2;
      if (routing == EpRouting::kAllToOne) k = static_cast<double>(e);
    }
    std::vector<int32_t> order(static_cast<size_t>(E));
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + K, order.end(),
                      [&](int a, int b) { return key[static_cast<size_t>(a)] < key[static_cast<size_t>(b)]; });
    order.resize(static_cast<size_t>(K));
    std::sort(order.begin(), order.end());
    for (int64_t k = 0; k < K; ++k) {
      if (dropped > 0 && PhiloxUniform(seed, 53, at * static_cast<uint64_t>(K) + static_cast<uint64_t>(k)) < dropped)
        order[static_cast<size_t>(k)] = -1;
    }
    p.idx.insert(p.idx.end(), order.begin(), order.end());
  }
  return p;
}

// Of mixed magnitudes, so that another order of additions shows in the last bits.
template <class T>
std::vector<T> EpValues(uint64_t stream, int64_t count) {
  const double scale[] = {1e-3, 1, 37, 4e3};
  std::vector<T> v(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const auto r = Philox4x32(17, stream, static_cast<uint64_t>(i));
    const double x = (static_cast<double>(r[0]) / 4294967296.0 - 0.5) * scale[i % 4];
    if constexpr (std::is_same_v<T, BFloat16>) {
      v[static_cast<size_t>(i)] = BFloat16(static_cast<float>(x));
    } else {
      v[static_cast<size_t>(i)] = static_cast<T>(x);
    }
  }
  return v;
}

template <class T>
using EpAccum = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The plan of one rank; names as in RoutingHandle. Rows of another rank's window: place.
struct EpExpectedPlan {
  std::vector<int64_t> offsets, counts, begins, send_offsets, send_slot, recv_offsets, recv_slot;
  int64_t needed = 0;
  bool overflow = false;
  std::vector<int64_t> place;  // [T, K]: row in the owner's window, -1: none
};

inline std::vector<EpExpectedPlan> ExpectPlans(const EpProblem& p, const EpOptions& options) {
  const int64_t n = p.n, E = p.E, K = p.K, L = p.L(), J = options.rows_per_token();
  const auto R = [&](int64_t q) { return options.window_rows(p.T[static_cast<size_t>(q)]); };
  std::vector<EpExpectedPlan> plans(static_cast<size_t>(n));
  std::vector<int64_t> counts(static_cast<size_t>(n * (E + 2)), 0), begins(static_cast<size_t>(n * E), 0), filled;
  for (int64_t q = 0; q < n; ++q) {
    for (int64_t pair = p.begin[q] * K; pair < p.begin[q + 1] * K; ++pair)
      if (p.idx[pair] >= 0) ++counts[q * (E + 2) + p.idx[pair]];
    counts[q * (E + 2) + E] = p.T[q];
    counts[q * (E + 2) + E + 1] = R(q);
  }
  int64_t needed = 0;
  bool over = false;
  for (int64_t q = 0; q < n; ++q) {
    int64_t row = 0;
    for (int64_t e = q * L; e < (q + 1) * L; ++e) {
      plans[q].offsets.push_back(std::min(row, R(q)));
      for (int64_t s = 0; s < n; ++s) {
        begins[s * E + e] = row;
        row += counts[s * (E + 2) + e];
      }
    }
    plans[q].offsets.push_back(std::min(row, R(q)));
    needed = std::max(needed, row);
    over = over || row > R(q);
  }
  std::vector<std::vector<std::vector<int64_t>>> received(static_cast<size_t>(n));  // places of tokens, by receiver
  std::vector<std::vector<int64_t>> tokens(static_cast<size_t>(n), std::vector<int64_t>(static_cast<size_t>(n), 0));
  for (int64_t s = 0; s < n; ++s) {
    EpExpectedPlan& plan = plans[s];
    plan.counts = counts;
    plan.begins = begins;
    plan.needed = needed;
    plan.overflow = over;
    const std::vector<int32_t> idx = p.IdxOf(s);
    std::vector<int64_t> next(begins.begin() + s * E, begins.begin() + (s + 1) * E);
    plan.place.assign(idx.size(), -1);
    for (size_t pair = 0; pair < idx.size(); ++pair) {
      if (idx[pair] < 0) continue;
      const int64_t row = next[idx[pair]]++;
      if (row < R(idx[pair] / L)) plan.place[pair] = row;
    }
    plan.send_slot.assign(static_cast<size_t>(p.T[s] * J), -1);
    if (options.expanded()) {
      plan.send_offsets.assign(1, 0);
      for (int64_t e = 0; e < E; ++e) plan.send_offsets.push_back(plan.send_offsets.back() + counts[s * (E + 2) + e]);
      std::vector<int64_t> at(plan.send_offsets.begin(), plan.send_offsets.end() - 1);
      for (size_t pair = 0; pair < idx.size(); ++pair) {
        if (idx[pair] < 0) continue;
        const int64_t slot = at[idx[pair]]++;
        if (plan.place[pair] >= 0) plan.send_slot[pair] = slot;
      }
      continue;
    }
    plan.send_offsets.assign(static_cast<size_t>(n + 1), 0);
    std::vector<std::vector<std::pair<int64_t, std::vector<int64_t>>>> to(static_cast<size_t>(n));  // slot's index, places
    for (int64_t t = 0; t < p.T[s]; ++t) {
      int64_t j = 0, last = -1;
      for (int64_t k = 0; k < K; ++k) {
        const int64_t pair = t * K + k;
        if (plan.place[pair] < 0) continue;
        const int64_t q = idx[pair] / L;
        if (q != last) to[q].push_back({t * J + j++, std::vector<int64_t>(static_cast<size_t>(K), -1)});
        to[q].back().second[k] = plan.place[pair];
        last = q;
      }
    }
    for (int64_t q = 0, slot = 0; q < n; ++q) {
      for (const auto& [index, places] : to[q]) {
        plan.send_slot[index] = slot++;
        received[q].push_back(places);
      }
      plan.send_offsets[q + 1] = slot;
      tokens[q][s] = static_cast<int64_t>(to[q].size());
    }
  }
  if (options.expanded()) return plans;
  for (int64_t q = 0; q < n; ++q) {
    plans[q].recv_offsets.assign(1, 0);
    for (int64_t s = 0; s < n; ++s) plans[q].recv_offsets.push_back(plans[q].recv_offsets.back() + tokens[q][s]);
    for (const std::vector<int64_t>& places : received[q])
      plans[q].recv_slot.insert(plans[q].recv_slot.end(), places.begin(), places.end());
  }
  return plans;
}

// x[s], w[s] of all ranks -> the filled rows of rank q's window.
template <class X, class W>
void ExpectWindow(const EpProblem& p, const std::vector<EpExpectedPlan>& plans, int64_t q, const std::vector<std::vector<X>>& x,
                  const std::vector<std::vector<W>>& w, std::vector<X>* x_R, std::vector<W>* w_R) {
  const int64_t K = p.K, D = p.D, filled = plans[q].offsets.back();
  x_R->assign(static_cast<size_t>(filled * D), X());
  w_R->assign(static_cast<size_t>(filled), W());
  for (int64_t s = 0; s < p.n; ++s) {
    const std::vector<int32_t> idx = p.IdxOf(s);
    for (size_t pair = 0; pair < idx.size(); ++pair) {
      const int64_t row = plans[s].place[pair];
      if (row < 0 || idx[pair] / p.L() != q) continue;
      std::copy_n(x[s].begin() + static_cast<int64_t>(pair) / K * D, D, x_R->begin() + row * D);
      (*w_R)[row] = w[s][pair];
    }
  }
}

// y_R[q], dw_R[q] of all windows -> rank s's y and dw. Pairs beyond a window count as zero.
template <class X, class W>
void ExpectCombine(const EpProblem& p, const EpOptions& options, const std::vector<EpExpectedPlan>& plans, int64_t s,
                   const std::vector<std::vector<X>>& y_R, const std::vector<std::vector<W>>& dw_R, const std::vector<X>& residual,
                   const std::vector<X>& addend, std::vector<X>* y, std::vector<W>* dw) {
  using A = EpAccum<X>;
  const int64_t K = p.K, D = p.D, T = p.T[s];
  const std::vector<int32_t> idx = p.IdxOf(s);
  y->assign(static_cast<size_t>(T * D), X());
  dw->assign(static_cast<size_t>(T * K), W());
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t d = 0; d < D; ++d) {
      A sum = 0;
      if (!residual.empty()) sum += static_cast<A>(residual[t * D + d]);
      if (!addend.empty()) sum += static_cast<A>(addend[t * D + d]);
      for (int64_t k = 0; k < K;) {
        if (plans[s].place[t * K + k] < 0) {
          ++k;
          continue;
        }
        const int64_t q = idx[t * K + k] / p.L();
        A of_rank = 0;
        for (; k < K && (plans[s].place[t * K + k] < 0 || idx[t * K + k] / p.L() == q); ++k) {
          const int64_t row = plans[s].place[t * K + k];
          if (row >= 0) (options.expanded() ? sum : of_rank) += static_cast<A>(y_R[q][row * D + d]);
        }
        if (!options.expanded()) sum += static_cast<A>(static_cast<X>(of_rank));  // what crosses is rounded
      }
      (*y)[t * D + d] = static_cast<X>(sum);
    }
    for (int64_t k = 0; k < K; ++k) {
      const int64_t row = plans[s].place[t * K + k];
      if (row >= 0) (*dw)[t * K + k] = dw_R[idx[t * K + k] / p.L()][row];
    }
  }
}

}  // namespace yardmaster::testing
