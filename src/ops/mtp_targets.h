// File: src/ops/mtp_targets.h
//
// Inputs and targets of a multi-token prediction module of depth d >= 1 (DeepSeek-V3 technical report,
// section 2.2), from those of the main model, where targets[i] is token i + 1 of the sample:
//   inputs[i] = token i + d;   targets[i] = token i + d + 1, or -1: beyond the sample, across the end of a
//   document, or a token that does not count in the main model either
// Documents: token i + d + 1 must be of the document of token i. Of the token behind the sample (i + d + 1 =
// S) the document is not known: it does not count where documents are given. Inputs that do not exist are
// token 0; no counted target sees them.
#pragma once

#include "src/device/device.h"

namespace yardmaster {

struct MtpTargetsArgs {
  Tensor tokens;   // int32 [B, S]
  Tensor targets;  // int32 [B, S]
  Tensor document_start =
      {};  // int32 [B, S]: index of the first token of the document; undefined: one document
  int64_t depth = 1;
  Tensor inputs = {};       // int32 [B, S]; with mtp_targets; both undefined: only counted
  Tensor mtp_targets = {};  // int32 [B, S]
  Tensor valid = {};        // int64 [1]: += counted targets; undefined: not counted
};
void MtpTargets(const Stream& stream, const MtpTargetsArgs& args);

// scale = weight / valid, what the gradient of the summed losses is multiplied by; 0 when nothing counts. The
// weight is the schedule's at the tokens of the state (ops/step_control.h).
struct MtpLossScaleArgs {
  Tensor valid;     // int64 [1], over the global batch and all depths
  Tensor schedule;  // U8 [sizeof(DeviceSchedule)]
  Tensor state;     // U8 [sizeof(StepState)]
  Tensor scale;     // F64 [1]
};
void MtpLossScale(const Stream& stream, const MtpLossScaleArgs& args);

}  // namespace yardmaster
