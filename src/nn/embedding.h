// File: src/nn/embedding.h
//
// x_TD[t] = table_VD[tokens[t]].  Adjoint: dtable[v] = sum of dx[t] over the tokens t that are v.
#pragma once

#include <string>

#include "src/nn/context.h"

namespace yardmaster {

class Embedding {
 public:
  Embedding(ParameterList& list, const std::string& name, int64_t V, int64_t D, double init_std);
  void Forward(Context& ctx, MicroBatch& mb, const Tensor& x) const;          // x [T, D]
  void BackwardWeight(Context& ctx, MicroBatch& mb, const Tensor& dx) const;  // tokens have no gradient

 private:
  Parameter* table_;  // [V, D]
};

}  // namespace yardmaster
