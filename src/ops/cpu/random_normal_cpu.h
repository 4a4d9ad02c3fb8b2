// File: src/ops/cpu/random_normal_cpu.h
#pragma once

#include "src/ops/random_normal.h"

namespace yardmaster::cpu {

void RandomNormal(const Stream& stream, const RandomNormalArgs& args);  // arguments checked

}  // namespace yardmaster::cpu
