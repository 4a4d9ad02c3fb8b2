#include "src/ops/cpu/pad_rows_cpu.h"

#include <cstring>

#include "src/device/cpu_parallel.h"

namespace yardmaster::cpu {
namespace {

// Calls block(ragged rows, padded rows, bytes used, bytes of padding) for each expert.
template <class F>
void ForEachExpert(const Stream& stream, const PadRowsArgs& g, F&& block) {
  const int64_t L = g.offsets.dim(0) - 1, M = g.padded.dim(0) / L, R = g.ragged.dim(0);
  const int64_t row_bytes = g.padded.bytes() / g.padded.dim(0);
  const int64_t* offsets = g.offsets.as<int64_t>();
  char* ragged = static_cast<char*>(g.ragged.data());
  char* padded = static_cast<char*>(g.padded.data());
  ParallelFor(stream, L, 1, [&](int64_t l, int64_t) {
    const int64_t begin = offsets[l], rows = offsets[l + 1] - begin;
    YM_CHECK(0 <= begin && 0 <= rows && begin + rows <= R, "rows ", begin, " + ", rows, " of ", R);
    YM_CHECK_LE(rows, M, "rows of local expert ", l, " and its capacity");
    block(ragged + begin * row_bytes, padded + l * M * row_bytes,
          static_cast<size_t>(rows * row_bytes), static_cast<size_t>((M - rows) * row_bytes));
  });
}

}  // namespace

void PadRows(const Stream& stream, const PadRowsArgs& g) {
  ForEachExpert(stream, g, [](const char* ragged, char* padded, size_t used, size_t padding) {
    std::memcpy(padded, ragged, used);
    std::memset(padded + used, 0, padding);  // zero in every float type
  });
}

void UnpadRows(const Stream& stream, const PadRowsArgs& g) {
  ForEachExpert(stream, g, [](char* ragged, const char* padded, size_t used, size_t) {
    std::memcpy(ragged, padded, used);
  });
}

void PaddedOffsets(int64_t rows, const Tensor& offsets) {
  for (int64_t l = 0; l < offsets.dim(0); ++l) offsets.as<int64_t>()[l] = l * rows;
}

}  // namespace yardmaster::cpu
