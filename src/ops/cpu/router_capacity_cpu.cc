#include "src/ops/cpu/router_capacity_cpu.h"

#include <algorithm>

#include "src/device/cpu_parallel.h"

namespace yardmaster::cpu {
namespace {

template <class T>
void Typed(const Stream& stream, const RouterCapacityArgs& g, const Tensor& pairs_work,
           const Tensor& begins_work) {
  const int64_t pairs = g.idx.elements(), E = g.num_experts, C = g.capacity;
  const int32_t* idx = g.idx.as<int32_t>();
  const T* w = g.w.as<T>();
  int32_t* kept = g.kept_idx.as<int32_t>();
  int64_t* by_expert = pairs_work.as<int64_t>();
  int64_t* begin = begins_work.as<int64_t>();
  std::fill(begin, begin + E + 1, int64_t{0});
  for (int64_t p = 0; p < pairs; ++p) {
    YM_CHECK(0 <= idx[p] && idx[p] < E, "pair ", p, " is of expert ", idx[p], " of ", E);
    ++begin[idx[p] + 1];
  }
  for (int64_t e = 0; e < E; ++e) begin[e + 1] += begin[e];
  int64_t dropped = 0;
  for (int64_t e = 0; e < E; ++e) dropped += std::max<int64_t>(0, begin[e + 1] - begin[e] - C);
  // Pairs of an expert in the order of their tokens: begin[e] is the next free place, then the end.
  for (int64_t p = 0; p < pairs; ++p) by_expert[begin[idx[p]]++] = p;
  std::copy_n(idx, pairs, kept);
  ParallelFor(stream, E, 1, [&](int64_t e, int64_t) {
    int64_t* first = by_expert + (e > 0 ? begin[e - 1] : 0);
    int64_t* last = by_expert + begin[e];
    if (last - first <= C) return;
    if (g.policy == DropPolicy::kProbs) {
      // Without a strict order of NaN the step would not reach its verdict.
      const auto larger = [w](int64_t a, int64_t b) {
        const bool nan_a = w[a] != w[a], nan_b = w[b] != w[b];
        if (nan_a != nan_b) return nan_b;
        return !nan_a && w[a] != w[b] ? w[a] > w[b] : a < b;
      };
      std::sort(first, last, larger);
    }
    for (const int64_t* p = first + C; p != last; ++p) kept[*p] = -1;
  });
  if (g.dropped.defined()) *g.dropped.as<double>() += static_cast<double>(dropped);
}

}  // namespace

void RouterCapacity(const Stream& stream, const RouterCapacityArgs& args, const Tensor& pairs,
                    const Tensor& begins) {
  DispatchFloat(args.w.dtype(), [&]<class T>() { Typed<T>(stream, args, pairs, begins); });
}

}  // namespace yardmaster::cpu
