#include "src/ops/cpu/mla_rope_pack_cpu.h"

#include <algorithm>

#include "src/device/cpu_parallel.h"

namespace yardmaster::cpu {
namespace {

// Rotates P/2 interleaved pairs; `sign` -1 is the transpose. `y` may be `x`.
template <class T>
void Rotate(const T* x, const T* cos_sin, int64_t P, T sign, T* y) {
  for (int64_t i = 0; i < P; i += 2) {
    const T c = cos_sin[i], s = sign * cos_sin[i + 1];
    const T a = x[i], b = x[i + 1];
    y[i] = a * c - b * s;
    y[i + 1] = a * s + b * c;
  }
}

// cos and sin of the token's position.
template <class T>
const T* TableRow(const Tensor& table, const Tensor& positions, int64_t t) {
  const int64_t position = positions.as<int32_t>()[t];
  YM_CHECK(0 <= position && position < table.dim(0), "position ", position, " of token ", t,
           " is beyond the table of ", table.dim(0));
  return table.as<T>() + position * table.dim(1) * 2;
}

template <class T>
void Forward(const Stream& stream, const MlaRopePackArgs& g) {
  const int64_t n_T = g.q.dim(0), H = g.q.dim(1), Q = g.q.dim(2), P = g.k_rope.dim(1), N = Q - P,
                V = g.v_out.dim(2);
  ParallelFor(stream, n_T, GrainFor(n_T, 16), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* cos_sin = TableRow<T>(g.table, g.positions, t);
      const T* k_rope = g.k_rope.as<T>() + t * g.k_rope.ld();
      T* first_k = g.k_out.as<T>() + t * H * Q;  // rotated once, for head 0, then copied
      for (int64_t h = 0; h < H; ++h) {
        const T* q = g.q.as<T>() + (t * H + h) * Q;
        const T* kv = g.kv.as<T>() + (t * H + h) * (N + V);
        T* q_out = g.q_out.as<T>() + (t * H + h) * Q;
        T* k_out = first_k + h * Q;
        if (q_out != q) std::copy_n(q, N, q_out);
        Rotate(q + N, cos_sin, P, T{1}, q_out + N);
        std::copy_n(kv, N, k_out);
        if (h == 0) {
          Rotate(k_rope, cos_sin, P, T{1}, k_out + N);
        } else {
          std::copy_n(first_k + N, P, k_out + N);
        }
        std::copy_n(kv + N, V, g.v_out.as<T>() + (t * H + h) * V);
      }
    }
  });
}

template <class T>
void Backward(const Stream& stream, const MlaRopePackBackwardArgs& g) {
  const int64_t n_T = g.dq_out.dim(0), H = g.dq_out.dim(1), Q = g.dq_out.dim(2),
                P = g.dk_rope.dim(1), N = Q - P;
  const int64_t V = g.dv_out.dim(2);
  ParallelFor(stream, n_T, GrainFor(n_T, 16), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* cos_sin = TableRow<T>(g.table, g.positions, t);
      T* dk_rope = g.dk_rope.as<T>() + t * g.dk_rope.ld();
      std::fill_n(dk_rope, P, T{0});
      for (int64_t h = 0; h < H; ++h) {
        const T* dq_out = g.dq_out.as<T>() + (t * H + h) * Q;
        const T* dk_out = g.dk_out.as<T>() + (t * H + h) * Q;
        const T* dv_out = g.dv_out.as<T>() + (t * H + h) * V;
        T* dq = g.dq.as<T>() + (t * H + h) * Q;
        T* dkv = g.dkv.as<T>() + (t * H + h) * (N + V);
        if (dq != dq_out) std::copy_n(dq_out, N, dq);
        Rotate(dq_out + N, cos_sin, P, T{-1}, dq + N);
        std::copy_n(dk_out, N, dkv);
        std::copy_n(dv_out, V, dkv + N);
        for (int64_t i = 0; i < P; ++i) dk_rope[i] += dk_out[N + i];
      }
      Rotate(dk_rope, cos_sin, P, T{-1},
             dk_rope);  // the rotation is linear and the same for all heads: once, after the sum
    }
  });
}

}  // namespace

void MlaRopePackForward(const Stream& stream, const MlaRopePackArgs& args) {
  DispatchFloat(args.q.dtype(), [&]<class T>() { Forward<T>(stream, args); });
}

void MlaRopePackBackward(const Stream& stream, const MlaRopePackBackwardArgs& args) {
  DispatchFloat(args.dq_out.dtype(), [&]<class T>() { Backward<T>(stream, args); });
}

}  // namespace yardmaster::cpu
