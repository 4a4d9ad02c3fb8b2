#include "src/device/arena.h"

#include <algorithm>
#include <cstring>

#include "src/base/check.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

constexpr size_t kAlignment =
    256;  // of every tensor: a GPU's widest loads and the CPU's cache lines

size_t AlignUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Arena::Arena(std::string name, Device* device) : name_(std::move(name)), device_(device) {
  YM_CHECK(device_ != nullptr, "arena ", name_);
}

Arena::~Arena() {
  if (base_ != nullptr) device_->Free(base_);
}

void Arena::Commit(size_t bytes) {
  YM_CHECK(device_->kind() != DeviceKind::kDry, "arena ", name_,
           " on the dry device only measures");
  YM_CHECK(!committed_, "arena ", name_, " is committed twice");
  YM_CHECK(top_ == 0, "arena ", name_, " is committed while ", top_, " bytes of it are in use");
  const size_t capacity = AlignUp(bytes);
  if (capacity > 0) {
    try {
      base_ = static_cast<char*>(device_->Allocate(capacity));
    } catch (const Error& e) {
      throw Error(e.code(), e.what(), StrCat("arena ", name_));
    }
  }
  capacity_ = capacity;
  committed_ = true;
  high_water_ = 0;  // from here on: the actual use, to be compared with the plan
  // Memory that was never written reads as NaN too.
  if (poison_ && base_ != nullptr && device_->kind() == DeviceKind::kCpu)
    std::memset(base_, 0xFF, capacity_);
}

Tensor Arena::Allocate(const char* what, DType dtype, const Shape& shape) {
  const int64_t elements = shape.elements();
  YM_CHECK_GE(elements, 0, what, " in arena ", name_, " has shape ", shape);
  const size_t begin = top_;
  const size_t end =
      begin + AlignUp(static_cast<size_t>(elements) * static_cast<size_t>(DTypeBytes(dtype)));
  YM_CHECK(!committed_ || end <= capacity_, "arena ", name_, " of ",
           HumanBytes(static_cast<double>(capacity_)), " cannot hold ", what, " ", DTypeName(dtype),
           " ", shape, ": it would end at byte ", end, " of ", capacity_);
  top_ = end;
  high_water_ = std::max(high_water_, top_);
  return Tensor(base_ == nullptr ? nullptr : base_ + begin, dtype, shape);
}

void Arena::Release(size_t mark) {
  YM_CHECK_LE(mark, top_, "arena ", name_, " is released out of order");
  if (poison_ && base_ != nullptr && device_->kind() == DeviceKind::kCpu) {
    std::memset(base_ + mark, 0xFF,
                top_ - mark);  // 0xFF.. is a NaN in F64, F32 and BF16, and -1 in integers
  }
  top_ = mark;
}

}  // namespace yardmaster
