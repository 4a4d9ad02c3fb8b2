#include "src/config/supported.h"

#include "src/base/strings.h"
#include "src/config/scalar.h"
#include "src/config/schedule.h"

namespace yardmaster {

std::vector<std::string> MissingOnCuda(const Config& config) {
  const MoeConfig& moe = config.moe;
  std::vector<std::string> out;
  for (const auto& [key, value] : {std::pair{"moe.sequence_balance_weight", moe.sequence_balance_weight},
                                   {"moe.micro_batch_balance_weight", moe.micro_batch_balance_weight},
                                   {"moe.global_batch_balance_weight", moe.global_batch_balance_weight},
                                   {"moe.router_z_weight", moe.router_z_weight},
                                   {"moe.capacity_factor", moe.capacity_factor}}) {
    if (value > 0)
      out.push_back(StrCat(key, " = ", FormatNumber(value), ": this version has it on the cpu device only"));
  }
  return out;
}

std::vector<std::string> UnsupportedFeatures(const Config& config) {
  std::vector<std::string> out;
  if (config.parallel.pp > 1) {
    out.push_back(StrCat("parallel.pp = ", config.parallel.pp, ": this version has no pipeline stages"));
  }
  if (config.precision.compute == "fp8")
    out.push_back("precision.compute = fp8: this version computes in bf16, fp32 or fp64");
  if (config.precision.compute == "bf16" && config.runtime.device == "cpu")
    out.push_back("precision.compute = bf16: the cpu device computes in fp32 or fp64");
  // With auto the cpu takes what cuda lacks, but not in bf16.
  const bool only_cuda = config.runtime.device == "cuda" ||
                         (config.runtime.device == "auto" && config.precision.compute == "bf16");
  if (only_cuda) {
    for (const std::string& line : MissingOnCuda(config)) out.push_back(line);
  }
  return out;
}

}  // namespace yardmaster
