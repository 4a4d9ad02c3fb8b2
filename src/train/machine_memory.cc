#include "src/train/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/strings.h"
#include "src/train/summary.h"

namespace yardmaster {
namespace {

// The smaller of the machine's memory and the control group's limit, in bytes.
double MachineBytes() {
  double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const char* limits[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
  for (const char* path : limits) {
    if (!PathExists(path)) continue;
    const double limit = std::strtod(ReadFile(path).c_str(), nullptr);  // "max" reads as 0
    if (limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace

void CheckFits(const std::vector<ArenaSize>& planned, const Device& device, int ranks_on_device) {
  const bool gpu = device.kind() == DeviceKind::kCuda;
  if (!gpu && device.kind() != DeviceKind::kCpu) return;
  double needed = 0;
  for (const ArenaSize& size : planned) needed += static_cast<double>(size.bytes);
  const auto total = static_cast<double>(device.total_bytes());
  const double there = !gpu                   ? MachineBytes()
                       : ranks_on_device > 1 ? total
                                             : total - static_cast<double>(device.used_bytes());
  if (needed * ranks_on_device <= there || (gpu && total == 0)) return;
  throw ConfigError(
      StrCat("a step needs ", HumanBytes(needed), " a rank, ", ranks_on_device,
             ranks_on_device == 1 ? " rank on this " : " ranks on this ",
             gpu ? StrCat("GPU, which has ", HumanBytes(there), ranks_on_device == 1 ? " free of " : " of ",
                          HumanBytes(total))
                 : StrCat("machine, which has ", HumanBytes(there)),
             "\n", MemoryTable(planned, {})),
      gpu ? device.description() : "",
      "a smaller train.micro_batch_size, train.sequence_length or model, or more ranks that have a device each");
}

}  // namespace yardmaster
