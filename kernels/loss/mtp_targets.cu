#include "kernels/loss/mtp_targets.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) ShiftKernel(MtpTargetRows g) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x, S = g.sequence;
  const bool inside = at < g.batch * S;
  bool counts = false;
  if (inside) {
    const int64_t i = at % S, row = at - i;
    const int64_t input = i + g.depth, target = i + g.depth + 1;  // of the sample's tokens 0..S
    counts = target <= S && g.targets[row + target - 1] >= 0;
    if (g.document_start != nullptr) counts = counts && target < S && g.document_start[row + target] <= i;
    if (g.inputs != nullptr) {
      const int32_t behind = g.targets[row + S - 1];
      g.inputs[at] = input < S ? g.tokens[row + input] : (input == S && behind > 0 ? behind : 0);
      g.mtp_targets[at] = counts ? g.targets[row + target - 1] : -1;
    }
  }
  const int counted = __syncthreads_count(counts);
  if (threadIdx.x == 0 && g.valid != nullptr && counted > 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(g.valid), static_cast<unsigned long long>(counted));
}

}  // namespace

cudaError_t ShiftMtpTargets(const MtpTargetRows& g, cudaStream_t stream) {
  const int64_t n = g.batch * g.sequence;
  if (n == 0) return cudaSuccess;
  ShiftKernel<<<static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads, 0, stream>>>(g);
  return cudaGetLastError();
}

}  // namespace yardmaster
