#include "src/train/replica_check.h"

#include <algorithm>
#include <map>

#include "src/base/hash.h"
#include "src/base/strings.h"
#include "src/comm/agree.h"

namespace yardmaster {
namespace {

constexpr size_t kNamed = 8;  // tensors in a message

uint32_t Checksum(const Tensor& t, Device& device, std::vector<char>& staging) {
  YM_CHECK(t.contiguous());
  uint32_t crc = 0;
  const auto bytes = static_cast<size_t>(t.bytes());
  for (size_t at = 0; at < bytes; at += staging.size()) {
    const size_t n = std::min(staging.size(), bytes - at);
    device.CopyToHost(staging.data(), static_cast<const char*>(t.data()) + at, n);
    crc = Crc32c(staging.data(), n, crc);
  }
  return crc;
}

// The ranks whose copy is not that of the most ranks; all of them where there is no majority.
std::vector<int> Suspects(const std::map<std::string, std::vector<int>>& by_checksum) {
  size_t most = 0, with_most = 0;
  for (const auto& [crc, ranks] : by_checksum) {
    if (ranks.size() == most) ++with_most;
    if (ranks.size() > most) most = ranks.size(), with_most = 1;
  }
  std::vector<int> suspects;
  for (const auto& [crc, ranks] : by_checksum) {
    if (with_most > 1 || ranks.size() < most) suspects.insert(suspects.end(), ranks.begin(), ranks.end());
  }
  std::sort(suspects.begin(), suspects.end());
  return suspects;
}

}  // namespace

void CheckReplicas(const std::vector<ReplicaTensor>& state, int64_t step, Device& device,
                   Agreement& agreement) {
  if (agreement.size() == 1) return;
  std::vector<char> staging(size_t{1} << 20);
  std::string mine;  // a line for each box: its name, a tab, its checksum
  for (const ReplicaTensor& s : state) {
    mine += StrCat(s.name, " ", Shape(s.box.begin), " + ", Shape(s.box.extent), "\t",
                   StrFormat("%08x", Checksum(s.tensor, device, staging)), "\n");
  }
  std::map<std::string, std::map<std::string, std::vector<int>>> boxes;  // box -> checksum -> ranks
  const std::vector<std::string> all = agreement.AllGather(mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (const std::string& line : StrSplit(all[rank], '\n')) {
      const size_t tab = line.find('\t');
      if (tab != std::string::npos)
        boxes[line.substr(0, tab)][line.substr(tab + 1)].push_back(static_cast<int>(rank));
    }
  }
  std::string message;
  size_t differ = 0;
  int first = 0;
  for (const auto& [box, by_checksum] : boxes) {
    if (by_checksum.size() == 1) continue;
    const std::vector<int> suspects = Suspects(by_checksum);
    if (differ++ == 0) first = suspects.front();
    if (differ > kNamed) continue;
    std::vector<std::string> names;
    for (int rank : suspects) names.push_back(StrCat("rank ", rank));
    message += StrCat("\n  ", box, ": ", StrJoin(names, ", "), suspects.size() == 1 ? " differs" : " differ");
  }
  if (differ == 0) return;
  if (differ > kNamed) message += StrCat("\n  and ", differ - kNamed, " more");
  throw AgreedError(
      ExitCode::kCorruption,
      StrCat("copies of the same tensor differ between ranks after step ", step, ":", message,
             "\n  hint: memory or a link of the named rank's machine is suspect; resume from the last "
             "checkpoint, without that machine if it happens again"),
      first);
}

}  // namespace yardmaster
