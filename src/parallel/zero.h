// File: src/parallel/zero.h
//
// ZeRO-1 ownership as pure data: which rows of each parameter a rank of the data-parallel group
// reduces, updates and sends to the others (dense parameters over dp, expert parameters over edp).
//
// A parameter is a stack of matrices. Matrices are cut at multiples of 128 rows, so that a cut
// never splits a quantisation block; a small parameter stays whole. Every rank gets the same number
// of these pieces of a parameter, and what is left over goes to the ranks that have least so far
// (largest pieces first, ties: registry order, lowest rank). Where all rows are multiples of 128,
// two ranks differ by at most one piece, the largest there is.
#pragma once

#include <cstdint>
#include <vector>

#include "src/tensor/shard_spec.h"

namespace yardmaster {

struct ZeroParameter {
  int64_t matrices = 1;  // 1, or L of an expert tensor [L, rows, cols]
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t elements() const { return matrices * rows * cols; }
  // [D] is one row; of three or more axes the first counts matrices.
  static ZeroParameter Of(const Shape& shape);
};

struct ZeroOptions {
  int64_t cut_rows = 128;
  int64_t whole_below = 64 * 1024;  // elements: smaller parameters are not cut
};

// For each parameter, in registry order: element bounds of size n + 1. Rank r owns elements [b[r],
// b[r + 1]), whole rows, perhaps none. What Communicator::ReduceScatterSum and AllGather take.
std::vector<std::vector<int64_t>> ZeroBounds(const std::vector<ZeroParameter>& parameters,
                                             int ranks, const ZeroOptions& options = {});

// Elements that each rank owns: for memory plans and messages.
std::vector<int64_t> ZeroLoads(const std::vector<std::vector<int64_t>>& bounds);

// Elements [begin, end) of a contiguous tensor, whole rows, as boxes of it in ascending order: at
// most three where the range begins and ends within a matrix, one otherwise. `local` is the box
// within the tensor.
struct ZeroPiece {
  Box local;
  int64_t begin = 0, end = 0;  // its elements in the tensor
};
std::vector<ZeroPiece> ZeroPieces(const Shape& shape, int64_t begin, int64_t end);

}  // namespace yardmaster
