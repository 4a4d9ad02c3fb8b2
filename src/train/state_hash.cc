#include "src/train/state_hash.h"

#include <algorithm>

#include "src/base/hash.h"
#include "src/base/strings.h"

namespace yardmaster {

std::string StateHash(const std::vector<StateTensor>& state, Device& device, Agreement& agreement) {
  Sha256 hash;
  std::vector<char> staging(size_t{1} << 20);
  for (const StateTensor& s : state) {
    hash.Update(StrCat(s.name, " ", DTypeName(s.tensor.dtype()), " ", Shape(s.spec.box.begin), " ", Shape(s.spec.box.extent), "\n"));
    YM_CHECK(s.tensor.contiguous());
    const auto bytes = static_cast<size_t>(s.tensor.bytes());
    for (size_t at = 0; at < bytes; at += staging.size()) {
      const size_t n = std::min(staging.size(), bytes - at);
      device.CopyToHost(staging.data(), static_cast<const char*>(s.tensor.data()) + at, n);
      hash.Update(staging.data(), n);
    }
  }
  Sha256 all;
  for (const std::string& digest : agreement.AllGather(hash.HexDigest())) all.Update(digest);
  return all.HexDigest();
}

}  // namespace yardmaster
