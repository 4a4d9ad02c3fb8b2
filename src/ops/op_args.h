// File: src/ops/op_args.h
//
// Checks that every op makes before it runs. A failure is a bug of the caller and names the op, the argument
// and both values. They hold on the dry device too: a planned step has the shapes of a real one. An op has
// one OpArgs from its first line to its end: a Timeline, where one is set, gets the time between.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "src/base/check.h"
#include "src/device/device.h"

namespace yardmaster {

class OpArgs {
 public:
  OpArgs(const Stream& stream, const char* op)
      : stream_(stream), op_(op), timeline_(stream.dry() ? nullptr : stream.device().timeline()) {
    if (timeline_ != nullptr) [[unlikely]]
      timeline_->Begin(stream.handle(), op);
  }
  ~OpArgs() {
    if (timeline_ != nullptr) [[unlikely]]
      timeline_->End(stream_.handle());
  }
  OpArgs(const OpArgs&) = delete;
  OpArgs& operator=(const OpArgs&) = delete;

  // For the timeline: the operations that the result needs, the bytes that at least cross to or from memory,
  // and sizes that tell the calls of one op apart.
  void Cost(double flops, double bytes, std::initializer_list<int64_t> sizes = {}) const {
    if (timeline_ == nullptr || !timeline_->describes()) [[likely]]
      return;
    std::string what;
    for (const int64_t size : sizes) what += (what.empty() ? "" : " x ") + std::to_string(size);
    timeline_->Describe(std::move(what), flops, bytes);
  }
  // Of an op that reads or writes each of these tensors once, whole; undefined ones count nothing.
  void Traffic(std::initializer_list<const Tensor*> tensors,
               std::initializer_list<int64_t> sizes = {}) const {
    if (timeline_ == nullptr) [[likely]]
      return;
    double bytes = 0;
    for (const Tensor* t : tensors) bytes += t->defined() ? static_cast<double>(t->bytes()) : 0;
    Cost(0, bytes, sizes);
  }

  // Any leading dimension.
  void Strided(const char* name, const Tensor& t, DType dtype, const Shape& shape) const {
    YM_CHECK(t.defined(), op_, ": ", name, " is undefined");
    YM_CHECK(t.dtype() == dtype, op_, ": ", name, " is ", DTypeName(t.dtype()), ", not ", DTypeName(dtype));
    YM_CHECK(t.shape() == shape, op_, ": ", name, " is ", t.shape(), ", not ", shape);
    YM_CHECK(stream_.dry() || t.data() != nullptr || t.elements() == 0, op_, ": ", name,
             " has no data: its arena was not committed, or belongs to the dry device");
  }
  void Contiguous(const char* name, const Tensor& t, DType dtype, const Shape& shape) const {
    Strided(name, t, dtype, shape);
    YM_CHECK(t.contiguous(), op_, ": ", name, " ", t.shape(), " is strided by ", t.ld());
  }
  void Rank(const char* name, const Tensor& t, int rank) const {
    YM_CHECK(t.defined(), op_, ": ", name, " is undefined");
    YM_CHECK(t.shape().rank() == rank, op_, ": ", name, " is ", t.shape(), ", not of ", rank, " axes");
  }
  // F32 or F64, which is also the accumulator and main gradient type on the cpu device.
  DType ComputeType(const char* name, const Tensor& t) const {
    YM_CHECK(t.defined(), op_, ": ", name, " is undefined");
    YM_CHECK(t.dtype() == DType::kF32 || t.dtype() == DType::kF64, op_, ": ", name, " is ", DTypeName(t.dtype()),
             ", not F32 or F64");
    return t.dtype();
  }
  // The type of weights and activations: F32, F64, and BF16 on cuda (or on the dry device that plans for it).
  DType WorkType(const char* name, const Tensor& t) const {
    YM_CHECK(t.defined(), op_, ": ", name, " is undefined");
    if (t.dtype() == DType::kBF16 && stream_.target() == DeviceKind::kCuda) return t.dtype();
    return ComputeType(name, t);
  }
  // The type of statistics, router values and main gradients beside a work type.
  static DType AccumType(DType work) { return work == DType::kBF16 ? DType::kF32 : work; }
  // Ends a dispatch over device kinds.
  [[noreturn]] void NoImplementation() const {
    throw Error(ExitCode::kConfig, std::string(op_) + " has no implementation for this device",
                DeviceKindName(stream_.kind()), "set runtime.device to cpu");
  }

 private:
  const Stream& stream_;
  const char* op_;
  Timeline* timeline_;
};

}  // namespace yardmaster
