// File: kernels/ep/rows.h
//
// Rows to the ranks that own their experts, and back; the contract is Dispatcher's (src/comm/ep/dispatcher.h), the
// operations are described in group.h.
//
// Expanded:     EpDispatch writes each token's row once for each choice, straight into the window of the choice's owner.
//               EpCombine reads those rows in place and adds them in ascending global expert id, rounding once.
// Deduplicated: EpSendTokens writes one copy for each rank that owns any of a token's choices; EpReplicate copies it to
//               that rank's window. EpReturnTokens adds a received token's rows in ascending id, rounds, and writes the
//               sum to the token's rank; EpSumTokens adds those in ascending rank and rounds.
// Bytes moved: T rows read + R written; R read + T written; with W tokens sent to a rank: T read + W written, W read + R
// written; R read + W written, W read + T written. Memory-bound.
//
// Rows are bytes to dispatch: `row_bytes` of payload, `row_stride` apart in the window, so that a format with scales keeps
// them behind the payload. Combine adds BF16, FP32 or FP64. Weights go along in the accumulator type.
// `blocks` thread blocks, one for each SM that communication may have. All blocks of all ranks that share a GPU must fit
// on it together: they wait for each other.
// Reference: src/comm/ep/mpi_dispatcher.cc. Test: tests/cuda/ep_test.cc. Benchmark: yardmaster bench dispatch.
#pragma once

#include "kernels/common/kernel_type.h"
#include "kernels/ep/group.h"

namespace yardmaster {

// The plan of one micro-batch, in device memory: fields of RoutingHandle.
struct EpRoute {
  const int32_t* idx;  // [T, K]
  int64_t T, K, E;
  const int64_t* begins;         // [n, E]
  const int64_t* send_offsets;   // expanded [E + 1], deduplicated [n + 1]
  const int64_t* send_slot;      // [T, J]
  int64_t J;                     // K, or min(K, n)
  const int64_t* tokens;         // [n, n]; deduplicated only, as are the next two
  const int64_t* recv_offsets;   // [n + 1]
  const int64_t* recv_slot;      // [N, K]
};

// One tensor that peers reach: rows of `stride` bytes from byte `place` of the region on.
struct EpWindow {
  EpRegion region;
  int64_t place;
  int64_t stride;
};

struct EpLaunch {
  int blocks;
  bool bulk;  // bulk copies may be used: LoadEpRowKernels says so
};

// x [T, row_bytes] -> x_R; w [T, K] of weight_bytes each -> w_R (null: none).
struct EpDispatchArgs {
  EpRoute route;
  const void* x;
  int64_t row_bytes;
  EpWindow x_R;
  const void* w;
  int weight_bytes;  // 4 or 8
  EpWindow w_R;
};
cudaError_t EpDispatch(const EpGroup& group, const EpDispatchArgs& args, const EpLaunch& launch, cudaStream_t stream);

// y [T, D] = residual + addend + the rows of y_R; dw [T, K] = dw_R (null: none). residual and addend may be null or y.
struct EpCombineArgs {
  EpRoute route;
  EpWindow y_R;
  int64_t D;
  const void* residual;
  const void* addend;
  void* y;
  EpWindow dw_R;
  void* dw;
};
cudaError_t EpCombine(const EpGroup& group, KernelType type, const EpCombineArgs& args, const EpLaunch& launch,
                      cudaStream_t stream);

// x -> x_received [N, row_bytes], all K weights of a token -> w_received [N, K].
cudaError_t EpSendTokens(const EpGroup& group, const EpDispatchArgs& args, const EpLaunch& launch, cudaStream_t stream);
// x_received, w_received -> x_R, w_R of this rank. Local.
struct EpReplicateArgs {
  EpRoute route;
  int ranks;  // n
  const void* x_received;
  int64_t row_bytes;
  void* x_R;
  int64_t row_stride;
  const void* w_received;
  int weight_bytes;
  void* w_R;
};
cudaError_t EpReplicate(const EpReplicateArgs& args, const EpLaunch& launch, cudaStream_t stream);

// Each received token's sum over the rows of y_R -> y_back [T * J, D] of its rank; dw_R -> dw_back [T * J, K], zero where
// another rank has the choice.
struct EpReturnArgs {
  EpRoute route;
  const void* y_R;  // of this rank
  int64_t D;
  EpWindow y_back;
  const void* dw_R;
  EpWindow dw_back;
};
cudaError_t EpReturnTokens(const EpGroup& group, KernelType type, const EpReturnArgs& args, const EpLaunch& launch,
                           cudaStream_t stream);
// y_back -> y, dw_back -> dw. Local.
struct EpSumArgs {
  EpRoute route;
  const void* y_back;
  int64_t D;
  const void* residual;
  const void* addend;
  void* y;
  const void* dw_back;
  void* dw;
};
cudaError_t EpSumTokens(KernelType type, const EpSumArgs& args, const EpLaunch& launch, cudaStream_t stream);

// Exact replay: rows [first, first + rows) of `sent` (in send order) are rows [row, row + rows) of rank `peer`'s window.
struct EpBlock {
  int64_t peer, first, row, rows;
};
struct EpRoundArgs {
  const EpBlock* blocks;  // [num_blocks] of this round
  int64_t num_blocks;
  void* sent;
  int64_t row_bytes;
  EpWindow window;
  bool back;  // out of the windows
};
cudaError_t EpMoveRound(const EpGroup& group, const EpRoundArgs& args, const EpLaunch& launch, cudaStream_t stream);

// Loads these kernels (see LoadEpPlanKernels) and says whether this GPU and build have bulk copies.
cudaError_t LoadEpRowKernels(bool* bulk);

}  // namespace yardmaster
