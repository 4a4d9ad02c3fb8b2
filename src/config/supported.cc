#include "src/config/supported.h"

#include "src/base/strings.h"
#include "src/config/scalar.h"

namespace yardmaster {

std::vector<std::string> UnsupportedFeatures(const Config& config) {
  std::vector<std::string> out;
  if (config.runtime.device == "cuda")
    out.push_back("runtime.device = cuda: this version computes on the cpu device");
  if (config.parallel.pp > 1) {
    out.push_back(StrCat("parallel.pp = ", config.parallel.pp, ": this version has no pipeline stages"));
  }
  if (config.model.num_nextn_predict_layers > 0) {
    out.push_back(StrCat("model.num_nextn_predict_layers = ", config.model.num_nextn_predict_layers,
                         ": this version has no multi-token prediction"));
  }
  if (config.ep.ragged_buffer_factor != -1) {
    out.push_back(StrCat("ep.ragged_buffer_factor = ", FormatNumber(config.ep.ragged_buffer_factor),
                         ": this version plans dispatch windows for the worst case (-1)"));
  }
  return out;
}

}  // namespace yardmaster
