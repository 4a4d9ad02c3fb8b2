#include <algorithm>

#include "kernels/common/block_reduce.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/reduce/ordered_reduce.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

template <class T>
__device__ __forceinline__ T Larger(T a, T b) {
  if (b != b) return b;  // NaN; never true of an integer
  if (a != a) return a;
  return a > b ? a : b;
}

template <class T, int kWidth, bool kMaximum>
__global__ void __launch_bounds__(kThreads) OrderedReduceKernel(OrderedReduceArgs g) {
  const T* parts = static_cast<const T*>(g.parts);
  const T* own = static_cast<const T*>(g.own_values);
  const int64_t step = int64_t{gridDim.x} * kThreads * kWidth;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth; i < g.n; i += step) {
    const auto values = [&](int r) {
      return LoadPack<kWidth>(r == g.own ? own + i : parts + (r - (r > g.own)) * g.stride + i);
    };
    Pack<T, kWidth> sum = values(0);
    for (int r = 1; r < g.ranks; ++r) {
      const Pack<T, kWidth> next = values(r);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if constexpr (kMaximum) {
          sum.x[j] = Larger(sum.x[j], next.x[j]);
        } else {
          sum.x[j] += next.x[j];
        }
      }
    }
    StorePack<kWidth>(static_cast<T*>(g.out) + i, sum);
  }
}

// The same sums, and their squares: a warp takes a run, so that no thread waits for another warp. A lane
// takes four neighbouring elements of every 128, whatever the width of the loads, and squares them in
// ascending order; the lanes' squares are added at the end. FP64, of which conversions are slowest (16 a
// clock on each multiprocessor), takes a tenth of the time of the loads of two ranks.
constexpr int kSquaresThreads = 256;
constexpr int kQuad = 4;
constexpr int kStride = 32 * kQuad;  // from one four of a lane to its next
constexpr int kSteps = 4;            // fours of a lane that are loaded at once
static_assert(kOrderedReduceRun % (kStride * kSteps) == 0);

// A lane's next kNumSteps fours, from `first` on: reduces them and adds their squares. kWhole: all lie before
// `end`.
template <class T, int kWidth, int kNumSteps, bool kWhole>
__device__ __forceinline__ void ReduceFours(const OrderedReduceArgs& g, int64_t first, int64_t end,
                                            double* squares) {
  constexpr int kPacks = kNumSteps * kQuad / kWidth;
  using Packs = Pack<T, kWidth>[kPacks];
  const auto at = [first](int p) { return first + p * kWidth / kQuad * kStride + p * kWidth % kQuad; };
  const auto load = [&](int r, Packs& to) {
    const T* values = r == g.own ? static_cast<const T*>(g.own_values)
                                 : static_cast<const T*>(g.parts) + (r - (r > g.own)) * g.stride;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (kWhole || at(p) < end) to[p] = LoadPack<kWidth>(values + at(p));
    }
  };
  Packs sum = {}, next = {};
  load(0, sum);
  for (int r = 1; r < g.ranks; ++r) {
    load(r, next);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum[p].x[j] += next[p].x[j];
    }
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!kWhole && at(p) >= end) break;
    StorePack<kWidth>(static_cast<T*>(g.out) + at(p), sum[p]);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const auto x = static_cast<double>(sum[p].x[j]);
      *squares = fma(x, x, *squares);
    }
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kSquaresThreads) OrderedReduceSquaresKernel(OrderedReduceArgs g) {
  constexpr int64_t kRun = kOrderedReduceRun;
  constexpr int kWarps = kSquaresThreads / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t step = int64_t{gridDim.x} * kWarps;
  for (int64_t run = int64_t{blockIdx.x} * kWarps + warp; run * kRun < g.n; run += step) {
    const bool whole = (run + 1) * kRun <= g.n;
    const int64_t end = whole ? (run + 1) * kRun : g.n;
    int64_t first = run * kRun + lane * kQuad;
    double squares = 0;
    if (whole) {
      for (; first < end; first += kStride * kSteps)
        ReduceFours<T, kWidth, kSteps, true>(g, first, end, &squares);
    } else {
      for (; first < end; first += kStride) ReduceFours<T, kWidth, 1, false>(g, first, end, &squares);
    }
    squares = WarpReduce(squares, SumOp());
    if (lane == 0) g.squares[run] = squares;
  }
}

template <class T>
cudaError_t LaunchSquares(const OrderedReduceArgs& g, cudaStream_t stream) {
  constexpr int64_t kOfBlock = kSquaresThreads / 32 * kOrderedReduceRun;
  const unsigned blocks = GridFor((g.n + kOfBlock - 1) / kOfBlock);
  const bool wide = PacksFit(kPackWidth<T>, {g.parts, g.own_values, g.out}, {g.n, g.stride});
  return DispatchWidth<T>(wide, [&]<int kWidth>() {
    OrderedReduceSquaresKernel<T, kWidth><<<blocks, kSquaresThreads, 0, stream>>>(g);
    return cudaGetLastError();
  });
}

template <class T>
cudaError_t Launch(const OrderedReduceArgs& g, cudaStream_t stream) {
  constexpr int kWide = kPackWidth<T>;
  const bool wide = PacksFit(kWide, {g.parts, g.own_values, g.out}, {g.n, g.stride});
  const int64_t packs = wide ? g.n / kWide : g.n;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((packs + kThreads - 1) / kThreads, 132 * 8));
  if (wide && g.maximum) OrderedReduceKernel<T, kWide, true><<<blocks, kThreads, 0, stream>>>(g);
  if (wide && !g.maximum) OrderedReduceKernel<T, kWide, false><<<blocks, kThreads, 0, stream>>>(g);
  if (!wide && g.maximum) OrderedReduceKernel<T, 1, true><<<blocks, kThreads, 0, stream>>>(g);
  if (!wide && !g.maximum) OrderedReduceKernel<T, 1, false><<<blocks, kThreads, 0, stream>>>(g);
  return cudaGetLastError();
}

}  // namespace

cudaError_t OrderedReduce(const OrderedReduceArgs& g, cudaStream_t stream) {
  if (g.n == 0) return cudaSuccess;
  if (g.squares != nullptr) {
    if (g.maximum) return cudaErrorInvalidValue;
    if (g.type == ReduceType::kF32) return LaunchSquares<float>(g, stream);
    if (g.type == ReduceType::kF64) return LaunchSquares<double>(g, stream);
    return cudaErrorInvalidValue;
  }
  switch (g.type) {
    case ReduceType::kF32:
      return Launch<float>(g, stream);
    case ReduceType::kF64:
      return Launch<double>(g, stream);
    case ReduceType::kI32:
      return Launch<int32_t>(g, stream);
    case ReduceType::kI64:
      return Launch<int64_t>(g, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace yardmaster
