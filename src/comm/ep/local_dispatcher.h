// File: src/comm/ep/local_dispatcher.h
//
// One rank is a world of one: dispatch is a permutation to expert-major rows, combine its adjoint, and the
// window holds every pair (R = T * K), so that overflow cannot happen.
#pragma once

#include "src/comm/ep/dispatcher.h"

namespace yardmaster {

class LocalDispatcher : public Dispatcher {
 public:
  // All `num_experts` are local. Throws nothing; the sizes are checked against idx_TK in Plan.
  LocalDispatcher(int64_t num_experts, int64_t top_k);

  int64_t window_rows(int64_t tokens) const override { return tokens * top_k_; }
  int64_t local_experts() const override { return num_experts_; }
  int64_t expert_begin() const override { return 0; }

  void Plan(const Stream& stream, const Tensor& idx_TK, const Tensor& overflow, RoutingHandle* handle,
            Arena& saved, Arena& work) override;
  void Dispatch(const Stream& stream, const RoutingHandle& handle, const Tensor& x_TD, const Tensor& w_TK,
                const Tensor& x_RD, const Tensor& w_R, Arena& work) override;
  void Combine(const Stream& stream, const RoutingHandle& handle, const Tensor& y_RD, const Tensor& residual,
               const Tensor& addend, const Tensor& y_TD, const Tensor& dw_R, const Tensor& dw_TK,
               Arena& work) override;

 private:
  int64_t num_experts_;
  int64_t top_k_;
};

}  // namespace yardmaster
