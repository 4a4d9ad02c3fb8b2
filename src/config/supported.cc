#include "src/config/supported.h"

#include "src/base/strings.h"
#include "src/config/schedule.h"

namespace yardmaster {

std::vector<std::string> UnsupportedFeatures(const Config& config) {
  std::vector<std::string> out;
  if (config.parallel.pp > 1) {
    out.push_back(StrCat("parallel.pp = ", config.parallel.pp, ": this version has no pipeline stages"));
  }
  if (config.precision.compute == "fp8")
    out.push_back("precision.compute = fp8: this version computes in bf16, fp32 or fp64");
  if (config.precision.compute == "bf16" && config.runtime.device == "cpu")
    out.push_back("precision.compute = bf16: the cpu device computes in fp32 or fp64");
  return out;
}

}  // namespace yardmaster
