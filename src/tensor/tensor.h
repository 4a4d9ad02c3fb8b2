// File: src/tensor/tensor.h
//
// Tensor: a non-owning, type-erased view: pointer, dtype, shape, leading dimension. Memory belongs to arenas
// (device/arena.h) or to HostTensor. Copying a Tensor copies the view.
//
// Layout: row-major. Viewed as a matrix, rows() is the product of all axes but the last, cols() the last axis, and
// row r begins at data + r * ld elements. contiguous() means ld == cols(). Only ops that say so take ld > cols().
//
// Shape letters, used in names and at line ends everywhere: B batch, S sequence, T tokens (B*S), D hidden, H heads,
// E experts, L local experts, K top-k, F expert width, R ragged rows (expert-major), V vocabulary.
//
// A Tensor with data() == nullptr is either empty() (no shape) or belongs to a dry run, which plans memory and checks
// shapes without touching data.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "src/base/check.h"
#include "src/tensor/dtype.h"

namespace yardmaster {

class Shape {
 public:
  static constexpr int kMaxRank = 5;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    YM_CHECK_LE(dims.size(), size_t{kMaxRank});
    for (int64_t d : dims) dims_[rank_++] = d;
  }
  explicit Shape(const std::vector<int64_t>& dims) {
    YM_CHECK_LE(dims.size(), size_t{kMaxRank});
    for (int64_t d : dims) dims_[rank_++] = d;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i < 0 ? i + rank_ : i]; }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  std::vector<int64_t> vector() const { return {dims_.begin(), dims_.begin() + rank_}; }
  bool operator==(const Shape& o) const { return vector() == o.vector(); }
  std::string ToString() const {  // "[2, 24, 64]"
    std::string out = "[";
    for (int i = 0; i < rank_; ++i) out += (i ? ", " : "") + std::to_string(dims_[i]);
    return out + "]";
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Shape& s) { return out << s.ToString(); }

class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, const Shape& shape)
      : data_(data), dtype_(dtype), shape_(shape), ld_(shape.rank() ? shape[-1] : 1), defined_(true) {}

  bool defined() const { return defined_; }
  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t elements() const { return shape_.elements(); }
  int64_t bytes() const { return elements() * DTypeBytes(dtype_); }
  int64_t cols() const { return shape_.rank() ? shape_[-1] : 1; }
  int64_t rows() const { return cols() ? elements() / cols() : RowsOfEmptyCols(); }
  int64_t ld() const { return ld_; }
  bool contiguous() const { return ld_ == cols(); }

  // Typed pointer; checks the dtype. Null in a dry run.
  template <class T>
  T* as() const {
    YM_CHECK(dtype_ == DTypeOf<T>::value, "tensor of ", DTypeName(dtype_), " used as ", DTypeName(DTypeOf<T>::value));
    return static_cast<T*>(data_);
  }

  // Same elements, another shape; contiguous only.
  Tensor Reshape(const Shape& shape) const {
    YM_CHECK(contiguous(), "reshape of a strided tensor ", shape_);
    YM_CHECK_EQ(shape.elements(), elements());
    return Tensor(data_, dtype_, shape);
  }
  // Columns [begin, end) of every row: a strided view.
  Tensor Cols(int64_t begin, int64_t end) const {
    YM_CHECK(0 <= begin && begin <= end && end <= cols(), begin, "..", end, " of ", shape_);
    std::vector<int64_t> dims = shape_.vector();
    dims.back() = end - begin;
    Tensor t(Offset(begin), dtype_, Shape(dims));
    t.ld_ = ld_;
    return t;
  }
  // Entries [begin, end) of the first axis. A strided tensor must be a matrix.
  Tensor Slice(int64_t begin, int64_t end) const {
    YM_CHECK(0 <= begin && begin <= end && end <= shape_[0], begin, "..", end, " of ", shape_);
    YM_CHECK(contiguous() || shape_.rank() == 2);
    std::vector<int64_t> dims = shape_.vector();
    const int64_t stride = shape_.rank() == 1 ? 1 : (contiguous() ? (dims[0] ? elements() / dims[0] : 0) : ld_);
    dims[0] = end - begin;
    Tensor t(Offset(begin * stride), dtype_, Shape(dims));
    if (shape_.rank() > 1) t.ld_ = ld_;
    return t;
  }
  // Entry i of the first axis, that axis dropped; contiguous only.
  Tensor At(int64_t i) const {
    YM_CHECK(contiguous());
    std::vector<int64_t> dims = shape_.vector();
    dims.erase(dims.begin());
    return Tensor(Slice(i, i + 1).data_, dtype_, Shape(dims));
  }

 private:
  void* Offset(int64_t elements) const {
    return data_ ? static_cast<char*>(data_) + elements * DTypeBytes(dtype_) : nullptr;
  }
  int64_t RowsOfEmptyCols() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < shape_.rank(); ++i) n *= shape_[i];
    return n;
  }
  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Shape shape_;
  int64_t ld_ = 1;
  bool defined_ = false;
};

// Owns host memory, 64-byte aligned, zeroed. For files, tests and tools; the trainer's memory comes from arenas.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, const Shape& shape)
      : storage_((static_cast<size_t>(shape.elements() * DTypeBytes(dtype)) + 63) / 64 + 1), dtype_(dtype), shape_(shape) {}
  Tensor view() const { return Tensor(const_cast<Block*>(storage_.data()), dtype_, shape_); }
  template <class T> T* as() const { return view().as<T>(); }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t elements() const { return shape_.elements(); }

 private:
  struct alignas(64) Block { char bytes[64] = {}; };
  std::vector<Block> storage_;
  DType dtype_ = DType::kF32;
  Shape shape_;
};

}  // namespace yardmaster
