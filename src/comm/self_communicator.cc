#include <string>

#include "src/base/check.h"
#include "src/comm/communicator.h"

namespace yardmaster {
namespace {

// Checks what a real group would need, so that a mistake shows on one rank already.
class SelfCommunicator : public Communicator {
 public:
  explicit SelfCommunicator(const char* name) : name_(name) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const char* name() const override { return name_.c_str(); }

  void AllReduceSum(const Stream&, const Tensor& x) override { CheckTensor(x); }
  void AllReduceMax(const Stream&, const Tensor& x) override { CheckTensor(x); }
  void ReduceScatterSum(const Stream&, const Tensor& x,
                        const std::vector<int64_t>& bounds) override {
    CheckTensor(x);
    CheckBounds(x, bounds);
  }
  void AllGather(const Stream&, const Tensor& x, const std::vector<int64_t>& bounds) override {
    CheckBounds(x, bounds);
  }
  void Broadcast(const Stream&, const Tensor&, int root) override { YM_CHECK_EQ(root, 0, name_); }

 private:
  void CheckTensor(const Tensor& x) const {
    YM_CHECK(x.contiguous(), name_, ": sum of a strided tensor ", x.shape());
    YM_CHECK(x.dtype() == DType::kF32 || x.dtype() == DType::kF64 || x.dtype() == DType::kI32 ||
                 x.dtype() == DType::kI64,
             name_, ": no sum of ", DTypeName(x.dtype()));
  }
  void CheckBounds(const Tensor& x, const std::vector<int64_t>& bounds) const {
    YM_CHECK_EQ(bounds.size(), size_t{2}, name_);
    YM_CHECK(bounds[0] == 0 && bounds[1] == x.elements(), name_, ": bounds ", bounds[0], "..",
             bounds[1], " of ", x.shape());
  }
  std::string name_;
};

}  // namespace

std::unique_ptr<Communicator> MakeSelfCommunicator(const char* name) {
  return std::make_unique<SelfCommunicator>(name);
}

}  // namespace yardmaster
