// File: src/ops/random_normal.h
//
// y = scale * standard normal numbers, each a function of (seed, number stream, global element index) alone
// (src/base/philox.h): the same bits on every device and in every layout. cpu, cuda: F32 or F64, and a copy
// of y rounded to another type.
#pragma once

#include "src/device/device.h"
#include "src/tensor/shard_spec.h"

namespace yardmaster {

struct RandomNormalArgs {
  uint64_t seed = 0, number_stream = 0;
  double scale = 1;
  ShardSpec spec;    // of at most 3 axes; y is its box
  Tensor y;          // contiguous
  Tensor copy = {};  // undefined, or BF16 or y's type
};
void RandomNormal(const Stream& stream, const RandomNormalArgs& args);

}  // namespace yardmaster
