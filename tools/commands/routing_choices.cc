#include "tools/commands/routing_choices.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "src/base/error.h"
#include "src/base/philox.h"

namespace yardmaster {

namespace {

// S of "skew:S".
double SkewOf(const std::string& routing, int64_t experts, int64_t top_k) {
  const char* const begin = routing.data() + 5;
  const char* const end = routing.data() + routing.size();
  const double most = static_cast<double>(experts) / static_cast<double>(top_k);
  double skew = 0;
  const auto [at, error] = std::from_chars(begin, end, skew);
  if (error != std::errc() || at != end || !(skew >= 1.0 && skew <= most)) {
    throw ConfigError("bad skew in routing '" + routing + "'", "",
                      "skew:S with S from 1 to experts / top-k, " + std::to_string(most));
  }
  return skew;
}

// Experts in random order, each once, again and again; a token takes the next ones it does not have yet.
class Deck {
 public:
  Deck(int64_t experts, uint64_t seed) : experts_(experts), seed_(seed) {}
  void Take(int64_t count, std::vector<int32_t>* token) {
    std::vector<int32_t> put_back;
    while (static_cast<int64_t>(token->size()) < count) {
      if (cards_.empty()) Shuffle();
      const int32_t e = cards_.back();
      cards_.pop_back();
      (std::find(token->begin(), token->end(), e) == token->end() ? *token : put_back).push_back(e);
    }
    cards_.insert(cards_.end(), put_back.begin(), put_back.end());
  }

 private:
  void Shuffle() {
    cards_.resize(static_cast<size_t>(experts_));
    std::iota(cards_.begin(), cards_.end(), 0);
    for (int64_t i = experts_ - 1; i > 0; --i) {
      const auto j = static_cast<size_t>(PhiloxUniform(seed_, StreamOf("deck"), drawn_++) * static_cast<double>(i + 1));
      std::swap(cards_[static_cast<size_t>(i)], cards_[j]);
    }
  }
  int64_t experts_;
  uint64_t seed_, drawn_ = 0;
  std::vector<int32_t> cards_;
};

}  // namespace

std::vector<int32_t> RoutingChoices(const std::string& routing, int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed) {
  const bool skewed = routing.rfind("skew:", 0) == 0;
  if (!skewed && routing != "balanced" && routing != "random" && routing != "real" && routing != "one")
    throw ConfigError("unknown routing '" + routing + "'", "", "balanced, random, real, skew:S or one");
  if (top_k < 1 || top_k > experts)
    throw ConfigError("top-k must be from 1 to the number of experts", "", std::to_string(top_k) + " of " + std::to_string(experts));
  const double skew = skewed ? SkewOf(routing, experts, top_k) : 1;
  const auto hot = static_cast<int32_t>(experts / 3);
  Deck deck(experts, seed);
  std::vector<int32_t> all;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int32_t> token;
    if (routing == "balanced") {
      deck.Take(top_k, &token);
    } else {
      const auto stream = static_cast<uint64_t>(t);
      const bool wants_hot = PhiloxUniform(seed, StreamOf("hot"), stream) * static_cast<double>(experts) <
                             skew * static_cast<double>(top_k);
      std::vector<double> key(static_cast<size_t>(experts));  // the smallest are chosen
      for (int64_t e = 0; e < experts; ++e) {
        const double u = PhiloxUniform(seed, stream, static_cast<uint64_t>(e));
        double& k = key[static_cast<size_t>(e)];
        k = u;
        if (routing == "one") k = static_cast<double>(e);
        // The popularity of an expert is the same on all ranks.
        if (routing == "real") k = -std::log(1 - u) * std::exp(0.7 * PhiloxNormal(7, StreamOf("popularity"), static_cast<uint64_t>(e)));
        if (skewed && e == hot) k = wants_hot ? -1 : 2;
      }
      token.resize(static_cast<size_t>(experts));
      std::iota(token.begin(), token.end(), 0);
      std::partial_sort(token.begin(), token.begin() + top_k, token.end(),
                        [&](int32_t a, int32_t b) { return key[static_cast<size_t>(a)] < key[static_cast<size_t>(b)]; });
      token.resize(static_cast<size_t>(top_k));
    }
    std::sort(token.begin(), token.end());
    all.insert(all.end(), token.begin(), token.end());
  }
  return all;
}

}  // namespace yardmaster
