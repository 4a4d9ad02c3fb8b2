#include "src/ops/cuda/sdpa_graphs.h"

#include <limits>

namespace yardmaster::cuda {
namespace {

constexpr cudnnDataType_t kBf16 = CUDNN_DATA_BFLOAT16, kF32 = CUDNN_DATA_FLOAT, kI32 = CUDNN_DATA_INT32,
                          kBool = CUDNN_DATA_BOOLEAN;
using Dims = CudnnGraph::Dims;

struct Layout {
  int64_t B, h, g, s, q, v;
  int64_t all_heads, all_keys;
  explicit Layout(const SdpaShape& p)
      : B(p.samples), h(p.key_heads * p.queries_per_key), g(p.key_heads), s(p.S), q(p.Q), v(p.V),
        all_heads(p.all_key_heads * p.queries_per_key), all_keys(p.all_key_heads) {}
  Dims Rows(int64_t heads, int64_t width) const { return {B, heads, s, width}; }
  Dims RowStrides(int64_t heads, int64_t width) const { return {s * heads * width, width, heads * width, 1}; }
  Dims Transposed(int64_t heads, int64_t width) const { return {B, heads, width, s}; }
  Dims TransposedStrides(int64_t heads, int64_t width) const { return {s * heads * width, width, 1, heads * width}; }
  Dims Scores() const { return {B, h, s, s}; }
  Dims PerRow() const { return {B, h, s, 1}; }
  // lse of the whole tensor is [B, all_heads, S].
  Dims LseStrides() const { return {all_heads * s, s, 1, 1}; }
  Dims ScratchStrides() const { return {h * s, s, 1, 1}; }
};

// x where the key is not after the query, else -inf.
CudnnTensor CausalMask(CudnnGraph& g, const Layout& n, CudnnTensor x) {
  const CudnnTensor row = g.Virtual(kI32, n.Scores()), col = g.Virtual(kI32, n.Scores());
  g.Index(x, 2, row);
  g.Index(x, 3, col);
  const CudnnTensor seen = g.Virtual(kBool, n.Scores());
  g.Pointwise(CUDNN_POINTWISE_CMP_GE, row, col, seen, kBool);
  const CudnnTensor masked = g.Virtual(kF32, n.Scores());
  g.Select(x, g.Scalar(-std::numeric_limits<float>::infinity()), seen, masked);
  return masked;
}

CudnnTensor Scaled(CudnnGraph& g, const Layout& n, CudnnTensor x, CudnnTensor scale) {
  const CudnnTensor y = g.Virtual(kF32, n.Scores());
  g.Pointwise(CUDNN_POINTWISE_MUL, x, scale, y, kF32);
  return y;
}

// [rows, keys] seen as [keys, rows], rounded to BF16: the left operand of dv and dk.
CudnnTensor TransposedScores(CudnnGraph& g, const Layout& n, CudnnTensor x) {
  const CudnnTensor y = g.Virtual(kBf16, n.Scores(), {n.h * n.s * n.s, n.s * n.s, 1, n.s});
  g.Reshape(x, y);
  return y;
}

// c [B, g, s, width] = a b, summed over the query heads of a key head.
void MatmulPerKeyHead(CudnnGraph& g, const Layout& n, CudnnTensor a, CudnnTensor b, int64_t width, CudnnTensor c) {
  if (n.h == n.g) return g.Matmul(a, b, c);
  const CudnnTensor full = g.Virtual(kBf16, {n.B, n.h, n.s, width});
  g.Matmul(a, b, full);
  g.Reduce(CUDNN_REDUCE_TENSOR_ADD, full, c);
}

}  // namespace

SdpaForward BuildSdpaForward(cudnnHandle_t handle, const SdpaShape& p, int64_t max_workspace_bytes) {
  const Layout n(p);
  CudnnGraph g;
  const CudnnTensor q = g.Real(kBf16, n.Rows(n.h, n.q), n.RowStrides(n.all_heads, n.q));
  const CudnnTensor kt = g.Real(kBf16, n.Transposed(n.g, n.q), n.TransposedStrides(n.all_keys, n.q));
  const CudnnTensor v = g.Real(kBf16, n.Rows(n.g, n.v), n.RowStrides(n.all_keys, n.v));
  const CudnnTensor o = g.Real(kBf16, n.Rows(n.h, n.v), n.RowStrides(n.all_heads, n.v));
  const CudnnTensor lse = g.Real(kF32, n.PerRow(), n.LseStrides());

  const CudnnTensor raw = g.Virtual(kF32, n.Scores());
  g.Matmul(q, kt, raw);
  const CudnnTensor s = CausalMask(g, n, Scaled(g, n, raw, g.Scalar(p.scale)));
  const CudnnTensor largest = g.Virtual(kF32, n.PerRow(), n.ScratchStrides());
  g.Reduce(CUDNN_REDUCE_TENSOR_MAX, s, largest);
  const CudnnTensor shifted = g.Virtual(kF32, n.Scores());
  g.Pointwise(CUDNN_POINTWISE_SUB, s, largest, shifted, kF32);
  const CudnnTensor e = g.Virtual(kF32, n.Scores());
  g.Pointwise(CUDNN_POINTWISE_EXP, shifted, e);
  const CudnnTensor sum = g.Virtual(kF32, n.PerRow(), n.ScratchStrides());
  g.Reduce(CUDNN_REDUCE_TENSOR_ADD, e, sum);
  const CudnnTensor log = g.Virtual(kF32, n.PerRow(), n.ScratchStrides());
  g.Pointwise(CUDNN_POINTWISE_LOG, sum, log);
  g.Pointwise(CUDNN_POINTWISE_ADD, largest, log, lse, kF32);
  const CudnnTensor prob = g.Virtual(kBf16, n.Scores());
  g.Pointwise(CUDNN_POINTWISE_DIV, e, sum, prob, kF32);
  g.Matmul(prob, v, o);
  return {g.Build(handle, max_workspace_bytes, true), q, kt, v, o, lse};
}

SdpaBackward BuildSdpaBackward(cudnnHandle_t handle, const SdpaShape& p, int64_t max_workspace_bytes) {
  const Layout n(p);
  CudnnGraph g;
  const CudnnTensor q = g.Real(kBf16, n.Rows(n.h, n.q), n.RowStrides(n.all_heads, n.q));
  const CudnnTensor kt = g.Real(kBf16, n.Transposed(n.g, n.q), n.TransposedStrides(n.all_keys, n.q));
  const CudnnTensor vt = g.Real(kBf16, n.Transposed(n.g, n.v), n.TransposedStrides(n.all_keys, n.v));
  const CudnnTensor o = g.Real(kBf16, n.Rows(n.h, n.v), n.RowStrides(n.all_heads, n.v));
  const CudnnTensor lse = g.Real(kF32, n.PerRow(), n.LseStrides());
  const CudnnTensor d_o = g.Real(kBf16, n.Rows(n.h, n.v), n.RowStrides(n.all_heads, n.v));
  const CudnnTensor dq = g.Real(kBf16, n.Rows(n.h, n.q), n.RowStrides(n.all_heads, n.q));
  const CudnnTensor dk = g.Real(kBf16, n.Rows(n.g, n.q), n.RowStrides(n.all_keys, n.q));
  const CudnnTensor dv = g.Real(kBf16, n.Rows(n.g, n.v), n.RowStrides(n.all_keys, n.v));
  const CudnnTensor softmax_sum = g.Real(kF32, n.PerRow(), n.ScratchStrides());
  const CudnnTensor scale = g.Scalar(p.scale);

  // <do_i, o_i>. The factor of 1 is where dropout would go; the pattern has it.
  const CudnnTensor product = g.Virtual(kF32, n.Rows(n.h, n.v), {n.h * n.s * n.v, n.s * n.v, n.h * n.v, 1});
  g.Pointwise(CUDNN_POINTWISE_MUL, d_o, o, product, kF32);
  const CudnnTensor row_sum = g.Virtual(kF32, n.PerRow(), n.ScratchStrides());
  g.Reduce(CUDNN_REDUCE_TENSOR_ADD, product, row_sum);
  g.Pointwise(CUDNN_POINTWISE_MUL, row_sum, g.Scalar(1), softmax_sum, kF32);

  // p = exp(scale q k - lse), dv = p^T do
  const CudnnTensor raw = g.Virtual(kF32, n.Scores());
  g.Matmul(q, kt, raw);
  const CudnnTensor shifted = g.Virtual(kF32, n.Scores());
  g.Pointwise(CUDNN_POINTWISE_SUB, Scaled(g, n, raw, scale), lse, shifted, kF32);
  const CudnnTensor prob = g.Virtual(kF32, n.Scores());
  g.Pointwise(CUDNN_POINTWISE_EXP, CausalMask(g, n, shifted), prob);
  MatmulPerKeyHead(g, n, TransposedScores(g, n, prob), d_o, n.v, dv);

  // ds = scale p (do v - <do, o>), dk = ds^T q
  const CudnnTensor dp = g.Virtual(kF32, n.Scores());
  g.Matmul(d_o, vt, dp);
  const CudnnTensor centred = g.Virtual(kF32, n.Scores());
  g.Pointwise(CUDNN_POINTWISE_SUB, dp, softmax_sum, centred, kF32);
  const CudnnTensor weighted = g.Virtual(kF32, n.Scores());
  g.Pointwise(CUDNN_POINTWISE_MUL, centred, prob, weighted, kF32);
  const CudnnTensor ds = Scaled(g, n, weighted, scale);
  MatmulPerKeyHead(g, n, TransposedScores(g, n, ds), q, n.q, dk);

  // dq = ds k
  const CudnnTensor k = g.Virtual(kBf16, n.Rows(n.g, n.q), n.RowStrides(n.all_keys, n.q));
  g.Reshape(kt, k);
  CudnnTensor dq_accum = 0;
  if (p.deterministic) {
    g.Matmul(ds, k, dq);
  } else {
    dq_accum = g.Real(kF32, n.Rows(n.h, n.q), {n.h * n.s * n.q, n.s * n.q, n.q, 1});
    g.Matmul(ds, k, dq_accum);
    g.Pointwise(CUDNN_POINTWISE_IDENTITY, dq_accum, dq);
  }
  return {g.Build(handle, max_workspace_bytes, p.deterministic), q, kt, vt, o, lse, d_o, dq, dk, dv, softmax_sum, dq_accum};
}

}  // namespace yardmaster::cuda
