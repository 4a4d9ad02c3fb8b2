// File: kernels/adamw/adamw_update.cuh
//
// AdamW for one element, for every kernel that updates (src/ops/adamw.h has the formula).
#pragma once

#include <cuda_runtime.h>

#include "kernels/common/float_types.cuh"
#include "kernels/step_control/step_control.h"

namespace yardmaster {

struct AdamWBetas {
  double beta1, beta2, eps;
};

// Of one step; A is the arithmetic's type.
template <class A>
struct AdamWFactors {
  A clip, b1, b2, c1, c2, correct_m, correct_v, lr, eps;
};

// Powers of the betas in FP64.
template <class A>
__device__ __forceinline__ AdamWFactors<A> AdamWFactorsOf(const AdamWBetas& h, const KernelStepState& state) {
  const double step = static_cast<double>(state.step + 1);
  return {.clip = static_cast<A>(state.clip_factor),
          .b1 = static_cast<A>(h.beta1),
          .b2 = static_cast<A>(h.beta2),
          .c1 = static_cast<A>(1 - h.beta1),
          .c2 = static_cast<A>(1 - h.beta2),
          .correct_m = static_cast<A>(1 / (1 - pow(h.beta1, step))),
          .correct_v = static_cast<A>(1 / (1 - pow(h.beta2, step))),
          .lr = static_cast<A>(state.learning_rate),
          .eps = static_cast<A>(h.eps)};
}

// M is the moments' type; their unrounded values make this step's update.
template <class A, class M>
__device__ __forceinline__ void AdamWUpdate(const AdamWFactors<A>& f, A decay, A& p, A grad, M& moment_m, M& moment_v) {
  const A g = f.clip * grad;
  const A m = f.b1 * static_cast<A>(ToAccum(moment_m)) + f.c1 * g;
  const A v = f.b2 * static_cast<A>(ToAccum(moment_v)) + f.c2 * g * g;
  moment_m = FromAccum<M>(static_cast<Accum<M>>(m));
  moment_v = FromAccum<M>(static_cast<Accum<M>>(v));
  const A decayed = p - decay * p;
  p = decayed - f.lr * (m * f.correct_m) / (sqrt(v * f.correct_v) + f.eps);
}

}  // namespace yardmaster
