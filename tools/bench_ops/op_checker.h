// File: tools/bench_ops/op_checker.h
//
// An op's calls at random sizes against the cpu device in double, from the same rounded inputs. Outputs start
// as NaN, so that one that is not written counts; what lies beyond the used rows must keep its bytes.
#pragma once

#include <string>
#include <vector>

#include "tools/bench_ops/bench_op.h"

namespace yardmaster {

struct CallCheck {
  std::string call;
  double error = 0;  // the largest relative L2 over the outputs and the sizes tried; infinite with NaN
  double tolerance = 0;
  int checked = 0;      // outputs looked at
  std::string trouble;  // what is wrong, with the sizes and the seed; "": nothing
};

// One entry per call of the op, over `rounds` random sizes from `seed` on. work: BF16 or F32.
std::vector<CallCheck> CheckBenchOp(const BenchOpEntry& entry, Device& device, DType work, uint64_t seed,
                                    int rounds);

}  // namespace yardmaster
