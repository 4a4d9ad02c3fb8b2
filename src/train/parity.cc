#include "src/train/parity.h"

#include <deque>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>

#include "src/base/log.h"
#include "src/device/cuda/make_cuda_device.h"
#include "src/hf/hf_model_config.h"
#include "src/hf/hf_transfer.h"
#include "src/model/standalone.h"
#include "src/ops/adamw.h"
#include "src/ops/step_control.h"
#include "src/train/parity_report.h"
#include "src/train/routing_flips.h"

namespace yardmaster {
namespace {

ComputeTypes TypesOf(const ParityOptions& options) {
  if (options.device == "cuda" && options.precision == "bf16") return {DType::kBF16, DType::kF32};
  if (options.precision == "fp32") return {DType::kF32, DType::kF32};
  if (options.precision == "fp64") return {DType::kF64, DType::kF64};
  throw ConfigError(StrCat("parity on the ", options.device, " device does not take ", options.precision), "--precision", options.device == "cuda" ? "use bf16, fp32 or fp64" : "use fp32 or fp64");
}

std::unique_ptr<Device> MakeDevice(const ParityOptions& options) {
  if (options.device == "cuda") return MakeCudaDevice({});
  if (options.device == "cpu") return MakeCpuDevice({.threads = static_cast<int>(options.threads)});
  throw ConfigError(StrCat("there is no device ", options.device), "--device", "use cpu or cuda");
}

ParityTolerances TolerancesOf(const ParityOptions& options) {
  if (options.precision == "bf16") {
    ParityTolerances t = ParityTolerances::Bf16();
    // A flipped choice moves all of a token's gradient from one expert to another: flips are judged instead.
    if (options.route_from.empty()) t.gradients = t.all_gradients = -1;
    return t;
  }
  return options.device == "cuda" ? ParityTolerances::OtherDevice() : ParityTolerances();
}

std::vector<int32_t> Ints(const SafetensorsFile& file, const std::string& name, const Shape& shape) {
  if (!file.Has(name)) throw DataError(StrCat(name, " is missing"), file.path());
  const Tensor t = file.Get(name);
  if (t.dtype() != DType::kI32 || !(t.shape() == shape)) {
    throw DataError(StrCat(name, " is ", DTypeName(t.dtype()), " ", t.shape(), ", expected I32 ", shape),
                    file.path());
  }
  const int32_t* p = t.as<int32_t>();
  return {p, p + t.elements()};
}

void CheckRange(const std::vector<int32_t>& values, int64_t low, int64_t end, const std::string& name,
                const std::string& path) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < low || values[i] >= end) {
      throw DataError(StrCat(name, " holds ", values[i], " at ", i, ", outside [", low, ", ", end, ")"),
                      path);
    }
  }
}

// Host memory for everything that goes into the file, in the order it was made.
class Results {
 public:
  Tensor Add(const std::string& name, DType dtype, const Shape& shape) {
    owned_.emplace_back(dtype, shape);
    list_.push_back({name, owned_.back().view()});
    return list_.back().tensor;
  }
  void AddFromDevice(const std::string& name, const Tensor& x, const Shape& shape, Device& device) {
    device.CopyToHost(Add(name, x.dtype(), shape).data(), x.data(), static_cast<size_t>(x.bytes()));
  }
  void Adopt(const std::string& name, HostTensor tensor) {
    owned_.push_back(std::move(tensor));
    list_.push_back({name, owned_.back().view()});
  }
  const std::vector<NamedTensor>& list() const { return list_; }

 private:
  std::deque<HostTensor> owned_;  // views into it stay valid as it grows
  std::vector<NamedTensor> list_;
};

// torch.optim.AdamW on one batch, as the reference ran it: the same decay on every parameter.
class AdamWRun {
 public:
  AdamWRun(const Registry& registry, ComputeTypes types, Device& device)
      : device_(device), memory_("optimizer", &device) {
    Layout(registry, types);
    memory_.Release(0);
    memory_.Commit(memory_.high_water());
    Layout(registry, types);
    StepState state;
    device.CopyFromHost(state_.data(), &state, sizeof(state));
    WriteSchedule(lr_, 1e-3);
    WriteSchedule(bias_speed_, 0);
  }

  // After a backward: judges, updates, and returns loss and gradient norm before it.
  StepState Step(const Context& ctx, const Registry& registry, const Tensor& loss_sum, double loss_scale,
                 int64_t tokens) {
    int64_t at = 0;
    for (const auto& p : registry.parameters()) {
      const int64_t n = NumNormChunks(p->grad.shape());
      SumSquares(ctx.stream, p->grad, partials_.Slice(at, at + n));
      at += n;
    }
    JudgeStep(ctx.stream, {.partials = partials_,
                           .loss_sum = loss_sum,
                           .loss_scale = loss_scale,
                           .clip_norm = 1.0,
                           .learning_rate = lr_,
                           .bias_speed = bias_speed_,
                           .state = state_});
    AdamWMulti(ctx.stream, tensors_, {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}, state_);
    FinishStep(ctx.stream, tokens, state_);
    StepState state;
    device_.CopyToHost(&state, state_.data(), sizeof(state));
    return state;
  }

 private:
  void Layout(const Registry& registry, ComputeTypes types) {
    tensors_.clear();
    int64_t chunks = 0;
    for (const auto& p : registry.parameters()) {
      AdamWTensor t{.master = p->master,
                    .weight = {},
                    .grad = p->grad,
                    .m = memory_.Allocate("m", types.accum, p->master.shape()),
                    .v = memory_.Allocate("v", types.accum, p->master.shape()),
                    .weight_decay = 0.1};
      if (p->has_rounded_value()) t.weight = p->value;
      t.copies = p->copies;
      if (t.m.data() != nullptr) {
        const HostTensor zeros(types.accum, t.m.shape());
        device_.CopyFromHost(t.m.data(), zeros.view().data(), static_cast<size_t>(t.m.bytes()));
        device_.CopyFromHost(t.v.data(), zeros.view().data(), static_cast<size_t>(t.v.bytes()));
      }
      tensors_.push_back(t);
      chunks += NumNormChunks(p->grad.shape());
    }
    partials_ = memory_.Allocate("norm partials", DType::kF64, {chunks});
    lr_ = memory_.Allocate("learning rate", DType::kU8, {static_cast<int64_t>(sizeof(DeviceSchedule))});
    bias_speed_ = memory_.Allocate("bias speed", DType::kU8, {static_cast<int64_t>(sizeof(DeviceSchedule))});
    state_ = memory_.Allocate("step state", DType::kU8, {static_cast<int64_t>(sizeof(StepState))});
  }

  void WriteSchedule(const Tensor& to, double value) {
    DeviceSchedule s;
    s.num_segments = 1;
    s.until_tokens[0] = std::numeric_limits<int64_t>::max();
    s.from[0] = s.to[0] = value;
    device_.CopyFromHost(to.data(), &s, sizeof(s));
  }

  Device& device_;
  Arena memory_;
  std::vector<AdamWTensor> tensors_;
  Tensor partials_, lr_, bias_speed_, state_;
};

// routing.<layer> of another file, as device tensors by layer.
struct ForcedRouting {
  ForcedRouting(const std::string& path, const ModelConfig& c, int64_t T, Device& device)
      : memory("forced routing", &device) {
    const SafetensorsFile file(path, ExitCode::kData);
    const Shape shape{T, c.num_experts_per_tok};
    for (const bool commit : {false, true}) {
      if (commit) memory.Commit(memory.high_water());
      const int64_t layers = c.num_hidden_layers + c.num_nextn_predict_layers;
      by_layer.assign(static_cast<size_t>(layers), Tensor());
      for (int64_t layer = 0; layer < layers; ++layer) {
        if (!c.IsMoeLayer(layer)) continue;
        Tensor& to = by_layer[static_cast<size_t>(layer)] = memory.Allocate("idx", DType::kI32, shape);
        if (!commit) continue;
        // A module of multi-token prediction routes otherwise with another input.
        const bool pre_norm = layer >= c.num_hidden_layers && c.mtp_input == "pre_norm";
        std::string name = StrCat("routing.", layer, pre_norm ? ".pre_norm" : "");
        if (!file.Has(name)) name = StrCat("routing.", layer);
        const std::vector<int32_t> idx = Ints(file, name, shape);
        CheckRange(idx, 0, c.n_routed_experts, name, path);
        for (size_t i = 1; i < idx.size(); ++i) {
          if (static_cast<int64_t>(i) % shape[1] != 0 && idx[i] <= idx[i - 1]) {
            throw DataError(StrCat(name, " is not in ascending expert id at ", i), path);
          }
        }
        device.CopyFromHost(to.data(), idx.data(), idx.size() * sizeof(int32_t));
      }
      if (!commit) memory.Release(0);
    }
  }
  Arena memory;
  std::vector<Tensor> by_layer;
};

}  // namespace

namespace {

// Whether an entry of the reference belongs to the other input of multi-token prediction.
bool OfAnotherRun(const std::string& name, const ModelConfig& c) {
  if (c.num_nextn_predict_layers == 0) return false;
  if (name.starts_with("mtp.")) return !name.starts_with("mtp." + c.mtp_input + ".");
  if (c.mtp_input == "post_norm") return name.ends_with(".pre_norm");
  for (int64_t d = 0; d < c.num_nextn_predict_layers; ++d) {
    const int64_t layer = c.num_hidden_layers + d;
    if (name == StrCat("routing.", layer) || name == StrCat("routing_weight.", layer)) return true;
  }
  return false;
}

// aux.per_layer and total, from what the run's only micro-batch reported.
void AddAux(const StandaloneModel& run, const ModelConfig& config, double coefficient, DType type,
            Device& device, Results* results) {
  const Tensor sums = run.accumulators().sums;
  HostTensor host(sums.dtype(), sums.shape());
  device.CopyToHost(host.view().data(), sums.data(), static_cast<size_t>(sums.bytes()));
  const Tensor per_layer = results->Add("aux.per_layer", type, {sums.dim(0) - 1});
  const Tensor total = results->Add("total", type, {1});
  double sum = 0;
  DispatchFloat(type, [&]<class F>() {
    for (int64_t m = 0; m + 1 < sums.dim(0); ++m) {
      const double loss = static_cast<double>(config.num_experts_per_tok) *
                          host.as<double>()[(m + 1) * kStepSums + kMicroBatchBalance];
      per_layer.as<F>()[m] = static_cast<F>(loss);
      sum += loss;
    }
    *total.as<F>() = static_cast<F>(run.loss() + coefficient * sum);
  });
}

// The scores that each MoE layer chose by, with its bias, by the name of its routing.
class ChoiceScores {
 public:
  ChoiceScores(const Registry& registry, Device& device) : registry_(registry), device_(device) {}

  void Add(int64_t layer, const std::string& routing, const Tensor& scores) {
    std::vector<double>& choice = by_routing_[routing] = Values(scores);
    for (const auto& b : registry_.buffers()) {
      if (b->name.find(StrCat("layers.", layer, ".")) == std::string::npos ||
          !b->name.ends_with(".e_score_correction_bias"))
        continue;
      const std::vector<double> bias = Values(b->value);
      for (size_t i = 0; i < choice.size(); ++i) choice[i] += bias[i % bias.size()];
    }
  }

  // A row for each layer in which tokens chose otherwise than the reference, or with `forced` would have.
  std::vector<ParityRow> Rows(const ModelConfig& config, const std::vector<NamedTensor>& ours,
                              const SafetensorsFile& expected, int64_t sequence, bool forced,
                              double tolerance) const {
    std::vector<ParityRow> rows;
    std::vector<bool> changed;
    int64_t choices = 0;
    for (const NamedTensor& t : ours) {  // layer by layer
      const auto choice = by_routing_.find(t.name);
      if (choice == by_routing_.end() || !expected.Has(t.name)) continue;
      const std::vector<int32_t> theirs = Ints(expected, t.name, t.tensor.shape());
      const int32_t* p = t.tensor.as<int32_t>();
      const RoutingFlips flips =
          FindFlips(config, choice->second, {p, p + t.tensor.elements()}, theirs, sequence, forced, &changed);
      choices += t.tensor.dim(0);
      if (flips.tokens == 0) continue;
      std::string note = StrCat(flips.tokens, forced ? " tokens of " : " flips in ", t.tensor.dim(0),
                                forced ? " would choose otherwise" : " tokens");
      if (flips.later > 0) note += StrCat(", ", flips.later, " of them behind a flip of an earlier layer, not judged");
      if (flips.token >= 0) note += StrCat("; largest margin at token ", flips.token);
      rows.push_back({StrCat(t.name, " margin"), flips.largest_margin, tolerance, note,
                      !(flips.largest_margin <= tolerance)});
    }
    if (rows.empty() && choices > 0)
      rows.push_back({"routing margin", 0, tolerance, StrCat("no flips in ", choices, " choices of a token"), false});
    return rows;
  }

 private:
  std::vector<double> Values(const Tensor& x) const {
    HostTensor host(x.dtype(), x.shape());
    device_.CopyToHost(host.view().data(), x.data(), static_cast<size_t>(x.bytes()));
    std::vector<double> out(static_cast<size_t>(x.elements()));
    DispatchFloat(x.dtype(), [&]<class F>() {
      for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(host.as<F>()[i]);
    });
    return out;
  }

  Registry registry_;
  Device& device_;
  std::map<std::string, std::vector<double>> by_routing_;
};

}  // namespace

int RunParity(const ParityOptions& options) {
  const ComputeTypes types = TypesOf(options);
  if (options.steps < 0 || options.steps > 10000)
    throw ConfigError(StrCat("must be from 0 to 10000, found ", options.steps), "--steps");
  std::error_code ignored;  // of paths that do not exist: they are named when they are opened
  if (std::filesystem::equivalent(DirName(options.out), options.hf_dir, ignored)) {
    for (const char* reference : {"model", "config", "expected", "grads"}) {
      if (BaseName(options.out).starts_with(reference))
        throw ConfigError("would replace a file of the reference", StrCat("--out ", options.out), "choose another name");
    }
  }
  const HfCheckpoint checkpoint(options.hf_dir);
  if (options.mtp_input != "post_norm" && options.mtp_input != "pre_norm")
    throw ConfigError(StrCat("must be post_norm or pre_norm, found ", options.mtp_input), "--mtp-input");
  ModelConfig config = LoadHfModelConfig(checkpoint);
  config.mtp_input = options.mtp_input;
  const std::string expected_path = JoinPath(options.hf_dir, "expected.safetensors");
  const SafetensorsFile expected(expected_path, ExitCode::kData);
  if (!expected.Has("tokens") || expected.Get("tokens").shape().rank() != 2) {
    throw DataError("tokens [B, S] is missing", expected_path);
  }
  const Shape batch = expected.Get("tokens").shape();
  const int64_t B = batch[0], S = batch[1], T = B * S;
  const std::vector<int32_t> tokens = Ints(expected, "tokens", batch),
                             targets = Ints(expected, "targets", batch);
  CheckRange(tokens, 0, config.vocab_size, "tokens", expected_path);
  CheckRange(targets, -1, config.vocab_size, "targets", expected_path);

  const std::unique_ptr<Device> device = MakeDevice(options);
  // Hugging Face's balance loss is K times ours: its load fractions sum to K.
  const double aux = HfAuxLossCoefficient(checkpoint);
  MoeConfig moe;
  moe.micro_batch_balance_weight = aux * static_cast<double>(config.num_experts_per_tok);
  StandaloneModel run(config, {.types = types, .B = B, .S = S, .logits = true, .moe = moe}, *device);
  const HfNaming naming = HfNamingOf(config.model_type);
  ImportHf(run.registry(), checkpoint, *device, naming);
  run.SetBatch(tokens, targets);
  std::optional<ForcedRouting> forced;
  if (!options.route_from.empty()) {
    forced.emplace(options.route_from, config, T, *device);
    run.micro_batch().forced_routing = &forced->by_layer;
  }
  LogInfo(StrCat("parity of ", options.hf_dir, ": ", B, " x ", S, " tokens, ", options.precision, " on ",
                 device->description()));

  Results results;
  ForwardTaps taps;
  taps.logits = run.logits();
  taps.hidden = [&](int64_t layer, const Tensor& h) {
    results.AddFromDevice(StrCat("hidden.", layer), h, {B, S, config.hidden_size}, *device);
  };
  taps.routing = [&](int64_t layer, const Tensor& idx, const Tensor& w) {
    const bool pre_norm = layer >= config.num_hidden_layers && config.mtp_input == "pre_norm";
    for (const char* suffix : {"", ".pre_norm"}) {
      if (*suffix != 0 && !pre_norm) continue;
      results.AddFromDevice(StrCat("routing.", layer, suffix), idx, idx.shape(), *device);
      results.AddFromDevice(StrCat("routing_weight.", layer, suffix), w, w.shape(), *device);
    }
  };
  ChoiceScores choice(run.registry(), *device);
  taps.scores = [&](int64_t layer, const Tensor& scores) {
    const bool pre_norm = layer >= config.num_hidden_layers && config.mtp_input == "pre_norm";
    choice.Add(layer, StrCat("routing.", layer, pre_norm ? ".pre_norm" : ""), scores);
  };
  taps.mtp_logits = run.mtp_logits();
  run.Forward(&taps);
  run.Backward();
  results.AddFromDevice("logits", run.logits(), {B, S, config.vocab_size}, *device);
  const Tensor loss = results.Add("loss", types.accum, {1});
  DispatchFloat(types.accum, [&]<class F>() { *loss.as<F>() = static_cast<F>(run.loss()); });
  if (aux != 0) AddAux(run, config, aux, types.accum, *device, &results);
  for (int64_t d = 0; d < config.num_nextn_predict_layers; ++d) {
    results.AddFromDevice(StrCat("mtp.", config.mtp_input, ".logits", d > 0 ? StrCat(".", d + 1) : ""),
                          run.mtp_logits()[static_cast<size_t>(d)], {B, S, config.vocab_size}, *device);
  }
  if (config.num_nextn_predict_layers > 0) {
    const Tensor mtp = results.Add(StrCat("mtp.", config.mtp_input, ".loss"), types.accum, {1});
    DispatchFloat(types.accum, [&]<class F>() { *mtp.as<F>() = static_cast<F>(run.mtp_loss()); });
  }
  for (auto& [name, gradient] : ExportHf(run.registry(), HfSource::kGradients, *device, naming)) {
    results.Adopt("grad." + name, std::move(gradient));
  }

  const Tensor losses = results.Add("adamw.loss", DType::kF64, {options.steps});
  const Tensor norms = results.Add("adamw.grad_norm", DType::kF64, {options.steps});
  AdamWRun adamw(run.registry(), types, *device);
  for (int64_t step = 0; step < options.steps; ++step) {
    // The file's routing is that of the first weights; afterwards the reference routed anew, and so does this
    // run.
    if (step > 0) run.micro_batch().forced_routing = nullptr;
    run.BeginStep();
    run.Forward();
    run.Backward();
    const StepState state = adamw.Step(run.context(), run.registry(), run.accumulators().loss_sum,
                                       run.micro_batch().grad_scale, T);
    losses.as<double>()[step] = state.loss;
    norms.as<double>()[step] = state.grad_norm;
  }

  WriteSafetensors(options.out, results.list(), {{"format", "pt"}}, /*fsync=*/false);
  // The reference of a pre_norm run stands beside that of the other, under names of its own.
  const bool pre_norm = config.num_nextn_predict_layers > 0 && config.mtp_input == "pre_norm";
  const std::string grads_path =
      JoinPath(options.hf_dir, pre_norm ? "grads_pre_norm.safetensors" : "grads.safetensors");
  std::optional<SafetensorsFile> grads;
  if (PathExists(grads_path)) {
    grads.emplace(grads_path, ExitCode::kData);
  } else {
    LogWarning(StrCat(grads_path, ": no such file: gradients are written, but compared with nothing"));
  }
  std::vector<ParityRow> rows =
      CompareParity(results.list(), expected, grads ? &*grads : nullptr, TolerancesOf(options),
                    [&](const std::string& name) { return OfAnotherRun(name, config); });
  for (ParityRow& row : choice.Rows(config, results.list(), expected, S, forced.has_value(),
                                    TolerancesOf(options).flip_margin))
    rows.push_back(std::move(row));
  LogInfo(ParityTable(rows));
  LogInfo(StrCat("written: ", options.out));
  for (const ParityRow& row : rows) {
    if (row.failed) return 1;
  }
  return 0;
}

}  // namespace yardmaster
