#include "src/ops/cpu/swiglu_cpu.h"

#include "src/device/cpu_parallel.h"
#include "src/ops/cpu/math.h"

namespace yardmaster::cpu {
namespace {

int64_t ActiveRows(const Tensor& num_rows, int64_t R) {
  if (!num_rows.defined()) return R;
  const int64_t n = num_rows.as<int64_t>()[0];
  YM_CHECK(0 <= n && n <= R, "num_rows ", n, " of ", R);
  return n;
}

template <class T>
void Forward(const Stream& stream, const SwigluArgs& g) {
  const int64_t R = ActiveRows(g.num_rows, g.act.dim(0)), F = g.act.dim(1);
  const T* w = g.w.defined() ? g.w.as<T>() : nullptr;
  ParallelFor(stream, R, GrainFor(R, 16), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* gate = g.gate_up.as<T>() + r * 2 * F;
      const T* up = gate + F;
      T* act = g.act.as<T>() + r * F;
      const T wr = w != nullptr ? w[r] : T{1};
      for (int64_t f = 0; f < F; ++f) act[f] = wr * (gate[f] * Sigmoid(gate[f])) * up[f];
    }
  });
}

template <class T>
void Backward(const Stream& stream, const SwigluBackwardArgs& g) {
  const int64_t R = ActiveRows(g.num_rows, g.dact.dim(0)), F = g.dact.dim(1);
  const T* w = g.w.defined() ? g.w.as<T>() : nullptr;
  T* dw = g.dw.defined() ? g.dw.as<T>() : nullptr;
  T* act_all = g.act.defined() ? g.act.as<T>() : nullptr;
  // By blocks of columns, since what dw sums must be formed before gate and up are overwritten by
  // their gradients. ivdep: they are overwritten in place, at the same index.
  constexpr int64_t kBlock = 64;
  ParallelFor(stream, R, GrainFor(R, 16), [&](int64_t begin, int64_t end) {
    T product[kBlock];  // dact * silu(gate) * up
    for (int64_t r = begin; r < end; ++r) {
      const T* da = g.dact.as<T>() + r * F;
      const T* gate = g.gate_up.as<T>() + r * 2 * F;
      const T* up = gate + F;
      T* dgate = g.dgate_up.as<T>() + r * 2 * F;
      T* dup = dgate + F;
      T* act = act_all != nullptr ? act_all + r * F : nullptr;
      const T wr = w != nullptr ? w[r] : T{1};
      T sum = 0;
      for (int64_t f0 = 0; f0 < F; f0 += kBlock) {
        const int64_t n = F - f0 < kBlock ? F - f0 : kBlock;
        if (act != nullptr) {
          for (int64_t f = f0; f < f0 + n; ++f) act[f] = wr * (gate[f] * Sigmoid(gate[f])) * up[f];
        }
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) {
          const int64_t f = f0 + i;
          const T z = gate[f], u = up[f], d = da[f];
          const T s = Sigmoid(z), silu = z * s;
          product[i] = d * silu * u;
          dgate[f] = d * wr * u * (s * (T{1} + z * (T{1} - s)));
          dup[f] = d * wr * silu;
        }
        sum += LaneSum<T>(n, [&product](int64_t i) { return product[i]; });
      }
      if (dw != nullptr) dw[r] = sum;
    }
  });
}

}  // namespace

void SwigluForward(const Stream& stream, const SwigluArgs& args) {
  DispatchFloat(args.act.dtype(), [&]<class T>() { Forward<T>(stream, args); });
}

void SwigluBackward(const Stream& stream, const SwigluBackwardArgs& args) {
  DispatchFloat(args.dact.dtype(), [&]<class T>() { Backward<T>(stream, args); });
}

}  // namespace yardmaster::cpu
