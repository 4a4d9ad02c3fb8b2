// File: src/ops/attention.h
//
// Causal softmax attention per sample and head, keys and values of G heads shared by H/G query heads (G == H:
// MLA):
//   p_ij = softmax_j(scale * <q_i, k_j>), j <= i and, with document_start, j >= document_start_i;   o_i =
//   sum_j p_ij v_j
// Backward recomputes p from the saved logsumexp:  dv_j = sum_i p_ij do_i;  ds_ij = p_ij (<do_i, v_j> -
// <do_i, o_i>);
//   dq_i = scale sum_j ds_ij k_j;  dk_j = scale sum_i ds_ij q_i  (summed over the query heads of a key head,
//   in order).
//
// cpu: F32 or F64. cuda: BF16 (cuDNN where it takes the shape: no document_start, widths that are multiples
// of 8 up to 256; softmax in FP32), F32, F64 (GEMMs and softmax kernels). Workspace on cuda: at most
// max_workspace bytes unless one head needs more; the deterministic backward of cuDNN is faster the more
// heads it may take at once.
#pragma once

#include <string>

#include "src/device/arena.h"
#include "src/device/device.h"

namespace yardmaster {

enum class AttentionMode : uint8_t { kAuto, kUnfused };  // of cuda; kUnfused: not cuDNN

inline constexpr int64_t kAttentionWorkspace = int64_t{2} << 30;

struct AttentionArgs {
  Tensor q;                    // [B, S, H, Q]
  Tensor k;                    // [B, S, G, Q]
  Tensor v;                    // [B, S, G, V]
  double scale = 1;
  Tensor document_start = {};  // int32 [B, S]: first position of the token's document; undefined: attend across documents
  Tensor o;                    // [B, S, H, V]
  Tensor lse;                  // [B, H, S], accumulator type, kept for backward
  AttentionMode mode = AttentionMode::kAuto;
  int64_t max_workspace = kAttentionWorkspace;  // of cuda's backward
};
void AttentionForward(const Stream& stream, const AttentionArgs& args, Arena& work);

struct AttentionBackwardArgs {
  AttentionArgs forward;       // with o and lse as written
  Tensor do_;                  // [B, S, H, V]
  Tensor dq, dk, dv;           // as q, k, v; overwritten
  bool deterministic = true;   // false: cuDNN may add dq in any order (less workspace, faster; bits vary)
};
void AttentionBackward(const Stream& stream, const AttentionBackwardArgs& args, Arena& work);

// The library's plan for every shape so far, or why there is none, a line each; empty where there is no library.
std::string AttentionPlans(const Stream& stream);

}  // namespace yardmaster
