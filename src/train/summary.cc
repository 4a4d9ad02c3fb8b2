#include "src/train/summary.h"

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/config/parameters.h"
#include "src/config/schedule.h"
#include "src/data/dataset_info.h"

namespace yardmaster {
namespace {

std::string Row(const char* label, const std::string& text) {
  return StrFormat("  %-12s %s\n", label, text.c_str());
}

std::string Batch(const Schedule& batch) {
  const ScheduleSegment& first = batch.segments.front();
  std::string out = StrFormat("%.0f sequences", first.from);
  if (!IsConstantSchedule(batch)) out += StrFormat(" at first, %.0f at most", LargestScheduleValue(batch));
  return out;
}

}  // namespace

std::string StartSummary(const Config& c, Runtime& runtime) {
  const Mesh& mesh = runtime.mesh();
  const ParameterCounts counts = CountParameters(c.model);
  const FlopsPerToken flops = CountFlopsPerToken(c.model, c.train.sequence_length);
  std::string out;
  out += Row("device", StrCat(runtime.device().description(), " (", runtime.device_reason(), ")"));
  out += Row("layout", StrCat(runtime.size(), runtime.size() == 1 ? " rank" : " ranks", " = dp ", mesh.dp(),
                              " x pp ", mesh.pp(), ", ep ", mesh.ep(), c.parallel.ep == 0 ? " (auto)" : "",
                              ", zero ", c.parallel.zero));
  if (runtime.size() > 1) out += Row("transport", runtime.transport());
  out += PrecisionTable(c, runtime.device().kind());
  out += Row("model",
             StrCat(c.model.model_type, ", ", c.model.num_hidden_layers, " layers (",
                    c.model.first_k_dense_replace, " dense), ", c.model.n_routed_experts, " experts, top-",
                    c.model.num_experts_per_tok, ", ", c.model.n_shared_experts, " shared"));
  out += Row("parameters", StrCat(HumanCount(static_cast<double>(counts.total())), " in all, ",
                                  HumanCount(static_cast<double>(counts.active())), " active for a token"));
  out += Row("FLOPs",
             StrCat(HumanCount(flops.total()), " a token: ", FlopsFormula(c.model, c.train.sequence_length)));
  out += Row("batch", StrCat(Batch(c.train.global_batch_size), " of ", c.train.sequence_length,
                             " tokens, micro-batches of ", c.train.micro_batch_size, " on a rank"));
  return out;
}

std::string PrecisionTable(const Config& c, DeviceKind device) {
  const std::string& compute = c.precision.compute;
  const bool eight_bit = compute == "fp8_block" || compute == "mxfp8", cuda = device == DeviceKind::kCuda;
  const std::string work = eight_bit ? (cuda ? "bf16" : "fp32") : compute;
  const std::string wide = compute == "fp64" ? "fp64" : "fp32";
  std::string products = StrCat(work, ", summed in ", wide);
  if (compute == "fp8_block") {
    products = StrCat("fp8_block: E4M3, 1x128 activations and gradients, 128x128 weights, ",
                      c.precision.fp8_block_scales == "exact" ? "exact" : "power-of-two",
                      " scales; promoted to fp32 every 128", cuda ? " (compute capability 9.0 alone)" : "");
    if (cuda && c.model.n_routed_experts > 0 && (c.moe.gemm == "portable" || c.moe.gemm == "loop"))
      products += StrCat(" (routed experts, by moe.gemm: ", c.moe.gemm, ": dequantised to bf16)");
  } else if (compute == "mxfp8") {
    products = StrCat("mxfp8: E4M3, E8M0 scale for 32, round-up; dequantised exactly and multiplied in ", work,
                      !cuda                     ? ""
                      : c.moe.gemm == "auto" ? " (compute capability 10.x: as they are, where cuBLASLt of 13.3 or later takes them; not run yet)"
                                             : StrCat(" on every GPU, by moe.gemm: ", c.moe.gemm));
  }
  const bool moe = c.model.n_routed_experts > 0;
  std::string out = Row("precision", StrCat("weights, activations ", work, "; masters, gradients ", wide, "; moments ",
                                            compute == "fp64" ? "fp64" : c.optimizer.moments));
  out += Row("  products", StrCat("attention projections, dense", moe ? " and shared MLPs, routed experts" : " MLPs",
                                  " (forward, input and weight gradients): ", products));
  out += Row("  kept high", StrCat("embedding, head, attention, norms", c.model.num_nextn_predict_layers > 0 ? ", eh_proj" : "", " ",
                                   work, moe ? StrCat("; router ", wide, c.ep.payload == "recipe" ? "; dispatch 8-bit rows, combine " : "; dispatch, combine ", work) : ""));
  if (c.runtime.saved_inputs == "recipe")
    out += Row("  saved", "inputs of linear layers that weight gradients alone read: their 8-bit copies");
  return out;
}

std::string MemoryTable(const std::vector<ArenaSize>& planned, const std::vector<ArenaSize>& actual) {
  std::string out = StrFormat("  %-12s %14s %14s\n", "memory", "planned", actual.empty() ? "" : "used");
  size_t planned_sum = 0, actual_sum = 0;
  for (size_t i = 0; i < planned.size(); ++i) {
    out += StrFormat("  %-12s %14s %14s\n", planned[i].name.c_str(),
                     HumanBytes(static_cast<double>(planned[i].bytes)).c_str(),
                     actual.empty() ? "" : HumanBytes(static_cast<double>(actual[i].bytes)).c_str());
    planned_sum += planned[i].bytes;
    if (!actual.empty()) actual_sum += actual[i].bytes;
  }
  return out + StrFormat("  %-12s %14s %14s\n", "in all",
                         HumanBytes(static_cast<double>(planned_sum)).c_str(),
                         actual.empty() ? "" : HumanBytes(static_cast<double>(actual_sum)).c_str());
}

std::string WindowWarning(const Config& c) {
  const double factor = c.ep.ragged_buffer_factor, capacity = c.moe.capacity_factor;
  // Of the balanced load, that which is left where a capacity drops some.
  const double load = capacity > 0 ? std::min(capacity, 1.0) : 1.0;
  if (factor < 0 || factor >= load || c.model.n_routed_experts == 0) return "";
  return StrFormat(
      "ep.ragged_buffer_factor %g: a balanced load alone needs %g. %s will be computed twice, the second time "
      "with rows crossing in %.0f rounds or more",
      factor, load, capacity > 0 ? "Steps with such a load" : "Every step", std::ceil(load / factor));
}

std::string BarsLine(const std::string& validation_prefix, double loss) {
  std::string stem = validation_prefix;
  for (const char* end : {".bin", ".idx"}) {
    if (stem.ends_with(end)) stem.resize(stem.size() - 4);
  }
  if (!stem.ends_with(".heldout")) return "";  // the bars are entropies of that text
  std::optional<DatasetInfo> info;
  try {
    info = FindDatasetInfo(validation_prefix);
  } catch (const Error& e) {  // says nothing of the training that has ended well
    return StrCat("  no bars to compare with: ", e.what(), "\n");
  }
  if (!info) return "";
  const auto bar = [&](const char* name, double nats) {
    return StrFormat("  %-34s %7.4f nats per token: %s\n", name, nats, loss < nats ? "passed" : "not passed");
  };
  return bar("byte bigram table (held-out part)", info->bigram_nats) +
         bar("byte trigram table (held-out part)", info->trigram_nats);
}

}  // namespace yardmaster
