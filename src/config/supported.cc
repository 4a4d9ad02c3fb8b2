#include "src/config/supported.h"

#include "src/base/strings.h"
#include "src/config/scalar.h"
#include "src/config/schedule.h"

namespace yardmaster {

std::vector<std::string> UnsupportedFeatures(const Config& config) {
  std::vector<std::string> out;
  if (config.runtime.device == "cuda")
    out.push_back("runtime.device = cuda: this version computes on the cpu device");
  if (config.parallel.pp > 1) {
    out.push_back(StrCat("parallel.pp = ", config.parallel.pp, ": this version has no pipeline stages"));
  }
  if (config.moe.sequence_balance_weight > 0) {
    out.push_back(StrCat("moe.sequence_balance_weight = ", FormatNumber(config.moe.sequence_balance_weight),
                         ": this version has no sequence-wise balance loss"));
  }
  if (config.precision.compute != "fp32" && config.precision.compute != "fp64") {
    out.push_back(
        StrCat("precision.compute = ", config.precision.compute, ": this version computes in fp32 or fp64"));
  }
  return out;
}

}  // namespace yardmaster
