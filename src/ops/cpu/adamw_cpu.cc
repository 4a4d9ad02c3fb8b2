#include "src/ops/cpu/adamw_cpu.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "src/device/cpu_parallel.h"
#include "src/ops/cpu/elementwise_cpu.h"
#include "src/ops/step_control.h"

namespace yardmaster::cpu {
namespace {

// What a moment is converted through: BFloat16 knows float only.
template <class M>
using ThroughOf = std::conditional_t<std::is_same_v<M, BFloat16>, float, M>;

// M: type of the moments. Their unrounded values make this step's update.
template <class T, class G, class M>
void Update(const Stream& stream, const AdamWTensor& tensor, const AdamWHyper& hyper,
            const StepState& state) {
  const double step = static_cast<double>(state.step + 1);
  const T clip = static_cast<T>(state.clip_factor);
  const T b1 = static_cast<T>(hyper.beta1), b2 = static_cast<T>(hyper.beta2);
  const T c1 = static_cast<T>(1 - hyper.beta1), c2 = static_cast<T>(1 - hyper.beta2);
  const T correct_m = static_cast<T>(1 / (1 - std::pow(hyper.beta1, step)));
  const T correct_v = static_cast<T>(1 / (1 - std::pow(hyper.beta2, step)));
  const T lr = static_cast<T>(state.learning_rate), eps = static_cast<T>(hyper.eps);
  const T decay = static_cast<T>(state.learning_rate * tensor.weight_decay);
  T* p = tensor.master.as<T>();
  const G* grad = tensor.grad.as<G>();
  M* moment_m = tensor.m.as<M>();
  M* moment_v = tensor.v.as<M>();
  ParallelFor(stream, tensor.master.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
#pragma GCC ivdep  // four tensors that do not overlap
    for (int64_t i = begin; i < end; ++i) {
      const T g = clip * static_cast<T>(grad[i]);
      const T m = b1 * static_cast<T>(static_cast<ThroughOf<M>>(moment_m[i])) + c1 * g;
      const T v = b2 * static_cast<T>(static_cast<ThroughOf<M>>(moment_v[i])) + c2 * g * g;
      moment_m[i] = static_cast<M>(static_cast<ThroughOf<M>>(m));
      moment_v[i] = static_cast<M>(static_cast<ThroughOf<M>>(v));
      const T decayed = p[i] - decay * p[i];
      p[i] = decayed - lr * (m * correct_m) / (std::sqrt(v * correct_v) + eps);
    }
  });
}

template <class T, class G>
void DispatchMoments(const Stream& stream, const AdamWTensor& tensor, const AdamWHyper& hyper,
                     const StepState& state) {
  switch (tensor.m.dtype()) {
    case DType::kBF16:
      return Update<T, G, BFloat16>(stream, tensor, hyper, state);
    case DType::kF32:
      return Update<T, G, float>(stream, tensor, hyper, state);
    default:
      return Update<T, G, double>(stream, tensor, hyper, state);
  }
}

}  // namespace

void AdamWMulti(const Stream& stream, const std::vector<AdamWTensor>& tensors,
                const AdamWHyper& hyper, const Tensor& state) {
  StepState s;
  std::memcpy(&s, state.data(), sizeof(s));
  if (s.verdict != static_cast<int32_t>(StepVerdict::kOk)) return;
  for (const AdamWTensor& tensor : tensors) {
    if (tensor.master.elements() == 0) continue;
    DispatchFloat(tensor.master.dtype(), [&]<class T>() {
      DispatchFloat(tensor.grad.dtype(),
                    [&]<class G>() { DispatchMoments<T, G>(stream, tensor, hyper, s); });
    });
    if (tensor.weight.defined() && tensor.weight.data() != tensor.master.data())
      cpu::Copy(stream, tensor.master, tensor.weight);
  }
}

}  // namespace yardmaster::cpu
