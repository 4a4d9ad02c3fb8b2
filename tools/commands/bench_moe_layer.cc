#include "tools/commands/bench_moe_layer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/philox.h"
#include "src/base/strings.h"
#include "src/comm/ep/local_dispatcher.h"
#include "src/device/arena.h"
#include "src/device/cuda/make_cuda_device.h"
#include "src/nn/moe/moe_layer.h"
#include "src/ops/elementwise.h"

#if YM_HAVE_CUDA
#include "src/device/cuda/cuda_device.h"
#endif

namespace yardmaster {
namespace {

constexpr const char* kUsage = "yardmaster bench moe-layer --help";

MoeConfig Routing(const BenchMoeLayerOptions& o) {
  MoeConfig moe;
  if (o.routing == "balanced") {
    moe.force_routing = "balanced";
  } else if (o.routing.starts_with("skew:")) {
    moe.force_routing = "skewed";
    moe.force_skew = std::strtod(o.routing.c_str() + 5, nullptr);
    const double most = static_cast<double>(o.experts) / static_cast<double>(o.top_k);
    if (!(moe.force_skew >= 1 && moe.force_skew <= most))
      throw ConfigError(StrCat("--routing ", o.routing, ": the skew must be between 1 and experts / top-k = ", most));
  } else if (o.routing != "real") {
    throw ConfigError("unknown --routing '" + o.routing + "'", "", "real, balanced or skew:S");
  }
  return moe;
}

void Validate(const BenchMoeLayerOptions& o) {
  for (const int64_t size : {o.tokens, o.hidden, o.width, o.experts, o.top_k, o.groups, o.top_groups}) {
    if (size < 1) throw ConfigError("every size must be at least 1 (--shared: 0)", "", kUsage);
  }
  if (o.shared < 0) throw ConfigError("--shared must not be negative", "", kUsage);
  if (o.experts % o.groups != 0 || o.top_groups > o.groups || o.top_k > o.top_groups * (o.experts / o.groups))
    throw ConfigError("--groups must divide --experts, and --top-groups hold at least --top-k experts", "", kUsage);
  if (o.weight_gradients != "fp32" && o.weight_gradients != "bf16")
    throw ConfigError("--weight-gradients must be fp32 or bf16, found " + o.weight_gradients);
  if (o.repeats < 3) throw ConfigError("--repeats must be at least 3: a median of fewer means little");
  Routing(o);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

#if YM_HAVE_CUDA

ModelConfig Model(const BenchMoeLayerOptions& o) {
  ModelConfig c;
  c.hidden_size = o.hidden;
  c.moe_intermediate_size = o.width;
  c.n_routed_experts = o.experts;
  c.num_experts_per_tok = o.top_k;
  c.n_group = o.groups;
  c.topk_group = o.top_groups;
  c.n_shared_experts = o.shared;
  c.routed_scaling_factor = 2.5;
  c.initializer_range = 0.02;
  return c;
}

// The layer, its parameters and its arenas on one device; on the dry device it measures them.
class Layer {
 public:
  // `bytes` of the arenas, from high_water() on the dry device; empty: there.
  Layer(const BenchMoeLayerOptions& o, Device* device, const std::vector<size_t>& bytes)
      : options_(o),
        device_(device),
        stream_(device),
        parameters_("parameters", device),
        saved_("saved", device),
        work_("workspace", device),
        dispatcher_(o.experts, o.top_k),
        layer_(list_, "mlp", Model(o), DType::kF32, &dispatcher_, Routing(o)) {
    if (!bytes.empty()) {
      parameters_.Commit(bytes[0]);
      saved_.Commit(bytes[1]);
      work_.Commit(bytes[2]);
    }
    AllocateParameters(list_, types_, parameters_, &parameters_);
    if (o.weight_gradients == "bf16") {
      for (const auto& p : list_.parameters()) {  // in the lower half of their FP32 memory
        if (!p->value_in_accum) p->grad = Tensor(p->grad.data(), DType::kBF16, p->grad.shape());
      }
    }
    x_ = parameters_.Allocate("x", DType::kBF16, {o.tokens, o.hidden});
    y_ = parameters_.Allocate("y", DType::kBF16, {o.tokens, o.hidden});
    dy_ = parameters_.Allocate("dy", DType::kBF16, {o.tokens, o.hidden});
    load_ = parameters_.Allocate("load", DType::kI64, {o.experts});
    overflow_ = parameters_.Allocate("overflow", DType::kI32, {1});
    layer_.set_counts(load_);
  }

  void Initialise() {
    InitialiseParameters(list_, /*seed=*/1, *device_);
    FillNormal(x_, 2);
    FillNormal(dy_, 3);
  }

  void Forward() {
    list_.BeginStep();
    Fill(stream_, 0, load_);
    mb_ = MicroBatch();
    mb_.B = 1, mb_.S = options_.tokens;
    mb_.saved = &saved_;
    mb_.overflow = overflow_;
    Context ctx{stream_, work_, types_};
    s_ = MoeSaved();
    layer_.RouteForward(ctx, mb_, x_, s_);
    layer_.DispatchForward(ctx, mb_, y_, s_);
    layer_.ExpertsForward(ctx, mb_, s_);
    layer_.CombineForward(ctx, mb_, /*residual=*/{}, y_, s_);
  }

  void Backward() {
    Context ctx{stream_, work_, types_};
    layer_.CombineBackward(ctx, mb_, dy_, s_);
    layer_.CombineBackwardWeight(ctx, mb_, s_);
    layer_.ExpertsBackward(ctx, mb_, s_);
    layer_.ExpertsBackwardWeight(ctx, mb_, s_);
    layer_.DispatchBackward(ctx, mb_, s_);
    layer_.RouteBackward(ctx, mb_, s_);
    layer_.RouteBackwardWeight(ctx, mb_, s_);
    saved_.Release(0);
  }

  std::vector<int64_t> Load() const {
    std::vector<int64_t> load(static_cast<size_t>(options_.experts));
    device_->CopyToHost(load.data(), load_.data(), load.size() * sizeof(int64_t));
    return load;
  }
  std::vector<size_t> high_water() const {
    return {parameters_.high_water(), saved_.high_water(), work_.high_water()};
  }

 private:
  void FillNormal(const Tensor& t, uint64_t seed) {
    std::vector<BFloat16> values(static_cast<size_t>(t.elements()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = BFloat16(static_cast<float>(PhiloxNormal(seed, StreamOf("bench moe-layer"), i)));
    device_->CopyFromHost(t.data(), values.data(), values.size() * sizeof(BFloat16));
  }

  const BenchMoeLayerOptions& options_;
  const ComputeTypes types_ = {DType::kBF16, DType::kF32};
  Device* device_;
  Stream stream_;
  Arena parameters_, saved_, work_;
  ParameterList list_;
  LocalDispatcher dispatcher_;
  MoeLayer layer_;
  MicroBatch mb_;
  MoeSaved s_;
  Tensor x_, y_, dy_, load_, overflow_;
};

class Stopwatch {
 public:
  explicit Stopwatch(CudaDevice& device) : device_(device) {}
  void Mark(int i) { Check(cudaEventRecord(events_[i].get(), device_.compute_stream())); }
  double Milliseconds(int from, int to) {
    float ms = 0;
    Check(cudaEventSynchronize(events_[to].get()));
    Check(cudaEventElapsedTime(&ms, events_[from].get(), events_[to].get()));
    return static_cast<double>(ms);
  }

 private:
  CudaEvent Make() {
    CudaEvent event;
    Check(cudaEventCreate(event.address()));
    return event;
  }
  void Check(cudaError_t result) const { device_.Check(result, "bench moe-layer", "event"); }

  CudaDevice& device_;
  CudaEvent events_[3] = {Make(), Make(), Make()};
};

BenchMoeLayerResult Measure(const BenchMoeLayerOptions& o) {
  const std::unique_ptr<Device> dry = MakeDryDevice(DeviceKind::kCuda), device = MakeCudaDevice({});
  Layer plan(o, dry.get(), {});
  plan.Forward();
  plan.Backward();
  Layer layer(o, device.get(), plan.high_water());
  layer.Initialise();
  Stopwatch watch(static_cast<CudaDevice&>(*device));
  BenchMoeLayerResult result;
  result.device = device->description();
  double heat = 0;
  for (int i = -2; i < o.repeats;) {  // two runs choose algorithms
    watch.Mark(0);
    layer.Forward();
    watch.Mark(1);
    layer.Backward();
    watch.Mark(2);
    const double forward = watch.Milliseconds(0, 1), all = watch.Milliseconds(0, 2);
    heat += all;
    if (i >= 0) result.forward_ms.push_back(forward), result.ms.push_back(all);
    if (i >= 0 || i < -1 || heat >= 1e3 * o.heat_seconds) ++i;
  }
  result.load = layer.Load();
  return result;
}

#endif

}  // namespace

double MoeLayerFlops(const BenchMoeLayerOptions& o) {
  return 3.0 * 2.0 * static_cast<double>(o.tokens) * static_cast<double>(o.top_k + o.shared) * 3.0 *
         static_cast<double>(o.hidden) * static_cast<double>(o.width);
}

std::string BenchMoeLayerText(const BenchMoeLayerOptions& o, const BenchMoeLayerResult& r) {
  const double ms = Median(r.ms), forward = Median(r.forward_ms), tflops = MoeLayerFlops(o) / ms * 1e-9;
  const auto [least, most] = std::minmax_element(r.load.begin(), r.load.end());
  if (o.json) {
    return nlohmann::ordered_json{{"device", r.device},
                                  {"tokens", o.tokens},
                                  {"hidden", o.hidden},
                                  {"width", o.width},
                                  {"experts", o.experts},
                                  {"top_k", o.top_k},
                                  {"shared", o.shared},
                                  {"routing", o.routing},
                                  {"weight_gradients", o.weight_gradients},
                                  {"forward_ms", forward},
                                  {"ms", ms},
                                  {"tflops", tflops},
                                  {"load", r.load}}
               .dump(2) +
           "\n";
  }
  std::string out = StrCat(r.device, "\n", o.tokens, " tokens x ", o.hidden, ", ", o.experts, " experts of ", o.width,
                           " (top-", o.top_k, ") + ", o.shared, " shared, routing ", o.routing, " (", *least, " to ",
                           *most, " pairs an expert), weight gradients in ", o.weight_gradients, "\n");
  out += StrFormat("forward             %8.3f ms\nforward + backward  %8.3f ms (median of %zu)  %.0f TFLOP/s\n", forward,
                   ms, r.ms.size(), tflops);
  return out;
}

int RunBenchMoeLayer(const BenchMoeLayerOptions& options) {
  Validate(options);
  const CudaStatus status = CudaAvailability();
  if (status.usable == 0) throw ConfigError("bench moe-layer needs a GPU: " + status.reason);
#if YM_HAVE_CUDA
  std::fputs(BenchMoeLayerText(options, Measure(options)).c_str(), stdout);
#endif
  return 0;
}

void AddBenchMoeLayer(CLI::App& bench, std::function<int()>* command) {
  static BenchMoeLayerOptions o;  // of the one command line of a process
  CLI::App* layer = bench.add_subcommand("moe-layer", "a mixture-of-experts layer, forward and backward");
  layer->add_option("--tokens", o.tokens, "of the batch")->capture_default_str();
  layer->add_option("--hidden", o.hidden, "width of a token")->capture_default_str();
  layer->add_option("--width", o.width, "of an expert")->capture_default_str();
  layer->add_option("--experts", o.experts, "routed ones")->capture_default_str();
  layer->add_option("--top-k", o.top_k, "experts of a token")->capture_default_str();
  layer->add_option("--groups", o.groups, "of experts")->capture_default_str();
  layer->add_option("--top-groups", o.top_groups, "groups of a token")->capture_default_str();
  layer->add_option("--shared", o.shared, "experts for all tokens")->capture_default_str();
  layer->add_option("--routing", o.routing, "real (the layer's own router), balanced or skew:S")
      ->capture_default_str();
  layer->add_option("--weight-gradients", o.weight_gradients, "fp32 or bf16")->capture_default_str();
  layer->add_option("--repeats", o.repeats, "timed runs; at least 3")->capture_default_str();
  layer->add_option("--heat-seconds", o.heat_seconds, "load before them")->capture_default_str();
  layer->add_flag("--json", o.json, "one JSON object instead of lines");
  layer->callback([command] { *command = [] { return RunBenchMoeLayer(o); }; });
}

}  // namespace yardmaster
