// File: kernels/loss/mtp_targets.h
//
// Inputs and targets of a multi-token prediction module; src/ops/mtp_targets.h has the rules. One thread per
// token; the count is an integer sum, the same in any order. Reference: src/ops/cpu/mtp_targets_cpu.cc; test:
// tests/cuda/update_test.cc.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

struct MtpTargetRows {
  int64_t batch, sequence, depth;
  const int32_t* tokens;  // [B, S], as all of these
  const int32_t* targets;
  const int32_t* document_start;  // or null: one document
  int32_t* inputs;                // with mtp_targets, or both null
  int32_t* mtp_targets;
  int64_t* valid;  // [1], added to; or null
};
cudaError_t ShiftMtpTargets(const MtpTargetRows& args, cudaStream_t stream);

}  // namespace yardmaster
