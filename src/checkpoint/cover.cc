#include "src/checkpoint/cover.h"

#include <algorithm>

#include "src/base/strings.h"

namespace yardmaster {

std::string BoxText(const Box& box) {
  std::string out = "[";
  for (size_t i = 0; i < box.begin.size(); ++i)
    out += StrCat(i ? ", " : "", box.begin[i], ":", box.begin[i] + box.extent[i]);
  return out + "]";
}

std::string CoverProblem(const Shape& global_shape, std::vector<CoverPiece> pieces) {
  const size_t rank = static_cast<size_t>(global_shape.rank());
  int64_t covered = 0;
  for (const CoverPiece& p : pieces) {
    if (p.box.begin.size() != rank || p.box.extent.size() != rank)
      return StrCat(p.owner, " has a box of ", p.box.begin.size(), " axes of a tensor with shape ",
                    global_shape);
    for (size_t i = 0; i < rank; ++i) {
      const int64_t size = global_shape[static_cast<int>(i)], begin = p.box.begin[i],
                    extent = p.box.extent[i];
      if (begin < 0 || extent < 0 || begin > size || extent > size - begin)
        return StrCat(p.owner, " has a box that lies outside of the shape ", global_shape, " on axis ", i,
                      ": ", extent, " from ", begin);
    }
  }
  std::erase_if(pieces, [](const CoverPiece& p) { return p.box.elements() == 0; });
  std::sort(pieces.begin(), pieces.end(),
            [](const CoverPiece& a, const CoverPiece& b) { return a.box.begin < b.box.begin; });
  for (size_t i = 0; i < pieces.size(); ++i) {
    covered += pieces[i].box.elements();
    for (size_t j = i + 1; j < pieces.size(); ++j) {
      const Box &a = pieces[i].box, &b = pieces[j].box;
      if (rank > 0 && b.begin[0] >= a.begin[0] + a.extent[0])
        break;  // sorted: nor does any later one reach a
      if (Intersect(a, b).elements() != 0)
        return StrCat(pieces[i].owner, " has ", BoxText(a), " and ", pieces[j].owner, " has ", BoxText(b),
                      ", which overlap");
    }
  }
  if (covered != global_shape.elements())
    return StrCat("the boxes hold ", covered, " of the ", global_shape.elements(), " elements of the shape ",
                  global_shape);
  return "";
}

}  // namespace yardmaster
