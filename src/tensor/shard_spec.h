// File: src/tensor/shard_spec.h
//
// Which part of a global tensor a rank holds: a box (offset and extent per axis) of the global shape. Checkpoints, HF
// import/export and ZeRO speak of tensors by global name and box only, so that any layout can load what any other saved.
#pragma once

#include <algorithm>
#include <vector>

#include "src/tensor/tensor.h"

namespace yardmaster {

struct Box {
  std::vector<int64_t> begin;   // per axis, inclusive
  std::vector<int64_t> extent;  // per axis
  static Box Whole(const Shape& shape) { return {std::vector<int64_t>(shape.rank(), 0), shape.vector()}; }
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t e : extent) n *= e;
    return n;
  }
  bool operator==(const Box&) const = default;
};

// The common part; elements() == 0 when there is none. Ranks must agree.
inline Box Intersect(const Box& a, const Box& b) {
  YM_CHECK_EQ(a.begin.size(), b.begin.size());
  Box out = a;
  for (size_t i = 0; i < a.begin.size(); ++i) {
    out.begin[i] = std::max(a.begin[i], b.begin[i]);
    out.extent[i] = std::max<int64_t>(0, std::min(a.begin[i] + a.extent[i], b.begin[i] + b.extent[i]) - out.begin[i]);
  }
  return out;
}

struct ShardSpec {
  Shape global_shape;
  Box box;  // what this rank holds; the tensor's shape is box.extent
  static ShardSpec Replicated(const Shape& shape) { return {shape, Box::Whole(shape)}; }
};

}  // namespace yardmaster
