// File: src/train/parity.h
//
// `yardmaster parity`: a Hugging Face model against its own reference run. DIR holds config.json, the weights
// and expected.safetensors (tokens, targets and what the reference computed from them;
// tests/golden/README.md); grads.safetensors holds the reference gradients. The same is computed here,
// written to FILE and compared.
#pragma once

#include <string>

namespace yardmaster {

struct ParityOptions {
  std::string hf_dir;
  std::string out;
  std::string device = "cpu";      // cpu | cuda
  std::string precision = "fp32";  // fp32 | bf16; fp64 on cpu
  int64_t steps = 8;               // of AdamW on the one batch
  // Take the chosen experts from this file's routing.<layer>; "": choose. Not after AdamW's first update,
  // when they would be those of other weights.
  std::string route_from = {};
  // Where the checkpoint holds modules of multi-token prediction: what they get from below, and so which of
  // the reference's results are compared.
  std::string mtp_input = "post_norm";  // post_norm | pre_norm
  int64_t threads = 0;  // of the cpu device; 0: as it decides
};

// Writes to options.out
//   logits [B,S,V], loss [1], hidden.<layer> [B,S,D], routing.<layer> int32 [T,K] and routing_weight.<layer>
//   [T,K] in ascending expert id, grad.<hugging face name>, adamw.loss and adamw.grad_norm F64 [steps]
//   where config.json asks for router logits: aux.per_layer [MoE layers], Hugging Face's balance loss, and
//   total [1] = loss + router_aux_loss_coef * its sum; gradients are then those of total with modules of
//   multi-token prediction: mtp.<input>.logits (of depth d > 1: mtp.<input>.logits.<d>) and mtp.<input>.loss;
//   gradients are then those of loss + 0.3 * mtp loss; with pre_norm, routing.<layer>.pre_norm and
//   routing_weight.<layer>.pre_norm repeat a module's routing under the reference's name
// and prints a table of differences. Returns 0, or 1 when one is over its tolerance or an expected entry is
// missing. Throws Error for files that cannot be used.
int RunParity(const ParityOptions& options);

}  // namespace yardmaster
