#include "kernels/common/block_reduce.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/step_control/step_control.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 1024;
constexpr int kAddendsThreads = 128;
constexpr int kQuad = 4;  // elements that a thread takes at a time, whatever the width of the loads

static_assert(sizeof(SquaresList) + 64 <= 4096 && sizeof(AddendsList) + 64 <= 4096,
              "the launch's arguments fit everywhere");

// The last of `count` tensors whose first worker, which ascends, is not after this one.
template <class First>
__device__ __forceinline__ int TensorOf(int count, int64_t worker, const First& first) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (first(middle) <= worker)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

// A chunk's order of additions depends on its size alone, not on where it lies: the same bits in every
// layout.
template <class T>
__global__ void __launch_bounds__(kThreads)
    SumSquaresKernel(const __grid_constant__ SquaresList list, int64_t chunk_rows) {
  constexpr int kWidth = kPackWidth<T>;
  __shared__ double shared[kThreads / 32];
  const SquaresSlice& s =
      list.tensors[TensorOf(list.count, blockIdx.x, [&](int i) { return list.tensors[i].first_block; })];
  const int64_t block = int64_t{blockIdx.x} - s.first_block, chunks = (s.rows + chunk_rows - 1) / chunk_rows;
  const int64_t matrix = block / chunks, row = block % chunks * chunk_rows;
  const int64_t n = (row + chunk_rows < s.rows ? chunk_rows : s.rows - row) * s.cols;
  const T* chunk = static_cast<const T*>(s.x) + (matrix * s.rows + row) * s.cols;
  const bool whole = reinterpret_cast<uintptr_t>(chunk) % 16 == 0;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = int64_t{threadIdx.x} * kQuad; i < n; i += int64_t{kThreads} * kQuad) {
    T quad[kQuad];
    if (whole && i + kQuad <= n) {
#pragma unroll
      for (int j = 0; j < kQuad; j += kWidth) {
        const Pack<T, kWidth> pack = LoadPack<kWidth>(chunk + i + j);
#pragma unroll
        for (int l = 0; l < kWidth; ++l) quad[j + l] = pack.x[l];
      }
    } else {
#pragma unroll
      for (int j = 0; j < kQuad; ++j) quad[j] = i + j < n ? chunk[i + j] : T{0};
    }
#pragma unroll
    for (int j = 0; j < kQuad; ++j) sum += static_cast<double>(quad[j]) * static_cast<double>(quad[j]);
  }
  sum = BlockReduce<kThreads>(sum, shared, SumOp());
  if (threadIdx.x == 0) s.partials[block] = sum;
}

__global__ void __launch_bounds__(kAddendsThreads)
    SumAddendsKernel(const __grid_constant__ AddendsList list, int64_t warps) {
  const int64_t warp = (int64_t{blockIdx.x} * kAddendsThreads + threadIdx.x) / 32;
  if (warp >= warps) return;
  const AddendsSlice& s =
      list.tensors[TensorOf(list.count, warp, [&](int i) { return list.tensors[i].first_warp; })];
  const int64_t chunk = warp - s.first_warp, begin = chunk * s.per_chunk;
  const int64_t end = begin + s.per_chunk < s.n ? begin + s.per_chunk : s.n;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x % 32; i < end; i += 32) sum += s.addends[i];
  sum = WarpReduce(sum, SumOp());
  if (threadIdx.x % 32 == 0) s.partials[chunk] = sum;
}

__device__ double ScheduleValue(const KernelSchedule& s, int64_t tokens) {
  int64_t begin = 0;
  for (int i = 0; i < s.num_segments; ++i) {
    if (tokens < s.until_tokens[i]) {
      const double fraction =
          static_cast<double>(tokens - begin) / static_cast<double>(s.until_tokens[i] - begin);
      if (s.kind[i] == 0) return s.from[i];
      if (s.kind[i] == 1) return s.from[i] + (s.to[i] - s.from[i]) * fraction;
      return s.to[i] + (s.from[i] - s.to[i]) * 0.5 * (1 + cos(3.14159265358979323846 * fraction));
    }
    begin = s.until_tokens[i];
  }
  return s.to[s.num_segments - 1];
}

__global__ void __launch_bounds__(kThreads)
    JudgeKernel(const double* partials, int64_t n, const double* loss_sum, double loss_scale,
                double clip_norm, const KernelSchedule* learning_rate, const KernelSchedule* bias_speed,
                KernelStepState* state) {
  __shared__ double shared[kThreads / 32];
  double squares = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) squares += partials[i];
  squares = BlockReduce<kThreads>(squares, shared, SumOp());
  if (threadIdx.x != 0) return;
  KernelStepState s = *state;
  s.grad_norm = sqrt(squares);
  s.loss = *loss_sum * loss_scale;
  const bool finite = isfinite(s.grad_norm) && isfinite(s.loss);
  s.verdict = s.overflow != 0 ? 2 : finite ? 0 : 1;
  const double factor = clip_norm / (s.grad_norm + 1e-6);
  s.clip_factor = clip_norm > 0 && finite && factor < 1 ? factor : 1;
  s.learning_rate = ScheduleValue(*learning_rate, s.tokens);
  s.bias_speed = ScheduleValue(*bias_speed, s.tokens);
  *state = s;
}

__global__ void LossScaleKernel(const int64_t* valid, const KernelSchedule* schedule,
                                const KernelStepState* state, double* scale) {
  *scale = *valid > 0 ? ScheduleValue(*schedule, state->tokens) / static_cast<double>(*valid) : 0;
}

__global__ void FinishKernel(int64_t tokens_of_step, KernelStepState* state) {
  if (state->verdict == 0) {
    state->step += 1;
    state->tokens += tokens_of_step;
  } else if (state->verdict == 1) {
    state->skipped += 1;
  }
}

template <class A>
__global__ void __launch_bounds__(kThreads)
    RouterBiasKernel(int64_t* counts, int64_t experts, const KernelStepState* state, A* bias,
                     int64_t* previous) {
  __shared__ int64_t shared[kThreads / 32];
  int64_t mine = 0;
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) mine += counts[e];
  const int64_t total = BlockReduce<kThreads>(mine, shared, SumOp());
  for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
    const int64_t missing = total - experts * counts[e];
    const int sign = (missing > 0) - (missing < 0);
    if (state->verdict == 0) {
      if (previous != nullptr) previous[e] = counts[e];
      if (bias != nullptr && sign != 0) bias[e] += static_cast<A>(state->bias_speed * sign);
    }
    counts[e] = 0;
  }
}

}  // namespace

cudaError_t SumSquaresChunks(KernelType type, SquaresList* list, int64_t chunk_rows, cudaStream_t stream) {
  int64_t blocks = 0;
  for (int i = 0; i < list->count; ++i) {
    SquaresSlice& s = list->tensors[i];
    s.first_block = blocks;
    blocks += s.matrices * ((s.rows + chunk_rows - 1) / chunk_rows);
  }
  if (blocks == 0) return cudaSuccess;
  const auto launch = [&]<class T>() {
    SumSquaresKernel<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(*list, chunk_rows);
    return cudaGetLastError();
  };
  if (type == KernelType::kF32) return launch.template operator()<float>();
  if (type == KernelType::kF64) return launch.template operator()<double>();
  return cudaErrorInvalidValue;
}

cudaError_t SumAddendsOfChunks(AddendsList* list, cudaStream_t stream) {
  int64_t warps = 0;
  for (int i = 0; i < list->count; ++i) {
    AddendsSlice& s = list->tensors[i];
    s.first_warp = warps;
    warps += (s.n + s.per_chunk - 1) / s.per_chunk;
  }
  if (warps == 0) return cudaSuccess;
  const int64_t blocks = (warps * 32 + kAddendsThreads - 1) / kAddendsThreads;
  SumAddendsKernel<<<static_cast<unsigned>(blocks), kAddendsThreads, 0, stream>>>(*list, warps);
  return cudaGetLastError();
}

cudaError_t JudgeStepState(const double* partials, int64_t n, const double* loss_sum, double loss_scale,
                           double clip_norm, const KernelSchedule* learning_rate,
                           const KernelSchedule* bias_speed, KernelStepState* state, cudaStream_t stream) {
  JudgeKernel<<<1, kThreads, 0, stream>>>(partials, n, loss_sum, loss_scale, clip_norm, learning_rate,
                                          bias_speed, state);
  return cudaGetLastError();
}

cudaError_t FinishStepState(int64_t tokens_of_step, KernelStepState* state, cudaStream_t stream) {
  FinishKernel<<<1, 1, 0, stream>>>(tokens_of_step, state);
  return cudaGetLastError();
}

cudaError_t UpdateRouterBias(KernelType type, int64_t* counts, int64_t experts, const KernelStepState* state,
                             void* bias, int64_t* previous, cudaStream_t stream) {
  if (experts == 0) return cudaSuccess;
  if (type == KernelType::kF32) {
    RouterBiasKernel<<<1, kThreads, 0, stream>>>(counts, experts, state, static_cast<float*>(bias), previous);
  } else if (type == KernelType::kF64) {
    RouterBiasKernel<<<1, kThreads, 0, stream>>>(counts, experts, state, static_cast<double*>(bias),
                                                 previous);
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

cudaError_t ScheduledLossScale(const int64_t* valid, const KernelSchedule* schedule,
                               const KernelStepState* state, double* scale, cudaStream_t stream) {
  LossScaleKernel<<<1, 1, 0, stream>>>(valid, schedule, state, scale);
  return cudaGetLastError();
}

}  // namespace yardmaster
