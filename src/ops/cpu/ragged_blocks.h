// File: src/ops/cpu/ragged_blocks.h
//
// Ragged rows cut into blocks of one group each, and where a block lies in the aligned row space of a
// transposed copy (ops/quantize.h).
#pragma once

#include <algorithm>

#include "src/base/check.h"
#include "src/ops/quantize.h"

namespace yardmaster::cpu {

struct RaggedBlock {
  int64_t group;
  int64_t row0, rows;   // of the ragged buffer
  int64_t padded_row0;  // of the aligned row space
};

// Groups of offsets, or one group of all R rows.
class RaggedGroups {
 public:
  RaggedGroups(const Tensor& offsets, int64_t R)
      : offsets_(offsets.defined() ? offsets.as<int64_t>() : nullptr),
        L_(GroupsOf(offsets)),
        R_(R) {
    YM_CHECK(begin(0) == 0 && begin(L_) <= R, "offsets from ", begin(0), " to ", begin(L_), " of ", R,
             " rows");
    for (int64_t l = 0; l < L_; ++l) YM_CHECK_LE(begin(l), begin(l + 1), "offsets of group ", l);
  }

  int64_t count() const { return L_; }
  int64_t begin(int64_t l) const { return offsets_ != nullptr ? offsets_[l] : l * R_; }
  int64_t rows(int64_t l) const { return begin(l + 1) - begin(l); }
  static int64_t Aligned(int64_t rows) {
    return (rows + kGroupAlignment - 1) / kGroupAlignment * kGroupAlignment;
  }

  // Blocks of at most kGroupAlignment rows, in order.
  int64_t blocks() const {
    int64_t n = 0;
    for (int64_t l = 0; l < L_; ++l) n += Aligned(rows(l)) / kGroupAlignment;
    return n;
  }
  RaggedBlock Block(int64_t index) const {
    int64_t l = 0, rest = index;
    for (; rest >= Aligned(rows(l)) / kGroupAlignment; ++l) rest -= Aligned(rows(l)) / kGroupAlignment;
    const int64_t in_group = rest * kGroupAlignment;
    return {l, begin(l) + in_group, std::min(kGroupAlignment, rows(l) - in_group), index * kGroupAlignment};
  }

 private:
  const int64_t* offsets_;
  int64_t L_, R_;
};

}  // namespace yardmaster::cpu
