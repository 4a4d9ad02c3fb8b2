#include "src/train/state_hash.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "src/base/hash.h"
#include "src/base/strings.h"

namespace yardmaster {
namespace {

// The sum, mod 2^64, of a digest of each row with its global index: pieces of a tensor add up in any order.
uint64_t SumOfRows(const StateTensor& s, Device& device, std::vector<char>& staging) {
  YM_CHECK(s.tensor.contiguous());
  const Box& box = s.spec.box;
  const int axes = s.spec.global_shape.rank();
  YM_CHECK(axes > 0 && box.extent.back() == s.spec.global_shape[axes - 1], s.name, " is cut within rows");
  const int64_t rows = s.tensor.rows();
  const auto row_bytes = static_cast<size_t>(rows ? s.tensor.bytes() / rows : 0);
  const int64_t at_once =
      std::max<int64_t>(1, static_cast<int64_t>(staging.size() / std::max<size_t>(row_bytes, 1)));
  staging.resize(std::max(staging.size(), row_bytes));
  uint64_t sum = 0;
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t n = std::min(at_once, rows - first);
    device.CopyToHost(staging.data(),
                      static_cast<const char*>(s.tensor.data()) + static_cast<size_t>(first) * row_bytes,
                      static_cast<size_t>(n) * row_bytes);
    for (int64_t i = 0; i < n; ++i) {
      int64_t local = first + i, global = 0, scale = 1;
      for (int axis = axes - 2; axis >= 0; --axis) {
        global +=
            (box.begin[static_cast<size_t>(axis)] + local % box.extent[static_cast<size_t>(axis)]) * scale;
        local /= box.extent[static_cast<size_t>(axis)];
        scale *= s.spec.global_shape[axis];
      }
      Sha256 hash;
      hash.Update(&global, sizeof(global));
      hash.Update(staging.data() + static_cast<size_t>(i) * row_bytes, row_bytes);
      sum += std::strtoull(hash.HexDigest().substr(0, 16).c_str(), nullptr, 16);
    }
  }
  return sum;
}

}  // namespace

std::string StateHash(const std::vector<StateTensor>& state, Device& device, Agreement& agreement) {
  std::vector<char> staging(size_t{1} << 20);
  std::string mine;  // a line for each piece: tensor, tab, box, tab, sum
  for (const StateTensor& s : state) {
    mine += StrCat(s.name, " ", DTypeName(s.tensor.dtype()), " ", s.spec.global_shape, "\t",
                   Shape(s.spec.box.begin), "+", Shape(s.spec.box.extent), "\t",
                   SumOfRows(s, device, staging), "\n");
  }
  std::map<std::string, std::map<std::string, uint64_t>> tensors;  // tensor -> box -> sum: copies count once
  for (const std::string& lines : agreement.Gather(mine)) {
    for (const std::string& line : StrSplit(lines, '\n')) {
      const std::vector<std::string> fields = StrSplit(line, '\t');
      if (fields.size() == 3) tensors[fields[0]][fields[1]] = std::strtoull(fields[2].c_str(), nullptr, 10);
    }
  }
  Sha256 all;
  for (const auto& [name, boxes] : tensors) {
    uint64_t sum = 0;
    for (const auto& [box, part] : boxes) sum += part;
    all.Update(StrCat(name, " ", sum, "\n"));
  }
  return agreement.Broadcast(all.HexDigest());
}

}  // namespace yardmaster
