// File: src/nn/embedding.h
//
// x_TD[t] = table_VD[ids[t]].  Adjoint: dtable[v] = sum of dx[t] over the t whose id is v.
#pragma once

#include <string>

#include "src/nn/context.h"

namespace yardmaster {

class Embedding {
 public:
  Embedding(ParameterList& list, const std::string& name, int64_t V, int64_t D, double init_std);
  void Forward(Context& ctx, const Tensor& ids, const Tensor& x) const;          // int32 [T], x [T, D]
  void BackwardWeight(Context& ctx, const Tensor& ids, const Tensor& dx) const;  // ids have no gradient

 private:
  Parameter* table_;  // [V, D]
};

}  // namespace yardmaster
