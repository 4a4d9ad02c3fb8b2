#include "src/ops/cpu/rmsnorm_cpu.h"

#include <algorithm>
#include <cmath>

#include "src/device/cpu_parallel.h"
#include "src/ops/cpu/math.h"

namespace yardmaster::cpu {
namespace {

template <class T>
void Forward(const Stream& stream, const RmsNormArgs& g) {
  const int64_t n_T = g.x.dim(0), D = g.x.dim(1);
  const T* w = g.w.as<T>();
  const T* residual = g.residual.defined() ? g.residual.as<T>() : nullptr;
  T* h_out = g.h.defined() ? g.h.as<T>() : nullptr;
  T* rstd = g.rstd.as<T>();
  ParallelFor(stream, n_T, GrainFor(n_T, 16), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* h = g.x.as<T>() + t * g.x.ld();
      T* y = g.y.as<T>() + t * D;
      if (residual != nullptr) {
        const T* r = residual + t * D;
        T* out = h_out + t * D;
#pragma GCC ivdep  // h may be x or residual
        for (int64_t d = 0; d < D; ++d) out[d] = h[d] + r[d];
        h = out;
      }
      const T squares = LaneSum<T>(D, [h](int64_t d) { return h[d] * h[d]; });
      const T scale = static_cast<T>(
          1 / std::sqrt(static_cast<double>(squares) / static_cast<double>(D) + g.eps));
      rstd[t] = scale;
      for (int64_t d = 0; d < D; ++d) y[d] = h[d] * scale * w[d];
    }
  });
}

template <class T>
void Backward(const Stream& stream, const RmsNormBackwardArgs& g, const Tensor& partial_dw) {
  const int64_t n_T = g.h.dim(0), D = g.h.dim(1);
  const T* w = g.w.as<T>();
  const T* rstd = g.rstd.as<T>();
  const T* dresidual = g.dresidual.defined() ? g.dresidual.as<T>() : nullptr;
  T* dh_all = g.dh.defined() ? g.dh.as<T>() : nullptr;
  double* partials = g.dw.defined() ? partial_dw.as<double>() : nullptr;
  const int64_t grain = GrainFor(n_T, 1, kRmsNormPartials);
  ParallelFor(stream, n_T, grain, [&](int64_t begin, int64_t end) {
    double* dw = partials != nullptr ? partials + begin / grain * D : nullptr;
    if (dw != nullptr) std::fill(dw, dw + D, 0.0);
    for (int64_t t = begin; t < end; ++t) {
      const T* dy = g.dy.as<T>() + t * D;
      const T* h = g.h.as<T>() + t * g.h.ld();
      const T scale = rstd[t];
      if (dw != nullptr) {
        for (int64_t d = 0; d < D; ++d) dw[d] += static_cast<double>(dy[d] * (h[d] * scale));
      }
      if (dh_all == nullptr) continue;
      // All of dy's row is read before dh's is written: they may be the same.
      const T mean = LaneSum<T>(D, [=](int64_t d) { return dy[d] * w[d] * (h[d] * scale); }) /
                     static_cast<T>(D);
      T* dh = dh_all + t * g.dh.ld();
      if (dresidual != nullptr) {
        const T* add = dresidual + t * D;
#pragma GCC ivdep  // dh may be dy or dresidual: the same index
        for (int64_t d = 0; d < D; ++d)
          dh[d] = scale * (dy[d] * w[d] - h[d] * scale * mean) + add[d];
      } else {
#pragma GCC ivdep
        for (int64_t d = 0; d < D; ++d) dh[d] = scale * (dy[d] * w[d] - h[d] * scale * mean);
      }
    }
  });
  if (partials == nullptr) return;
  T* dw = g.dw.as<T>();
  for (int64_t d = 0; d < D; ++d) {
    double sum = g.beta_w == 0 ? 0.0 : g.beta_w * static_cast<double>(dw[d]);
    for (int64_t begin = 0; begin < n_T; begin += grain) sum += partials[begin / grain * D + d];
    dw[d] = static_cast<T>(sum);
  }
}

}  // namespace

void RmsNormForward(const Stream& stream, const RmsNormArgs& args) {
  DispatchFloat(args.x.dtype(), [&]<class T>() { Forward<T>(stream, args); });
}

void RmsNormBackward(const Stream& stream, const RmsNormBackwardArgs& args,
                     const Tensor& partial_dw) {
  DispatchFloat(args.h.dtype(), [&]<class T>() { Backward<T>(stream, args, partial_dw); });
}

}  // namespace yardmaster::cpu
