#include "src/parallel/zero.h"

#include <algorithm>
#include <numeric>

#include "src/base/check.h"

namespace yardmaster {
namespace {

// Where the pieces of a parameter begin: piece b of blocks() covers elements [begin(b), begin(b +
// 1)).
struct Cuts {
  ZeroParameter p;
  int64_t cut_rows;
  bool whole;
  int64_t per_matrix() const { return (p.rows + cut_rows - 1) / cut_rows; }
  int64_t blocks() const { return whole ? 1 : p.matrices * per_matrix(); }
  int64_t begin(int64_t b) const {
    if (whole || b == blocks()) return b == 0 ? 0 : p.elements();
    return (b / per_matrix() * p.rows + b % per_matrix() * cut_rows) * p.cols;
  }
  int64_t largest() const { return whole ? p.elements() : std::min(cut_rows, p.rows) * p.cols; }
};

}  // namespace

ZeroParameter ZeroParameter::Of(const Shape& shape) {
  YM_CHECK_GE(shape.rank(), 1);
  ZeroParameter p{1, 1, shape[-1]};
  if (shape.rank() >= 3) p.matrices = shape[0];
  for (int i = shape.rank() >= 3 ? 1 : 0; i + 1 < shape.rank(); ++i) p.rows *= shape[i];
  return p;
}

std::vector<std::vector<int64_t>> ZeroBounds(const std::vector<ZeroParameter>& parameters,
                                             int ranks, const ZeroOptions& options) {
  YM_CHECK_GE(ranks, 1);
  YM_CHECK_GE(options.cut_rows, 1);
  std::vector<Cuts> cuts;
  for (const ZeroParameter& p : parameters) {
    cuts.push_back({p, options.cut_rows, p.elements() < options.whole_below || p.elements() == 0});
  }
  // Large pieces first: the small ones then level out what the large ones left uneven.
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return cuts[a].largest() > cuts[b].largest(); });

  std::vector<std::vector<int64_t>> bounds(parameters.size());
  std::vector<int64_t> load(static_cast<size_t>(ranks), 0);
  std::vector<int> by_load(static_cast<size_t>(ranks));
  std::iota(by_load.begin(), by_load.end(), 0);
  for (size_t i : order) {
    const Cuts& cut = cuts[i];
    std::vector<int64_t> pieces(static_cast<size_t>(ranks), cut.blocks() / ranks);
    const int64_t extra = cut.blocks() % ranks;
    if (extra > 0) {
      std::partial_sort(by_load.begin(), by_load.begin() + extra, by_load.end(), [&](int a, int b) {
        return load[a] != load[b] ? load[a] < load[b] : a < b;
      });
      for (int64_t e = 0; e < extra; ++e) ++pieces[by_load[e]];
    }
    bounds[i].assign(static_cast<size_t>(ranks) + 1, 0);
    int64_t block = 0;
    for (int r = 0; r < ranks; ++r) {
      block += pieces[r];
      bounds[i][r + 1] = cut.begin(block);
      load[r] += bounds[i][r + 1] - bounds[i][r];
    }
  }
  return bounds;
}

std::vector<int64_t> ZeroLoads(const std::vector<std::vector<int64_t>>& bounds) {
  std::vector<int64_t> load(bounds.empty() ? 0 : bounds[0].size() - 1, 0);
  for (const std::vector<int64_t>& b : bounds) {
    for (size_t r = 0; r < load.size(); ++r) load[r] += b[r + 1] - b[r];
  }
  return load;
}

std::vector<ZeroPiece> ZeroPieces(const Shape& shape, int64_t begin, int64_t end) {
  YM_CHECK(0 <= begin && begin <= end && end <= shape.elements(), begin, "..", end, " of ", shape);
  std::vector<ZeroPiece> pieces;
  if (begin == end) return pieces;
  if (shape.rank() == 1) {
    pieces.push_back({Box{{begin}, {end - begin}}, begin, end});
    return pieces;
  }
  YM_CHECK(shape.rank() == 2 || shape.rank() == 3, "a parameter of shape ", shape,
           " has no rows to cut");
  const int64_t cols = shape[-1], rows = shape[-2];
  YM_CHECK(begin % cols == 0 && end % cols == 0, begin, "..", end, " are not whole rows of ",
           shape);
  const int64_t row_begin = begin / cols, row_end = end / cols;
  if (shape.rank() == 2) {
    pieces.push_back({Box{{row_begin, 0}, {row_end - row_begin, cols}}, begin, end});
    return pieces;
  }
  for (int64_t row = row_begin; row < row_end;) {
    const int64_t matrix = row / rows, in_matrix = row % rows;
    // As many whole matrices as there are, else to the end of this one or of the range.
    const int64_t whole = in_matrix == 0 ? (row_end - row) / rows : 0;
    const int64_t take = whole > 0 ? whole * rows : std::min(rows - in_matrix, row_end - row);
    Box box{{matrix, whole > 0 ? 0 : in_matrix, 0},
            {std::max<int64_t>(whole, 1), whole > 0 ? rows : take, cols}};
    pieces.push_back({box, row * cols, (row + take) * cols});
    row += take;
  }
  return pieces;
}

}  // namespace yardmaster
