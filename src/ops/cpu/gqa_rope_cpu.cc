#include "src/ops/cpu/gqa_rope_cpu.h"

#include "src/device/cpu_parallel.h"

namespace yardmaster::cpu {
namespace {

template <class T>
void Rotate(const T* cos_sin, int64_t Q, T sign, T* x) {
  for (int64_t i = 0; i < Q / 2; ++i) {
    const T c = cos_sin[2 * i], s = sign * cos_sin[2 * i + 1];
    const T a = x[i], b = x[i + Q / 2];
    x[i] = a * c - b * s;
    x[i + Q / 2] = a * s + b * c;
  }
}

template <class T>
void Typed(const Stream& stream, const GqaRopeArgs& g, T sign) {
  const int64_t n_T = g.q.dim(0), H = g.q.dim(1), G = g.k.dim(1), Q = g.q.dim(2);
  ParallelFor(stream, n_T, GrainFor(n_T, 16), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t position = g.positions.as<int32_t>()[t];
      YM_CHECK(0 <= position && position < g.table.dim(0), "position ", position, " of token ", t,
               " is beyond the table of ", g.table.dim(0));
      const T* cos_sin = g.table.as<T>() + position * Q;
      for (int64_t h = 0; h < H; ++h) Rotate(cos_sin, Q, sign, g.q.as<T>() + (t * H + h) * Q);
      for (int64_t h = 0; h < G; ++h) Rotate(cos_sin, Q, sign, g.k.as<T>() + (t * G + h) * Q);
    }
  });
}

}  // namespace

void GqaRope(const Stream& stream, const GqaRopeArgs& args, bool backward) {
  DispatchFloat(args.q.dtype(), [&]<class T>() { Typed<T>(stream, args, backward ? T{-1} : T{1}); });
}

}  // namespace yardmaster::cpu
