// File: src/ops/cpu/router_balance_cpu.h
#pragma once

#include "src/ops/router_balance.h"

namespace yardmaster::cpu {

void RouterBalanceForward(const Stream& stream, const RouterSpec& spec, const RouterBalanceArgs& args);
void RouterBalanceBackward(const Stream& stream, const RouterSpec& spec, const RouterBalanceWeights& weights,
                           const RouterBalanceArgs& forward, const Tensor& dlogits);

}  // namespace yardmaster::cpu
