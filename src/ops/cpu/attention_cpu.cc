#include "src/ops/cpu/attention_cpu.h"

#include <algorithm>
#include <cmath>

#include "src/device/cpu_parallel.h"
#include "src/ops/cpu/blas.h"
#include "src/ops/cpu/math.h"

namespace yardmaster::cpu {
namespace {

// First position that row i may attend to.
int64_t FirstKey(const int32_t* document_start, int64_t i) {
  const int64_t first = document_start != nullptr ? document_start[i] : 0;
  YM_CHECK(0 <= first && first <= i, "document_start ", first, " of position ", i);
  return first;
}

// f(row_begin, row_end, key_begin) for blocks of query rows; keys [key_begin, row_end) hold all
// that the rows attend to.
template <class F>
void ForRowBlocks(const int32_t* document_start, int64_t S, F&& f) {
  for (int64_t i0 = 0; i0 < S; i0 += kAttentionRows) {
    const int64_t i1 = std::min(i0 + kAttentionRows, S);
    int64_t first = i0;
    for (int64_t i = i0; i < i1; ++i) first = std::min(first, FirstKey(document_start, i));
    f(i0, i1, first);
  }
}

struct Dims {
  int64_t S, H, G, Q, V, heads_of_key;
  explicit Dims(const AttentionArgs& g)
      : S(g.q.dim(1)),
        H(g.q.dim(2)),
        G(g.k.dim(2)),
        Q(g.q.dim(3)),
        V(g.v.dim(3)),
        heads_of_key(H / G) {}
};

// f(sample, key_head, workspace) over all pairs.
template <class F>
void ForKeyHeads(const Stream& stream, int64_t B, int64_t G, F&& f) {
  const int64_t grain = GrainFor(B * G, 1, kAttentionChunks);
  ParallelFor(stream, B * G, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i / G, i % G, begin / grain);
  });
}

template <class T>
void Forward(const Stream& stream, const AttentionArgs& g, const Tensor& p_work) {
  const Dims n(g);
  ForKeyHeads(stream, g.q.dim(0), n.G, [&](int64_t b, int64_t key_head, int64_t chunk) {
    const int32_t* start =
        g.document_start.defined() ? g.document_start.as<int32_t>() + b * n.S : nullptr;
    T* p = p_work.as<T>() + chunk * kAttentionRows * n.S;
    const T* k = g.k.as<T>() + (b * n.S * n.G + key_head) * n.Q;  // row j at j * G * Q
    const T* v = g.v.as<T>() + (b * n.S * n.G + key_head) * n.V;
    for (int64_t h = key_head * n.heads_of_key; h < (key_head + 1) * n.heads_of_key; ++h) {
      const T* q = g.q.as<T>() + (b * n.S * n.H + h) * n.Q;
      T* o = g.o.as<T>() + (b * n.S * n.H + h) * n.V;
      T* lse = g.lse.as<T>() + (b * n.H + h) * n.S;
      ForRowBlocks(start, n.S, [&](int64_t i0, int64_t i1, int64_t j0) {
        const int64_t keys = i1 - j0;
        BlasGemm<T>(false, true, i1 - i0, keys, n.Q, static_cast<T>(g.scale),
                    {q + i0 * n.H * n.Q, n.H * n.Q}, {k + j0 * n.G * n.Q, n.G * n.Q}, T{0},
                    {p, keys});
        for (int64_t i = i0; i < i1; ++i) {
          T* row = p + (i - i0) * keys;
          const int64_t first = FirstKey(start, i) - j0, count = i + 1 - j0 - first;
          T* s = row + first;
          const T largest = LaneMax(s, count);
          for (int64_t j = 0; j < count; ++j) s[j] = Exp(s[j] - largest);
          const T sum = LaneSum<T>(count, [s](int64_t j) { return s[j]; });
          lse[i] = static_cast<T>(largest + std::log(sum));
          const T inverse = T{1} / sum;
          for (int64_t j = 0; j < count; ++j) s[j] *= inverse;
          std::fill(row, s, T{0});
          std::fill(s + count, row + keys, T{0});
        }
        BlasGemm<T>(false, false, i1 - i0, n.V, keys, T{1}, {p, keys},
                    {v + j0 * n.G * n.V, n.G * n.V}, T{0}, {o + i0 * n.H * n.V, n.H * n.V});
      });
    }
  });
}

template <class T>
void Backward(const Stream& stream, const AttentionBackwardArgs& g, const Tensor& p_work,
              const Tensor& ds_work) {
  const AttentionArgs& f = g.forward;
  const Dims n(f);
  const T scale = static_cast<T>(f.scale);
  ForKeyHeads(stream, f.q.dim(0), n.G, [&](int64_t b, int64_t key_head, int64_t chunk) {
    const int32_t* start =
        f.document_start.defined() ? f.document_start.as<int32_t>() + b * n.S : nullptr;
    T* p = p_work.as<T>() + chunk * kAttentionRows * n.S;
    T* ds = ds_work.as<T>() + chunk * kAttentionRows * n.S;
    const int64_t k_at = (b * n.S * n.G + key_head) * n.Q, v_at = (b * n.S * n.G + key_head) * n.V;
    const T* k = f.k.as<T>() + k_at;
    const T* v = f.v.as<T>() + v_at;
    T* dk = g.dk.as<T>() + k_at;
    T* dv = g.dv.as<T>() + v_at;
    for (int64_t j = 0; j < n.S; ++j) {
      std::fill_n(dk + j * n.G * n.Q, n.Q, T{0});
      std::fill_n(dv + j * n.G * n.V, n.V, T{0});
    }
    for (int64_t h = key_head * n.heads_of_key; h < (key_head + 1) * n.heads_of_key; ++h) {
      const int64_t q_at = (b * n.S * n.H + h) * n.Q, o_at = (b * n.S * n.H + h) * n.V;
      const T* lse = f.lse.as<T>() + (b * n.H + h) * n.S;
      ForRowBlocks(start, n.S, [&](int64_t i0, int64_t i1, int64_t j0) {
        const int64_t rows = i1 - i0, keys = i1 - j0;
        const Mat<const T> q{f.q.as<T>() + q_at + i0 * n.H * n.Q, n.H * n.Q};
        const Mat<const T> o{f.o.as<T>() + o_at + i0 * n.H * n.V, n.H * n.V};
        const Mat<const T> d_o{g.do_.as<T>() + o_at + i0 * n.H * n.V, n.H * n.V};
        const Mat<const T> k_block{k + j0 * n.G * n.Q, n.G * n.Q},
            v_block{v + j0 * n.G * n.V, n.G * n.V};
        BlasGemm<T>(false, true, rows, keys, n.Q, scale, q, k_block, T{0}, {p, keys});
        BlasGemm<T>(false, true, rows, keys, n.V, T{1}, d_o, v_block, T{0}, {ds, keys});  // dp
        for (int64_t i = 0; i < rows; ++i) {
          const int64_t first = FirstKey(start, i0 + i) - j0, end = i0 + i + 1 - j0;
          T* p_row = p + i * keys;
          T* ds_row = ds + i * keys;
          const T* o_row = o.data + i * o.ld;
          const T* do_row = d_o.data + i * d_o.ld;
          const T delta = LaneSum<T>(n.V, [=](int64_t c) { return do_row[c] * o_row[c]; });
          const T logsum = lse[i0 + i];
          for (int64_t j = first; j < end; ++j) p_row[j] = Exp(p_row[j] - logsum);
          for (int64_t j = first; j < end; ++j) ds_row[j] = p_row[j] * (ds_row[j] - delta);
          for (T* row : {p_row, ds_row}) {
            std::fill(row, row + first, T{0});
            std::fill(row + end, row + keys, T{0});
          }
        }
        BlasGemm<T>(false, false, rows, n.Q, keys, scale, {ds, keys}, k_block, T{0},
                    {g.dq.as<T>() + q_at + i0 * n.H * n.Q, n.H * n.Q});
        BlasGemm<T>(true, false, keys, n.Q, rows, scale, {ds, keys}, q, T{1},
                    {dk + j0 * n.G * n.Q, n.G * n.Q});
        BlasGemm<T>(true, false, keys, n.V, rows, T{1}, {p, keys}, d_o, T{1},
                    {dv + j0 * n.G * n.V, n.G * n.V});
      });
    }
  });
}

}  // namespace

void AttentionForward(const Stream& stream, const AttentionArgs& args, const Tensor& p) {
  DispatchFloat(args.q.dtype(), [&]<class T>() { Forward<T>(stream, args, p); });
}

void AttentionBackward(const Stream& stream, const AttentionBackwardArgs& args, const Tensor& p,
                       const Tensor& ds) {
  DispatchFloat(args.forward.q.dtype(), [&]<class T>() { Backward<T>(stream, args, p, ds); });
}

}  // namespace yardmaster::cpu
