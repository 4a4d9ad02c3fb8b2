// File: src/ops/cuda/router_balance_cuda.h
#pragma once

#include "src/ops/router_balance.h"

namespace yardmaster::cuda {

// Arguments checked. mass F64 [B * BalanceChunks(S), E] and squares F64 [B * BalanceChunks(S)] are scratch.
void RouterBalanceForward(const Stream& stream, const RouterSpec& spec, const RouterBalanceArgs& args,
                          const Tensor& mass, const Tensor& squares);
void RouterBalanceBackward(const Stream& stream, const RouterSpec& spec, const RouterBalanceWeights& weights,
                           const RouterBalanceArgs& forward, const Tensor& dlogits);

}  // namespace yardmaster::cuda
