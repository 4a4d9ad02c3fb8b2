// File: src/ops/split_bf16.h
//
// An F32 matrix as a sum of BF16 matrices: term 0 is x rounded to BF16, term 1 the rest rounded, term 2 what
// is then left. Three terms hold all 24 bits of x (exponents far from the smallest), two hold 16 or more. The
// product of two BF16 numbers is exact in F32, so that tensor cores, which take BF16 and add in F32, multiply
// an F32 matrix by a BF16 one as exactly as F32 arithmetic: a product for each term, added up (AddTerms).
// cpu, cuda.
#pragma once

#include <vector>

#include "src/device/device.h"

namespace yardmaster {

struct SplitOutput {
  Tensor y;      // BF16, x's shape, any leading dimension
  int term = 0;  // 0, 1, 2
};
// At most 4 outputs; a term may be written twice.
void SplitBf16(const Stream& stream, const Tensor& x, const std::vector<SplitOutput>& outputs);

// y = beta * y + terms[0] + terms[1] + ..., in this order; F32 matrices with any leading dimension, at most 4
// terms.
void AddTerms(const Stream& stream, const std::vector<Tensor>& terms, double beta, const Tensor& y);

}  // namespace yardmaster
