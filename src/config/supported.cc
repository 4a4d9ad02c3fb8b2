#include "src/config/supported.h"

#include <cstdint>
#include <utility>

#include "src/base/strings.h"
#include "src/config/schedule.h"

namespace yardmaster {
namespace {

// Kernels move 16 codes at once, along both axes of every matrix that is quantised.
void AddOddWidths(const std::string& recipe, const ModelConfig& m, std::vector<std::string>& out) {
  const int64_t heads = m.num_attention_heads;
  std::vector<std::pair<const char*, int64_t>> widths = {{"hidden_size", m.hidden_size},
                                                         {"intermediate_size", m.intermediate_size},
                                                         {"moe_intermediate_size", m.moe_intermediate_size},
                                                         {"q_lora_rank", m.q_lora_rank},
                                                         {"kv_lora_rank", m.kv_lora_rank},
                                                         {"heads x width of a query head", heads * m.qk_head_dim()}};
  if (m.IsMla()) {
    widths.insert(widths.end(), {{"kv_lora_rank + qk_rope_head_dim", m.kv_lora_rank + m.qk_rope_head_dim},
                                 {"heads x (qk_nope_head_dim + v_head_dim)", heads * (m.qk_nope_head_dim + m.v_head_dim)},
                                 {"heads x v_head_dim", heads * m.v_head_dim}});
  } else {
    widths.emplace_back("num_key_value_heads x head_dim", m.key_value_heads() * m.qk_head_dim());
  }
  for (const auto& [name, width] : widths) {
    if (width % 16 != 0) {
      out.push_back(StrCat("precision.compute = ", recipe, ": model.", name, " = ", width,
                           ": the cuda device quantises multiples of 16 (runtime.device: cpu takes any)"));
    }
  }
}

}  // namespace

std::vector<std::string> UnsupportedOnCuda(const Config& config) {
  std::vector<std::string> out;
  const std::string& compute = config.precision.compute;
  if (compute == "fp8_block" || compute == "mxfp8") AddOddWidths(compute, config.model, out);
  return out;
}

std::string UnsupportedOnCapability(const Config& config, int capability) {
  constexpr int kFp8Kernels = 90;
  if (config.precision.compute != "fp8_block" || capability == kFp8Kernels) return "";
  return StrCat("precision.compute = fp8_block multiplies on compute capability 9.0; a GPU here has ", capability / 10, ".",
                capability % 10);
}

std::string UntriedCapability(int capability) {
  if (capability == kTriedCapability) return "";
  return StrCat("compute capability ", capability / 10, ".", capability % 10,
                ": nothing of this version has run on such a GPU, it is compiled only; all tests and measurements are of 9.0 (H200)");
}

std::vector<std::string> UnsupportedFeatures(const Config& config) {
  std::vector<std::string> out;
  if (config.parallel.pp > 1) {
    out.push_back(StrCat("parallel.pp = ", config.parallel.pp, ": this version has no pipeline stages"));
  }
  const std::string& compute = config.precision.compute;
  if (config.runtime.device == "cuda") {
    for (const std::string& line : UnsupportedOnCuda(config)) out.push_back(line);
  }
  if (compute == "bf16" && config.runtime.device == "cpu")
    out.push_back("precision.compute = bf16: the cpu device computes in fp32 or fp64");
  return out;
}

}  // namespace yardmaster
