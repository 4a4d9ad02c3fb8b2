#include "src/data/fingerprint.h"

#include <algorithm>
#include <vector>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/hash.h"
#include "src/base/strings.h"
#include "src/data/megatron_index.h"

namespace yardmaster {
namespace {

std::string Difference(const FileFingerprint& saved, const FileFingerprint& current) {
  return StrCat("  ", current.path, ": ", current.bytes, " bytes, fingerprint ", current.sha256, "; was ",
                saved.bytes, " bytes, fingerprint ", saved.sha256,
                saved.path == current.path ? "" : StrCat(" (then at ", saved.path, ")"));
}

}  // namespace

FileFingerprint FingerprintFile(const std::string& path, uint64_t crc_above) {
  const MappedFile file(path);
  Sha256 sha;
  if (file.size() <= crc_above) {
    sha.Update(file.data(), file.size());
  } else {
    for (uint64_t begin = 0; begin < file.size(); begin += kFingerprintChunk) {
      const uint32_t crc = Crc32c(file.data() + begin, std::min(kFingerprintChunk, file.size() - begin));
      sha.Update(&crc, sizeof(crc));
    }
  }
  return {path, file.size(), sha.HexDigest()};
}

DatasetFingerprint FingerprintDataset(const std::string& path) {
  const std::string prefix = DatasetPrefix(path);
  return {FingerprintFile(prefix + ".idx"), FingerprintFile(prefix + ".bin")};
}

void CheckSameDataset(const DatasetFingerprint& saved, const DatasetFingerprint& current) {
  std::vector<std::string> changed, lines;
  for (const auto& [before, now] :
       {std::pair(&saved.idx, &current.idx), std::pair(&saved.bin, &current.bin)}) {
    if (before->SameContent(*now)) continue;
    changed.push_back(now->path);
    lines.push_back(Difference(*before, *now));
  }
  if (changed.empty()) return;
  throw DataError(StrCat("the data changed since the run was saved:\n", StrJoin(lines, "\n")),
                  StrJoin(changed, ", "), "restore the files, or start a new run (run.dir) on the new data");
}

}  // namespace yardmaster
