#include "src/ops/cpu/router_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "src/device/cpu_parallel.h"
#include "src/ops/cpu/math.h"

namespace yardmaster::cpu {
namespace {

constexpr double kNormEpsilon = 1e-20;  // of DeepSeek-V3's gate

// The index of the largest of `value` among those not `taken`; the lower index on ties. Always one
// that is not taken, NaN or not: a step with NaN logits must reach its verdict.
template <class T>
int64_t Largest(const T* value, const unsigned char* taken, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (!taken[i] && (best < 0 || value[i] > value[best])) best = i;
  }
  return best;
}

// Chooses K of the E experts by their choice scores c, ascending ids into idx.
template <class T>
class ExpertChooser {
 public:
  explicit ExpertChooser(const RouterSpec& spec)
      : spec_(spec),
        size_(spec.num_experts / spec.num_groups),
        group_score_(static_cast<size_t>(spec.num_groups)),
        group_taken_(static_cast<size_t>(spec.num_groups)),
        taken_(static_cast<size_t>(spec.num_experts)) {}

  void Choose(const T* c, int32_t* idx) {
    const bool limited = spec_.topk_groups < spec_.num_groups;
    // An expert of a group that is not chosen counts as taken: -inf, below any score.
    std::fill(taken_.begin(), taken_.end(), static_cast<unsigned char>(limited));
    if (limited) {
      std::fill(group_taken_.begin(), group_taken_.end(), static_cast<unsigned char>(0));
      for (int64_t g = 0; g < spec_.num_groups; ++g)
        group_score_[static_cast<size_t>(g)] = ScoreOfGroup(c + g * size_);
      for (int64_t i = 0; i < spec_.topk_groups; ++i) {
        const int64_t g = Largest(group_score_.data(), group_taken_.data(), spec_.num_groups);
        group_taken_[static_cast<size_t>(g)] = 1;
        std::fill_n(taken_.begin() + g * size_, size_, static_cast<unsigned char>(0));
      }
    }
    for (int64_t k = 0; k < spec_.top_k; ++k) {
      const int64_t e = Largest(c, taken_.data(), spec_.num_experts);
      taken_[static_cast<size_t>(e)] = 1;
      idx[k] = static_cast<int32_t>(e);
    }
    std::sort(idx, idx + spec_.top_k);
  }

 private:
  T ScoreOfGroup(const T* c) const {
    if (size_ == 1) return c[0];
    if (spec_.group_score == GroupScore::kMax) return *std::max_element(c, c + size_);
    T first = std::max(c[0], c[1]), second = std::min(c[0], c[1]);
    for (int64_t i = 2; i < size_; ++i) {
      second = std::max(second, std::min(first, c[i]));
      first = std::max(first, c[i]);
    }
    return first + second;
  }

  const RouterSpec& spec_;
  const int64_t size_;  // experts of a group
  std::vector<T> group_score_;
  std::vector<unsigned char> group_taken_, taken_;
};

// The experts of token t by its number alone, ascending.
void ForceExperts(const RouterSpec& s, int64_t t, int32_t* idx) {
  const int64_t E = s.num_experts, K = s.top_k;
  if (s.force == ForcedRouting::kBalanced) {
    for (int64_t i = 0; i < K; ++i) idx[i] = static_cast<int32_t>((t * K + i) % E);
  } else {
    // Expert 0 takes floor((t + 1) p) - floor(t p) of token t's K choices, p = skew K / E <= 1; the
    // others in turn.
    const double p = s.force_skew * static_cast<double>(K) / static_cast<double>(E);
    const auto taken = [p](int64_t tokens) {
      return static_cast<int64_t>(std::floor(p * static_cast<double>(tokens) + 1e-9));
    };
    const int64_t first = taken(t + 1) - taken(t);
    if (first > 0) idx[0] = 0;
    const int64_t before = t * K - taken(t);  // choices of the earlier tokens among the others
    for (int64_t i = first; i < K; ++i)
      idx[i] = static_cast<int32_t>(1 + (before + i - first) % (E - 1));
  }
  std::sort(idx, idx + K);
}

template <class T>
void Softmax(const T* logits, int64_t E, T* scores) {
  const T largest = LaneMax(logits, E);
  for (int64_t e = 0; e < E; ++e) scores[e] = Exp(logits[e] - largest);
  const T sum = LaneSum<T>(E, [scores](int64_t e) { return scores[e]; });
  for (int64_t e = 0; e < E; ++e) scores[e] /= sum;
}

template <class T>
void Forward(const Stream& stream, const RouterSpec& spec, const RouterArgs& g) {
  const int64_t n_T = g.logits.dim(0), E = spec.num_experts, K = spec.top_k;
  const T* bias = g.bias.defined() ? g.bias.as<T>() : nullptr;
  const int32_t* forced = g.forced_idx.defined() ? g.forced_idx.as<int32_t>() : nullptr;
  ParallelFor(stream, n_T, GrainFor(n_T, 32), [&](int64_t begin, int64_t end) {
    ExpertChooser<T> chooser(spec);
    std::vector<T> choice(static_cast<size_t>(E));
    for (int64_t t = begin; t < end; ++t) {
      const T* logits = g.logits.as<T>() + t * E;
      T* scores = g.scores.as<T>() + t * E;
      int32_t* idx = g.idx.as<int32_t>() + t * K;
      T* w = g.w.as<T>() + t * K;
      if (spec.score == RouterScore::kSoftmax) {
        Softmax(logits, E, scores);
      } else {
        for (int64_t e = 0; e < E; ++e) scores[e] = Sigmoid(logits[e]);
      }
      if (forced != nullptr) {
        std::copy_n(forced + t * K, K, idx);
        for (int64_t k = 0; k < K; ++k) {
          YM_CHECK(0 <= idx[k] && idx[k] < E && (k == 0 || idx[k - 1] < idx[k]),
                   "forced_idx of token ", t, ", ", k, ": ", idx[k], " of ", E,
                   " experts, ascending");
        }
      } else if (spec.force != ForcedRouting::kNone) {
        ForceExperts(spec, t, idx);
      } else {
        for (int64_t e = 0; e < E; ++e)
          choice[static_cast<size_t>(e)] = bias != nullptr ? scores[e] + bias[e] : scores[e];
        chooser.Choose(choice.data(), idx);
      }
      T sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += scores[idx[k]];
      const T scaling = static_cast<T>(spec.scaling);
      const T norm = spec.normalise ? sum + static_cast<T>(kNormEpsilon) : T{1};
      for (int64_t k = 0; k < K; ++k) w[k] = scores[idx[k]] / norm * scaling;
    }
  });
  if (!g.counts.defined()) return;
  int64_t* counts = g.counts.as<int64_t>();
  const int32_t* idx = g.idx.as<int32_t>();
  for (int64_t p = 0; p < n_T * K; ++p) ++counts[idx[p]];
}

template <class T>
void Backward(const Stream& stream, const RouterSpec& spec, const RouterBackwardArgs& g) {
  const int64_t n_T = g.dlogits.dim(0), E = spec.num_experts, K = spec.top_k;
  const T c = static_cast<T>(spec.scaling);
  ParallelFor(stream, n_T, GrainFor(n_T, 64), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* dw = g.dw.as<T>() + t * K;
      const T* scores = g.scores.as<T>() + t * E;
      const int32_t* idx = g.idx.as<int32_t>() + t * K;
      T* dlogits = g.dlogits.as<T>() + t * E;
      T n = static_cast<T>(kNormEpsilon), weighted = 0;
      for (int64_t k = 0; k < K; ++k) {
        n += scores[idx[k]];
        weighted += dw[k] * scores[idx[k]];
      }
      std::fill(dlogits, dlogits + E, T{0});
      T along = 0;  // sum of ds_j s_j
      for (int64_t k = 0; k < K; ++k) {
        const T s = scores[idx[k]];
        const T ds = spec.normalise ? c / n * (dw[k] - weighted / n) : c * dw[k];
        along += ds * s;
        dlogits[idx[k]] = spec.score == RouterScore::kSoftmax ? ds * s : ds * s * (T{1} - s);
      }
      if (spec.score != RouterScore::kSoftmax) continue;
      for (int64_t e = 0; e < E; ++e) dlogits[e] -= along * scores[e];
    }
  });
}

}  // namespace

void RouterForward(const Stream& stream, const RouterSpec& spec, const RouterArgs& args) {
  DispatchFloat(args.logits.dtype(), [&]<class T>() { Forward<T>(stream, spec, args); });
}

void RouterBackward(const Stream& stream, const RouterSpec& spec, const RouterBackwardArgs& args) {
  DispatchFloat(args.dlogits.dtype(), [&]<class T>() { Backward<T>(stream, spec, args); });
}

}  // namespace yardmaster::cpu
