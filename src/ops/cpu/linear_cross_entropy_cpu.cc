#include "src/ops/cpu/linear_cross_entropy_cpu.h"

#include <algorithm>
#include <cmath>

#include "src/device/cpu_parallel.h"
#include "src/ops/cpu/gemm_cpu.h"
#include "src/ops/cpu/math.h"

namespace yardmaster::cpu {
namespace {

// Replaces a row of logits by grad_scale * (softmax - onehot), zeros when the target does not
// count, if `gradient`. Returns the loss.
template <class T>
double LossOfRow(T* z, int64_t V, int32_t target, T grad_scale, bool gradient) {
  if (target < 0) {
    if (gradient) std::fill(z, z + V, T{0});
    return 0;
  }
  const T largest = LaneMax(z, V);
  const double of_target = static_cast<double>(z[target]) - static_cast<double>(largest);
  T sum;
  if (gradient) {
    for (int64_t v = 0; v < V; ++v) z[v] = Exp(z[v] - largest);
    sum = LaneSum<T>(V, [z](int64_t v) { return z[v]; });
    const T scale = grad_scale / sum;
    for (int64_t v = 0; v < V; ++v) z[v] *= scale;
    z[target] -= grad_scale;
  } else {
    sum = LaneSum<T>(V, [z, largest](int64_t v) { return Exp(z[v] - largest); });
  }
  return std::log(static_cast<double>(sum)) - of_target;
}

template <class T>
void Typed(const Stream& stream, const LinearCrossEntropyArgs& g, const Tensor& logits_work,
           const Tensor& losses_work) {
  const int64_t n_T = g.x.dim(0), V = g.head.dim(0);
  const int32_t* targets = g.targets.as<int32_t>();
  const bool gradient = g.dx.defined();
  const double device_scale = g.device_scale.defined() ? *g.device_scale.as<double>() : 1;
  const T grad_scale = static_cast<T>(g.grad_scale * device_scale);
  double beta_head = g.beta_head;
  double* loss_sum = g.loss_sum.as<double>();
  int64_t valid = 0;
  for (int64_t t0 = 0; t0 < n_T; t0 += g.chunk_tokens) {
    const int64_t t1 = std::min(t0 + g.chunk_tokens, n_T), n = t1 - t0;
    const Tensor x = g.x.Slice(t0, t1), z = logits_work.Slice(0, n);
    cpu::Gemm(stream, {.a = x, .b = g.head, .d = z, .trans_b = true});
    T* rows = z.as<T>();
    double* losses = losses_work.as<double>();
    ParallelFor(stream, n, GrainFor(n, 8), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* row = rows + i * V;
        YM_CHECK(-1 <= targets[t0 + i] && targets[t0 + i] < V, "target ", targets[t0 + i],
                 " of token ", t0 + i, ", V ", V);
        if (g.logits.defined()) std::copy_n(row, V, g.logits.as<T>() + (t0 + i) * V);
        losses[i] = LossOfRow(row, V, targets[t0 + i], grad_scale, gradient);
      }
    });
    for (int64_t i = 0; i < n; ++i) {
      if (targets[t0 + i] < 0) continue;
      *loss_sum += losses[i];
      ++valid;
    }
    if (!gradient) continue;
    if (g.x.dim(1) > 0) {
      cpu::Gemm(stream, {.a = z, .b = g.head, .d = g.dx.Slice(t0, t1)});
      cpu::Gemm(stream, {.a = z, .b = x, .d = g.dhead, .trans_a = true, .beta = beta_head});
    }
    beta_head = 1;  // later chunks add
  }
  if (g.valid.defined()) *g.valid.as<int64_t>() += valid;
  if (gradient && n_T == 0) {  // no chunk has scaled dhead
    T* dhead = g.dhead.as<T>();
    for (int64_t i = 0; i < g.dhead.elements(); ++i)
      dhead[i] = beta_head == 0 ? T{0} : static_cast<T>(beta_head) * dhead[i];
  }
}

}  // namespace

void LinearCrossEntropy(const Stream& stream, const LinearCrossEntropyArgs& args,
                        const Tensor& logits, const Tensor& losses) {
  DispatchFloat(args.x.dtype(), [&]<class T>() { Typed<T>(stream, args, logits, losses); });
}

}  // namespace yardmaster::cpu
