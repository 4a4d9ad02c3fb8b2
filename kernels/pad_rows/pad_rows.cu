#include "kernels/common/pack.cuh"
#include "kernels/pad_rows/pad_rows.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

// A thread for each unit of the padded side, so that narrow rows (weights) keep all of them busy.
template <class Unit, bool kPad>
__global__ void __launch_bounds__(kThreads) CopyKernel(PaddedRows g, int64_t units) {
  const int64_t total = g.experts * g.rows * units;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < total;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t row = i / units, l = row / g.rows, place = row - l * g.rows, begin = g.offsets[l];
    const bool used = place < g.offsets[l + 1] - begin;
    const int64_t at = (begin + place) * units + (i - row * units);
    Unit* ragged = static_cast<Unit*>(g.ragged);
    Unit* padded = static_cast<Unit*>(g.padded);
    if constexpr (kPad) {
      padded[i] = used ? ragged[at] : Unit{};
    } else if (used) {
      ragged[at] = padded[i];
    }
  }
}

__global__ void OffsetsKernel(int64_t rows, int64_t* offsets, int64_t n) {
  for (int64_t l = threadIdx.x; l < n; l += blockDim.x) offsets[l] = l * rows;
}

template <bool kPad>
cudaError_t CopyRows(const PaddedRows& g, cudaStream_t stream) {
  if (g.experts * g.rows * g.row_bytes == 0) return cudaSuccess;
  const auto launch = [&]<class Unit>() {
    const int64_t units = g.row_bytes / int64_t{sizeof(Unit)};
    const int64_t blocks = (g.experts * g.rows * units + kThreads - 1) / kThreads;
    CopyKernel<Unit, kPad><<<GridFor(blocks), kThreads, 0, stream>>>(g, units);
    return cudaGetLastError();
  };
  if (PacksFit(16, {g.ragged, g.padded}, {g.row_bytes})) return launch.template operator()<uint4>();
  if (g.row_bytes % 4 == 0) return launch.template operator()<uint32_t>();
  return launch.template operator()<uint8_t>();
}

}  // namespace

cudaError_t PadExpertRows(const PaddedRows& g, cudaStream_t stream) {
  return CopyRows<true>(g, stream);
}

cudaError_t UnpadExpertRows(const PaddedRows& g, cudaStream_t stream) {
  return CopyRows<false>(g, stream);
}

cudaError_t FillPaddedOffsets(int64_t rows, int64_t* offsets, int64_t n, cudaStream_t stream) {
  OffsetsKernel<<<1, kThreads, 0, stream>>>(rows, offsets, n);
  return cudaGetLastError();
}

}  // namespace yardmaster
