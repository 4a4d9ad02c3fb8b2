#include "src/ops/cuda/attention_cuda.h"

#include <algorithm>

#include "kernels/attention/softmax_rows.h"
#include "kernels/common/scale_rows.h"
#include "src/ops/cuda/attention_cudnn.h"
#include "src/ops/cuda/blas_lt.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {
namespace {

// The unfused path. Batched GEMMs go over key heads, one query head of each at a time, so that dk and dv are sums over query
// heads in order. Blocks of query rows run from the last to the first: the last one reaches every key, so it overwrites dk and
// dv and the others add.
class Unfused {
 public:
  Unfused(const Stream& stream, const char* op, const AttentionArgs& g, const Tensor& work, bool backward)
      : stream_(stream), op_(op), g_(g), a_(g), cut_(CutUnfused(a_, backward)), type_(KernelTypeOf(a_.type)),
        accum_(a_.type == DType::kBF16 ? DType::kF32 : a_.type) {
    char* at = static_cast<char*>(work.data());
    const auto take = [&](int64_t bytes) { return std::exchange(at, at + bytes); };
    s_ = take(cut_.scores);
    p_ = cut_.probabilities ? take(cut_.probabilities) : s_;
    if (!backward) return;
    dp_ = take(cut_.scores);
    ds_ = cut_.probabilities ? take(cut_.probabilities) : dp_;
    dkv_ = cut_.gradients ? take(cut_.gradients) : nullptr;
  }

  void Forward() {
    ForHeads([&](int64_t b, int64_t k0, int64_t heads, int64_t r) {
      ForRowBlocks([&](int64_t i0, int64_t rows) {
        const int64_t keys = i0 + rows;
        Scores(b, k0, heads, r, i0, rows, Part(g_.q, b, (k0 * a_.rep() + r), i0), g_.k, a_.Q, g_.scale, s_);
        YM_CUDA_CHECK(stream_, op_, SoftmaxForward(type_, Rows(b, heads, i0, rows), s_, p_, Lse(b, k0, r), CudaStream(stream_)));
        MatmulShape pv = Shape(a_.type, a_.type, rows, a_.V, keys, heads);
        pv.lda = cut_.ld, pv.stride_a = cut_.rows * cut_.ld;
        pv.ldb = a_.G * a_.V, pv.stride_b = a_.V;
        pv.ldc = pv.ldd = a_.H * a_.V, pv.stride_c = pv.stride_d = a_.rep() * a_.V;
        void* o = Part(g_.o, b, k0 * a_.rep() + r, i0);
        Run(pv, p_, Part(g_.v, b, k0, 0), o, 1, 0);
      });
    });
  }

  void Backward(const AttentionBackwardArgs& g) {
    ForHeads([&](int64_t b, int64_t k0, int64_t heads, int64_t r) {
      ForRowBlocks([&](int64_t i0, int64_t rows) {
        const int64_t keys = i0 + rows, head = k0 * a_.rep() + r;
        Scores(b, k0, heads, r, i0, rows, Part(g_.q, b, head, i0), g_.k, a_.Q, g_.scale, s_);
        Scores(b, k0, heads, r, i0, rows, Part(g.do_, b, head, i0), g_.v, a_.V, 1, dp_);
        const SoftmaxBackwardRows softmax{.base = Rows(b, heads, i0, rows), .V = a_.V, .row_stride = a_.H * a_.V,
                                          .batch_stride = a_.rep() * a_.V};
        YM_CUDA_CHECK(stream_, op_, SoftmaxBackward(type_, softmax, s_, dp_, Lse(b, k0, r), Part(g_.o, b, head, 0),
                                                    Part(g.do_, b, head, 0), p_, ds_, CudaStream(stream_)));
        MatmulShape dq = Shape(a_.type, a_.type, rows, a_.Q, keys, heads);
        dq.lda = cut_.ld, dq.stride_a = cut_.rows * cut_.ld;
        dq.ldb = a_.G * a_.Q, dq.stride_b = a_.Q;
        dq.ldc = dq.ldd = a_.H * a_.Q, dq.stride_c = dq.stride_d = a_.rep() * a_.Q;
        Run(dq, ds_, Part(g_.k, b, k0, 0), Part(g.dq, b, head, i0), g_.scale, 0);
        const bool first = r == 0 && keys == a_.S;
        AddKeyGradient(b, k0, heads, rows, keys, ds_, Part(g_.q, b, head, i0), a_.Q, g.dk, 0, g_.scale, first);
        AddKeyGradient(b, k0, heads, rows, keys, p_, Part(g.do_, b, head, i0), a_.V, g.dv, a_.Q, 1, first);
      });
      if (r + 1 == a_.rep() && dkv_ != nullptr) {
        RoundKeyGradient(b, k0, heads, a_.Q, 0, g.dk);
        RoundKeyGradient(b, k0, heads, a_.V, a_.Q, g.dv);
      }
    });
  }

 private:
  // f(sample, first key head, key heads, query head within the key head)
  template <class F>
  void ForHeads(F&& f) {
    for (int64_t b = 0; b < a_.B; ++b) {
      for (int64_t k0 = 0; k0 < a_.G; k0 += cut_.key_heads) {
        for (int64_t r = 0; r < a_.rep(); ++r) f(b, k0, std::min(cut_.key_heads, a_.G - k0), r);
      }
    }
  }
  template <class F>
  void ForRowBlocks(F&& f) {
    for (int64_t i0 = (a_.S - 1) / cut_.rows * cut_.rows; i0 >= 0; i0 -= cut_.rows) f(i0, std::min(cut_.rows, a_.S - i0));
  }
  // Row i of sample b and head h of [B, S, heads, width].
  void* Part(const Tensor& t, int64_t b, int64_t h, int64_t i) const {
    return static_cast<char*>(t.data()) + (((b * a_.S + i) * t.dim(2) + h) * t.dim(3)) * DTypeBytes(t.dtype());
  }
  void* Lse(int64_t b, int64_t k0, int64_t r) const {
    return static_cast<char*>(g_.lse.data()) + (b * a_.H + k0 * a_.rep() + r) * a_.S * DTypeBytes(accum_);
  }
  SoftmaxRows Rows(int64_t b, int64_t heads, int64_t i0, int64_t rows) const {
    return {.batch = heads, .rows = rows, .row0 = i0, .keys = i0 + rows, .ld = cut_.ld, .stride = cut_.rows * cut_.ld,
            .document_start = g_.document_start.defined() ? g_.document_start.as<int32_t>() + b * a_.S : nullptr,
            .lse_stride = a_.rep() * a_.S};
  }
  static MatmulShape Shape(DType in, DType out, int64_t m, int64_t n, int64_t k, int64_t batch) {
    return {.type = in, .out = out, .m = m, .n = n, .k = k, .batch = batch};
  }
  void Run(const MatmulShape& shape, const void* a, const void* b, void* d, double alpha, double beta) {
    BlasLtOf(stream_).Run(CudaStream(stream_), op_, shape, a, b, d, d, alpha, beta);
  }
  // d [rows, keys] = alpha * x y^T per key head: x rows of a query tensor, y all keys of [B, S, G, width].
  void Scores(int64_t b, int64_t k0, int64_t heads, int64_t /*r*/, int64_t i0, int64_t rows, const void* x, const Tensor& y,
              int64_t width, double alpha, void* d) {
    MatmulShape m = Shape(a_.type, accum_, rows, i0 + rows, width, heads);
    m.lda = a_.H * width, m.stride_a = a_.rep() * width;
    m.trans_b = true, m.ldb = a_.G * width, m.stride_b = width;
    m.ldc = m.ldd = cut_.ld, m.stride_c = m.stride_d = cut_.rows * cut_.ld;
    Run(m, x, Part(y, b, k0, 0), d, alpha, 0);
  }
  // out [keys, width] (+)= alpha * w^T x, w [rows, keys]; in the FP32 scratch from column `column` of its Q + V, or in `out`.
  void AddKeyGradient(int64_t b, int64_t k0, int64_t heads, int64_t rows, int64_t keys, const void* w, const void* x,
                      int64_t width, const Tensor& out, int64_t column, double alpha, bool first) {
    MatmulShape m = Shape(a_.type, accum_, keys, width, rows, heads);
    m.trans_a = true, m.lda = cut_.ld, m.stride_a = cut_.rows * cut_.ld;
    m.ldb = a_.H * width, m.stride_b = a_.rep() * width;
    void* d = dkv_ ? Scratch(0, column) : Part(out, b, k0, 0);
    m.ldc = m.ldd = dkv_ ? a_.Q + a_.V : a_.G * width;
    m.stride_c = m.stride_d = dkv_ ? a_.S * (a_.Q + a_.V) : width;
    Run(m, w, x, d, alpha, first ? 0 : 1);
  }
  float* Scratch(int64_t head, int64_t column) const {
    return reinterpret_cast<float*>(dkv_) + head * a_.S * (a_.Q + a_.V) + column;
  }
  void RoundKeyGradient(int64_t b, int64_t k0, int64_t heads, int64_t width, int64_t column, const Tensor& out) {
    for (int64_t k = 0; k < heads; ++k) {
      YM_CUDA_CHECK(stream_, op_, RoundRowsToBf16(Scratch(k, column), a_.Q + a_.V, Part(out, b, k0 + k, 0), a_.G * width, a_.S,
                                                  width, CudaStream(stream_)));
    }
  }

  const Stream& stream_;
  const char* op_;
  const AttentionArgs& g_;
  AttentionShape a_;
  UnfusedCut cut_;
  KernelType type_;
  DType accum_;
  char *s_ = nullptr, *p_ = nullptr, *dp_ = nullptr, *ds_ = nullptr, *dkv_ = nullptr;
};

}  // namespace

void AttentionForward(const Stream& stream, const AttentionArgs& g, const Tensor& work) {
  if (g.mode == AttentionMode::kAuto && CudnnAttentionForward(stream, g, work)) return;
  Unfused(stream, "AttentionForward", g, work, false).Forward();
}

void AttentionBackward(const Stream& stream, const AttentionBackwardArgs& g, const Tensor& work) {
  if (g.forward.mode == AttentionMode::kAuto && CudnnAttentionBackward(stream, g, work)) return;
  Unfused(stream, "AttentionBackward", g.forward, work, true).Backward(g);
}

std::string AttentionPlans(const Stream& stream) { return CudnnPlans(stream); }

}  // namespace yardmaster::cuda
