#include "kernels/adamw/adamw.h"
#include "kernels/adamw/adamw_update.cuh"
#include "kernels/common/pack.cuh"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;
constexpr int kQuad = 4;

static_assert(sizeof(AdamWList) + 64 <= 4096, "the launch's arguments fit everywhere");

// The last tensor whose first block is not after this one.
__device__ __forceinline__ int FindTensor(const AdamWList& list, int64_t block) {
  int low = 0, high = list.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (list.tensors[middle].first_block <= block)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

template <class A, class M>
__global__ void __launch_bounds__(kThreads)
    AdamWKernel(const __grid_constant__ AdamWList list, double beta1, double beta2, double eps,
                const KernelStepState* state) {
  if (state->verdict != 0) return;
  __shared__ AdamWFactors<A> shared;
  if (threadIdx.x == 0) shared = AdamWFactorsOf<A>({beta1, beta2, eps}, *state);
  __syncthreads();
  const AdamWFactors<A> f = shared;
  const AdamWSlice& s = list.tensors[FindTensor(list, blockIdx.x)];
  const int64_t begin = (int64_t{blockIdx.x} - s.first_block) * kAdamWChunk;
  const int64_t end = begin + kAdamWChunk < s.n ? begin + kAdamWChunk : s.n;
  const A decay = static_cast<A>(state->learning_rate * s.weight_decay);
  A* p = static_cast<A*>(s.master);
  const A* grad = static_cast<const A*>(s.grad);
  M* m = static_cast<M*>(s.m);
  M* v = static_cast<M*>(s.v);
  __nv_bfloat16* weight = static_cast<__nv_bfloat16*>(s.weight);
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(p) | reinterpret_cast<uintptr_t>(grad) |
                              reinterpret_cast<uintptr_t>(m) | reinterpret_cast<uintptr_t>(v) |
                              reinterpret_cast<uintptr_t>(weight);
  const int64_t quads_end = addresses % 16 == 0 ? end - (end - begin) % kQuad : begin;
  for (int64_t i = begin + int64_t{threadIdx.x} * kQuad; i < quads_end; i += kThreads * kQuad) {
    Pack<A, kQuad> pack_p = LoadPack<kQuad>(p + i);
    const Pack<A, kQuad> pack_g = LoadPack<kQuad>(grad + i);
    Pack<M, kQuad> pack_m = LoadPack<kQuad>(m + i), pack_v = LoadPack<kQuad>(v + i);
#pragma unroll
    for (int j = 0; j < kQuad; ++j) AdamWUpdate(f, decay, pack_p.x[j], pack_g.x[j], pack_m.x[j], pack_v.x[j]);
    StorePack<kQuad>(p + i, pack_p);
    StorePack<kQuad>(m + i, pack_m);
    StorePack<kQuad>(v + i, pack_v);
    if (weight != nullptr) {
      Pack<__nv_bfloat16, kQuad> rounded;
#pragma unroll
      for (int j = 0; j < kQuad; ++j) rounded.x[j] = __float2bfloat16_rn(static_cast<float>(pack_p.x[j]));
      StorePack<kQuad>(weight + i, rounded);
    }
  }
  for (int64_t i = quads_end + threadIdx.x; i < end; i += kThreads) {
    AdamWUpdate(f, decay, p[i], grad[i], m[i], v[i]);
    if (weight != nullptr) weight[i] = __float2bfloat16_rn(static_cast<float>(p[i]));
  }
}

}  // namespace

cudaError_t AdamWSlices(KernelType type, KernelType moments, AdamWList* list, double beta1, double beta2,
                        double eps, const KernelStepState* state, cudaStream_t stream) {
  list->blocks = 0;
  for (int i = 0; i < list->count; ++i) {
    list->tensors[i].first_block = list->blocks;
    list->blocks += (list->tensors[i].n + kAdamWChunk - 1) / kAdamWChunk;
  }
  if (list->blocks == 0) return cudaSuccess;
  const auto launch = [&]<class A, class M>() {
    AdamWKernel<A, M>
        <<<static_cast<unsigned>(list->blocks), kThreads, 0, stream>>>(*list, beta1, beta2, eps, state);
    return cudaGetLastError();
  };
  const bool bf16 = moments == KernelType::kBf16;
  if (!bf16 && moments != type) return cudaErrorInvalidValue;
  if (type == KernelType::kF32)
    return bf16 ? launch.template operator()<float, __nv_bfloat16>()
                : launch.template operator()<float, float>();
  if (type == KernelType::kF64)
    return bf16 ? launch.template operator()<double, __nv_bfloat16>()
                : launch.template operator()<double, double>();
  return cudaErrorInvalidValue;
}

}  // namespace yardmaster
