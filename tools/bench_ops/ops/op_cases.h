// File: tools/bench_ops/ops/op_cases.h
//
// The declarations of the benched ops, a file per family; tools/bench_ops/bench_ops.cc lists them.
#pragma once

#include "tools/bench_ops/bench_op.h"

namespace yardmaster {

BenchOp BenchRouter(const BenchSizes& s);
BenchOp BenchRouterBalance(const BenchSizes& s);
BenchOp BenchRouterCapacity(const BenchSizes& s);
BenchOp BenchPermute(const BenchSizes& s);
BenchOp BenchUnpermute(const BenchSizes& s);
BenchOp BenchPadRows(const BenchSizes& s);
BenchOp BenchEmbedding(const BenchSizes& s);
BenchOp BenchRmsNorm(const BenchSizes& s);
BenchOp BenchMlaRope(const BenchSizes& s);
BenchOp BenchGqaRope(const BenchSizes& s);
BenchOp BenchSwiglu(const BenchSizes& s);
BenchOp BenchElementwise(const BenchSizes& s);
BenchOp BenchSplitBf16(const BenchSizes& s);
BenchOp BenchRandomNormal(const BenchSizes& s);
BenchOp BenchAttentionMla(const BenchSizes& s);
BenchOp BenchAttentionGqa(const BenchSizes& s);
BenchOp BenchGemm(const BenchSizes& s);
BenchOp BenchGroupedGemm(const BenchSizes& s);
BenchOp BenchCrossEntropy(const BenchSizes& s);
BenchOp BenchMtpTargets(const BenchSizes& s);
BenchOp BenchNorm(const BenchSizes& s);
BenchOp BenchAdamW(const BenchSizes& s);
BenchOp BenchRouterBias(const BenchSizes& s);

}  // namespace yardmaster
