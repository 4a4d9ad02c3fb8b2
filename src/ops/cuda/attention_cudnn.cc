#include "src/ops/cuda/attention_cudnn.h"

#include <compare>
#include <map>
#include <optional>

#include "src/base/strings.h"
#include "src/ops/cuda/sdpa_graphs.h"

namespace yardmaster::cuda {
namespace {

constexpr size_t kOldestCudnn = 91300;     // before, the backward is restricted or wrong at 192/128
constexpr size_t kAnyLengthCudnn = 91600;  // before, the backward is wrong for lengths that are no multiple of 128

// One per device: the library handle and a plan, or a refusal, per shape.
class Sdpa {
 public:
  explicit Sdpa(CudaDevice& device) : device_(device) {
    if (cudnnGetVersion() < kOldestCudnn) {
      problem_ = StrCat("cuDNN ", cudnnGetVersion(), " is older than ", kOldestCudnn);
      return;
    }
    const cudnnStatus_t status = cudnnCreate(&handle_);
    if (status != CUDNN_STATUS_SUCCESS) {
      handle_ = nullptr;
      problem_ = StrCat("cuDNN does not start: ", cudnnGetErrorString(status));
    }
  }
  Sdpa(const Sdpa&) = delete;
  Sdpa& operator=(const Sdpa&) = delete;
  ~Sdpa() {
    forward_.clear();
    backward_.clear();
    if (handle_ != nullptr) static_cast<void>(cudnnDestroy(handle_));
  }

  // One answer for forward and backward.
  bool Takes(const AttentionShape& a) const {
    return CudnnRunsOn(a, device_.properties().sm) && (a.S % 128 == 0 || cudnnGetVersion() >= kAnyLengthCudnn);
  }
  const SdpaForward* Forward(const SdpaShape& shape, int64_t workspace) {
    return Find(forward_, "forward", shape, [&] { return BuildSdpaForward(handle_, shape, workspace); });
  }
  const SdpaBackward* Backward(const SdpaShape& shape, int64_t workspace) {
    return Find(backward_, "backward", shape, [&] { return BuildSdpaBackward(handle_, shape, workspace); });
  }
  void Execute(const Stream& stream, const char* op, const CudnnPlan& plan,
               const std::vector<std::pair<CudnnTensor, void*>>& pointers, void* workspace) {
    try {
      CudnnCheck(cudnnSetStream(handle_, CudaStream(stream)), "cudnnSetStream");
      plan.Execute(handle_, pointers, workspace);
    } catch (const CudnnRefusal& e) {
      device_.Fail(e.text(), op, "cudnnBackendExecute");
    }
  }
  const std::string& table() const { return table_; }

 private:
  template <class Plan, class Build>
  const Plan* Find(std::map<SdpaShape, std::optional<Plan>>& plans, const char* what, const SdpaShape& s, Build&& build) {
    const auto found = plans.find(s);
    if (found != plans.end()) return found->second ? &*found->second : nullptr;
    std::optional<Plan>& slot = plans[s];
    std::string how = problem_;
    if (handle_ != nullptr) {
      try {
        slot = build();
        how = slot->plan.name();
      } catch (const CudnnRefusal& e) {
        how = e.text();
      }
    }
    table_ += StrCat("attention ", what, " samples ", s.samples, " length ", s.S, " key heads ", s.key_heads, " of ",
                     s.all_key_heads, " queries per key ", s.queries_per_key, " width ", s.Q, "/", s.V,
                     s.deterministic ? "" : " fast", ": ", how, "\n");
    return slot ? &*slot : nullptr;
  }

  CudaDevice& device_;
  cudnnHandle_t handle_ = nullptr;
  std::string problem_;  // why there is no handle
  std::map<SdpaShape, std::optional<SdpaForward>> forward_;
  std::map<SdpaShape, std::optional<SdpaBackward>> backward_;
  std::string table_;
};

SdpaShape ShapeOf(const AttentionShape& a, const CudnnCut& cut, double scale, bool deterministic) {
  return {.samples = cut.samples, .S = a.S, .key_heads = cut.key_heads, .all_key_heads = a.G, .queries_per_key = a.rep(),
          .Q = a.Q, .V = a.V, .scale = static_cast<float>(scale), .deterministic = deterministic};
}

// Where sample b and key head g begin in a tensor [B, S, heads, width]; `per_key` heads of it belong to a key head.
void* At(const Tensor& t, int64_t b, int64_t g, int64_t per_key) {
  return static_cast<char*>(t.data()) + (b * t.dim(1) * t.dim(2) + g * per_key) * t.dim(3) * DTypeBytes(t.dtype());
}
void* LseAt(const Tensor& lse, int64_t b, int64_t head) {
  return static_cast<char*>(lse.data()) + (b * lse.dim(1) + head) * lse.dim(2) * 4;
}

int64_t RoundUp(int64_t x) { return (x + 255) / 256 * 256; }

}  // namespace

bool CudnnAttentionForward(const Stream& stream, const AttentionArgs& g, const Tensor& work) {
  const AttentionShape a(g);
  Sdpa& sdpa = CudaDeviceOf(stream).Extension<Sdpa>();
  if (!sdpa.Takes(a)) return false;
  const SdpaForward* f = sdpa.Forward(ShapeOf(a, CutCudnnForward(a), g.scale, true), work.bytes());
  if (f == nullptr) return false;
  sdpa.Execute(stream, "AttentionForward", f->plan,
               {{f->q, g.q.data()}, {f->k, g.k.data()}, {f->v, g.v.data()}, {f->o, g.o.data()}, {f->lse, g.lse.data()}},
               work.data());
  return true;
}

bool CudnnAttentionBackward(const Stream& stream, const AttentionBackwardArgs& g, const Tensor& work) {
  const AttentionArgs& f = g.forward;
  const AttentionShape a(f);
  Sdpa& sdpa = CudaDeviceOf(stream).Extension<Sdpa>();
  if (!sdpa.Takes(a)) return false;
  CudnnCut cut = CutCudnnBackward(a, g.deterministic);
  // The last samples may be fewer than cut.samples. cuDNN must take both, or none: one call, one method.
  const auto plan_for = [&](int64_t samples) {
    CudnnCut c = cut;
    c.samples = samples;
    const int64_t scratch = RoundUp(samples * c.key_heads * a.rep() * a.S * 4) +
                            (g.deterministic ? 0 : RoundUp(samples * c.key_heads * a.rep() * a.S * a.Q * 4));
    return sdpa.Backward(ShapeOf(a, c, f.scale, g.deterministic), work.bytes() - scratch);
  };
  const int64_t rest = a.B % cut.samples;
  while (plan_for(cut.samples) == nullptr || (rest != 0 && plan_for(rest) == nullptr)) {
    if (cut.samples > 1 || cut.key_heads == 1) return false;
    do --cut.key_heads; while (a.G % cut.key_heads != 0);  // it may be the workspace: fewer heads at a time
    if (cut.key_heads * 4 < CutCudnnBackward(a, g.deterministic).key_heads) return false;
  }
  for (int64_t b = 0; b < a.B; b += cut.samples) {
    const int64_t samples = std::min(cut.samples, a.B - b);
    const SdpaBackward& p = *plan_for(samples);
    for (int64_t k = 0; k < a.G; k += cut.key_heads) {
      const int64_t rep = a.rep(), heads = cut.key_heads * rep;
      char* softmax_sum = static_cast<char*>(work.data());
      char* dq_accum = softmax_sum + RoundUp(samples * heads * a.S * 4);
      char* rest_of_work = dq_accum + (g.deterministic ? 0 : RoundUp(samples * heads * a.S * a.Q * 4));
      std::vector<std::pair<CudnnTensor, void*>> pointers = {
          {p.q, At(f.q, b, k, rep)},     {p.k, At(f.k, b, k, 1)},       {p.v, At(f.v, b, k, 1)},
          {p.o, At(f.o, b, k, rep)},     {p.lse, LseAt(f.lse, b, k * rep)}, {p.do_, At(g.do_, b, k, rep)},
          {p.dq, At(g.dq, b, k, rep)},   {p.dk, At(g.dk, b, k, 1)},     {p.dv, At(g.dv, b, k, 1)},
          {p.softmax_sum, softmax_sum}};
      if (!g.deterministic) pointers.emplace_back(p.dq_accum, dq_accum);
      sdpa.Execute(stream, "AttentionBackward", p.plan, pointers, rest_of_work);
    }
  }
  return true;
}

std::string CudnnPlans(const Stream& stream) { return CudaDeviceOf(stream).Extension<Sdpa>().table(); }

}  // namespace yardmaster::cuda
