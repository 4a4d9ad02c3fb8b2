#include "tools/commands/bench_dispatch.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/error.h"
#include "src/base/philox.h"
#include "src/base/strings.h"
#include "src/comm/ep/cuda/peer_dispatcher.h"
#include "src/comm/ep/cuda/virtual_peers.h"
#include "src/device/arena.h"
#include "src/device/cuda/make_cuda_device.h"
#include "tools/commands/routing_choices.h"

#if YM_HAVE_CUDA
#include "src/device/cuda/cuda_device.h"
#endif

namespace yardmaster {

namespace {

constexpr const char* kUsage = "yardmaster bench dispatch --help";

void Validate(const BenchDispatchOptions& o) {
  if (o.ranks < 1 || o.ranks > 32) throw ConfigError("--ranks must be from 1 to 32", "", kUsage);
  if (o.tokens < 1 || o.hidden < 1) throw ConfigError("--tokens and --hidden must be at least 1", "", kUsage);
  if (o.experts < o.ranks || o.experts % o.ranks != 0)
    throw ConfigError(StrCat("--experts ", o.experts, " is no multiple of --ranks ", o.ranks), "", kUsage);
  if (o.top_k < 1 || o.top_k > o.experts) throw ConfigError("--top-k must be from 1 to the number of experts", "", kUsage);
  if (o.repeats < 3) throw ConfigError("--repeats must be at least 3, so that their median means something", "", kUsage);
  for (const std::string& mode : o.modes) {
    if (mode != "expanded" && mode != "deduplicated")
      throw ConfigError("unknown mode '" + mode + "'", "", "expanded or deduplicated");
  }
  for (const int sms : o.sms) {
    if (sms < 0 || (sms > 0 && sms % o.ranks != 0))
      throw ConfigError(StrCat("--sms ", sms, " is no multiple of --ranks ", o.ranks), "", "0 takes all but four");
  }
}

double RowBytes(const BenchDispatchOptions& o) { return static_cast<double>(o.hidden) * 2; }  // BF16

double MovedBytes(const BenchDispatchOptions& o, const DispatchTraffic& t, const BenchDispatchResult& r) {
  if (r.op == "plan") return 0;
  const int64_t copies = r.mode == "deduplicated" ? 2 * t.copies : 0;
  return static_cast<double>(t.tokens + t.rows + copies) * RowBytes(o);
}

#if YM_HAVE_CUDA

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(const BenchDispatchOptions& options)
      : o_(options), device_(MakeCudaDevice({})), cuda_(static_cast<CudaDevice&>(*device_)), peers_(device_.get(), options.ranks) {
    for (int p = 0; p < o_.ranks; ++p)
      idx_.push_back(RoutingChoices(o_.routing, o_.tokens, o_.experts, o_.top_k, static_cast<uint64_t>(p + 1)));
    traffic_ = CountTraffic(idx_, o_.experts, o_.top_k);
    for (int p = 0; p < o_.ranks; ++p)
      ranks_.push_back(std::make_unique<Rank>(device_.get(), peers_.table(p), cuda_.AddStream()));
    const auto [saved, work] = Plan();
    for (const auto& r : ranks_) r->saved.Commit(saved);
    for (const auto& r : ranks_) r->work.Commit(work);
    std::vector<BFloat16> x(static_cast<size_t>(o_.tokens * o_.hidden));
    for (size_t i = 0; i < x.size(); ++i)  // a few million different values, again and again
      x[i] = i < 3'000'017 ? BFloat16(static_cast<float>(PhiloxUniform(1, StreamOf("bench"), i) - 0.5)) : x[i - 3'000'017];
    for (int p = 0; p < o_.ranks; ++p) {
      Rank& r = *ranks_[static_cast<size_t>(p)];
      Allocate(r);
      r.top = r.saved.Mark();
      device_->CopyFromHost(r.idx.data(), idx_[static_cast<size_t>(p)].data(), static_cast<size_t>(r.idx.bytes()));
      device_->CopyFromHost(r.x.data(), x.data(), x.size() * sizeof(BFloat16));
    }
  }

  std::string description() const { return device_->description(); }
  const DispatchTraffic& traffic() const { return traffic_; }

  // Read + write of a plain copy of 1 GiB.
  double CopyGbs() {
    constexpr size_t kBytes = size_t{1} << 30;
    DeviceBuffer from, to;
    Check(cudaMalloc(from.address(), kBytes));
    Check(cudaMalloc(to.address(), kBytes));
    Check(cudaMemset(from.get(), 0x3C, kBytes));
    const cudaStream_t stream = Handle(0);
    const double ms = Time(4, [&](int p) {
      if (p == 0) Check(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, stream));
    });
    return 2e-6 * static_cast<double>(kBytes) / ms;
  }

  void Heat() {
    for (double spent = 0; spent < 1000 * o_.heat_seconds;) {
      const double ms = Time(8, [&](int p) {
        const Rank& r = *ranks_[static_cast<size_t>(p)];
        Check(cudaMemcpyAsync(r.x_R.data(), r.x.data(), static_cast<size_t>(r.x.bytes()), cudaMemcpyDeviceToDevice, Handle(p)));
      }, 1);
      spent += 8 * std::max(ms, 0.01);
    }
  }

  void Measure(const std::string& mode, int sms, std::vector<BenchDispatchResult>* results) {
    const int all = (cuda_.properties().multiprocessors - 4) / o_.ranks * o_.ranks;
    const int used = sms == 0 ? all : sms;
    if (used < o_.ranks || used > cuda_.properties().multiprocessors)
      throw ConfigError(StrCat(used, " SMs for ", o_.ranks, " ranks on a GPU with ", cuda_.properties().multiprocessors), "", kUsage);
    for (int p = 0; p < o_.ranks; ++p) {
      Rank& r = *ranks_[static_cast<size_t>(p)];
      r.saved.Release(r.top);
      r.work.Release(0);
      r.dispatcher = std::make_unique<PeerDispatcher>(
          Options(p, mode), PeerOptions{.num_sms = used / o_.ranks, .deadline_seconds = 20}, peers_.table(p), device_.get());
    }
    const auto add = [&](const char* op, int calls, const std::function<void(int)>& call) {
      results->push_back({mode, op, used, Time(calls, call)});
      for (const auto& r : ranks_) {
        if (const auto failure = r->dispatcher->Failure()) throw Error(ExitCode::kWatchdog, failure->what);
      }
    };
    add("plan", 8, [&](int p) {
      Rank& r = *ranks_[static_cast<size_t>(p)];
      r.saved.Release(r.top);
      r.dispatcher->Plan(r.stream, r.idx, r.overflow, &r.handle, r.saved, r.work);
    });
    const int calls = used >= 64 ? 4 : 1;
    add("dispatch", calls, [&](int p) {
      Rank& r = *ranks_[static_cast<size_t>(p)];
      r.dispatcher->Dispatch(r.stream, r.handle, r.x, r.w, r.x_R, r.w_R, r.work);
    });
    add("combine", calls, [&](int p) {
      Rank& r = *ranks_[static_cast<size_t>(p)];
      r.dispatcher->Combine(r.stream, r.handle, r.x_R, {}, {}, r.y, r.w_R, r.dw, r.work);
    });
  }

 private:
  struct Rank {
    Rank(Device* device, PeerTable* table, const Stream& s)
        : stream(s), memory(device, table), saved("saved", &memory), work("work", &memory) {}
    Stream stream;
    PeerMemory memory;
    Arena saved, work;
    size_t top = 0;  // of `saved`, below the plan
    std::unique_ptr<PeerDispatcher> dispatcher;
    RoutingHandle handle;
    Tensor idx, overflow, x, w, x_R, w_R, y, dw;
  };

  EpOptions Options(int rank, const std::string& mode) const {
    return {.num_experts = o_.experts,
            .top_k = o_.top_k,
            .ep = o_.ranks,
            .ep_index = rank,
            // Windows just large enough for this routing.
            .ragged_buffer_factor = static_cast<double>(traffic_.most_rows) / static_cast<double>(o_.tokens * o_.top_k),
            .mode = mode == "expanded" ? DispatchMode::kExpanded : DispatchMode::kDeduplicated};
  }

  void Allocate(Rank& r) const {
    const int64_t T = o_.tokens, K = o_.top_k, D = o_.hidden, R = Options(0, "expanded").window_rows(T);
    r.idx = r.saved.Allocate("idx", DType::kI32, {T, K});
    r.overflow = r.saved.Allocate("overflow", DType::kI32, {1});
    r.x = r.saved.Allocate("x", DType::kBF16, {T, D});
    r.w = r.saved.Allocate("w", DType::kF32, {T, K});
    r.x_R = r.saved.Allocate("x_R", DType::kBF16, {R, D});
    r.w_R = r.saved.Allocate("w_R", DType::kF32, {R});
    r.y = r.saved.Allocate("y", DType::kBF16, {T, D});
    r.dw = r.saved.Allocate("dw", DType::kF32, {T, K});
  }

  // Bytes of the two arenas, from a dry run.
  std::pair<size_t, size_t> Plan() const {
    const auto dry = MakeDryDevice(DeviceKind::kCuda);
    const Stream stream(dry.get());
    size_t saved = 0, work = 0;
    for (const std::string& mode : o_.modes) {
      Rank r(dry.get(), nullptr, stream);
      PeerDispatcher dispatcher(Options(0, mode), {}, nullptr, nullptr);
      Allocate(r);
      dispatcher.Plan(stream, r.idx, r.overflow, &r.handle, r.saved, r.work);
      dispatcher.Dispatch(stream, r.handle, r.x, r.w, r.x_R, r.w_R, r.work);
      dispatcher.Combine(stream, r.handle, r.x_R, {}, {}, r.y, r.w_R, r.dw, r.work);
      saved = std::max(saved, r.saved.high_water());
      work = std::max(work, r.work.high_water());
    }
    return {saved, work};
  }

  cudaStream_t Handle(int p) const { return cuda_.StreamOf(ranks_[static_cast<size_t>(p)]->stream.handle()); }

  // Milliseconds of one call on all ranks: the median of `repeats` runs of `calls` calls in a row, after one untimed.
  double Time(int calls, const std::function<void(int)>& call, int repeats = 0) {
    std::vector<double> times;
    for (int i = 0; i <= (repeats > 0 ? repeats : o_.repeats); ++i) {
      Check(cudaDeviceSynchronize());
      Check(cudaEventRecord(begin_.get(), Handle(0)));
      for (int p = 1; p < o_.ranks; ++p) Check(cudaStreamWaitEvent(Handle(p), begin_.get()));
      for (int c = 0; c < calls; ++c) {
        for (int p = 0; p < o_.ranks; ++p) call(p);
      }
      for (int p = 1; p < o_.ranks; ++p) {
        Check(cudaEventRecord(part_.get(), Handle(p)));
        Check(cudaStreamWaitEvent(Handle(0), part_.get()));
      }
      Check(cudaEventRecord(end_.get(), Handle(0)));
      Check(cudaEventSynchronize(end_.get()));
      float ms = 0;
      Check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()));
      if (i > 0) times.push_back(static_cast<double>(ms) / calls);
    }
    return Median(times);
  }

  CudaEvent MakeEvent() {
    CudaEvent event;
    Check(cudaEventCreate(event.address()));
    return event;
  }
  void Check(cudaError_t result) const { cuda_.Check(result, "bench dispatch", "CUDA"); }

  const BenchDispatchOptions& o_;
  std::unique_ptr<Device> device_;
  CudaDevice& cuda_;
  VirtualPeers peers_;
  std::vector<std::vector<int32_t>> idx_;
  DispatchTraffic traffic_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  CudaEvent begin_ = MakeEvent(), end_ = MakeEvent(), part_ = MakeEvent();
};

#endif

}  // namespace

DispatchTraffic CountTraffic(const std::vector<std::vector<int32_t>>& idx, int64_t experts, int64_t top_k) {
  const auto n = static_cast<int64_t>(idx.size());
  const int64_t L = experts / n;
  DispatchTraffic t;
  std::vector<int64_t> window(static_cast<size_t>(n), 0);
  for (int64_t p = 0; p < n; ++p) {
    const std::vector<int32_t>& mine = idx[static_cast<size_t>(p)];
    t.tokens += static_cast<int64_t>(mine.size()) / top_k;
    for (size_t i = 0; i < mine.size(); ++i) {
      const int64_t owner = mine[i] / L;
      const bool first = i % static_cast<size_t>(top_k) == 0 || mine[i - 1] / L != owner;
      ++window[static_cast<size_t>(owner)];
      ++t.rows;
      t.copies += first;
      t.remote_rows += owner != p;
      t.remote_copies += first && owner != p;
    }
  }
  t.most_rows = *std::max_element(window.begin(), window.end());
  return t;
}

std::string BenchDispatchText(const BenchDispatchOptions& o, const std::string& device, double copy_gbs,
                              const DispatchTraffic& t, const std::vector<BenchDispatchResult>& results) {
  const double savings = 1 - static_cast<double>(t.remote_copies) / static_cast<double>(std::max<int64_t>(t.remote_rows, 1));
  const double balanced = static_cast<double>(t.rows) / o.ranks;
  const auto gbs = [](double bytes, double ms) { return ms > 0 ? 1e-6 * bytes / ms : 0; };
  const auto logical = [&](const BenchDispatchResult& r) {
    return r.op == "plan" ? 0 : gbs(static_cast<double>(t.rows) * RowBytes(o) / o.ranks, r.ms);
  };
  const auto wire = [&](const BenchDispatchResult& r) {
    const int64_t rows = r.mode == "deduplicated" ? t.remote_copies : t.remote_rows;
    return r.op == "plan" ? 0 : gbs(static_cast<double>(rows) * RowBytes(o) / o.ranks, r.ms);
  };
  if (o.json) {
    nlohmann::ordered_json out = {{"device", device},
                                  {"ranks", o.ranks},
                                  {"tokens", o.tokens},
                                  {"top_k", o.top_k},
                                  {"experts", o.experts},
                                  {"hidden", o.hidden},
                                  {"routing", o.routing},
                                  {"copy_gbs", copy_gbs},
                                  {"rows", t.rows},
                                  {"copies", t.copies},
                                  {"remote_rows", t.remote_rows},
                                  {"remote_copies", t.remote_copies},
                                  {"dedup_savings", savings},
                                  {"results", nlohmann::json::array()}};
    for (const BenchDispatchResult& r : results) {
      const double moved = gbs(MovedBytes(o, t, r), r.ms);
      out["results"].push_back({{"mode", r.mode},
                                {"op", r.op},
                                {"sms", r.sms},
                                {"ms", r.ms},
                                {"moved_gbs", moved},
                                {"of_copy", moved / copy_gbs},
                                {"logical_gbs", logical(r)},
                                {"wire_gbs", wire(r)}});
    }
    return out.dump(2) + "\n";
  }
  char line[200];
  std::string text = device + "\n";
  std::snprintf(line, sizeof(line), "%d virtual ranks x %lld tokens, top-%lld of %lld, hidden %lld, BF16, routing %s\n", o.ranks,
                static_cast<long long>(o.tokens), static_cast<long long>(o.top_k), static_cast<long long>(o.experts),
                static_cast<long long>(o.hidden), o.routing.c_str());
  text += line;
  std::snprintf(line, sizeof(line),
                "fullest window %.2f x the mean; to other ranks: %lld rows, %lld after deduplication (%.0f %% saved)\n",
                static_cast<double>(t.most_rows) / balanced, static_cast<long long>(t.remote_rows),
                static_cast<long long>(t.remote_copies), 100 * savings);
  text += line;
  std::snprintf(line, sizeof(line), "plain copy %.0f GB/s (read + write); moved: bytes that must be read and written; others for each rank\n",
                copy_gbs);
  text += line;
  std::snprintf(line, sizeof(line), "%-13s %-9s %4s %9s %11s %8s %13s %10s\n", "mode", "op", "SMs", "ms", "moved GB/s", "of copy",
                "logical GB/s", "wire GB/s");
  text += line;
  for (const BenchDispatchResult& r : results) {
    const double moved = gbs(MovedBytes(o, t, r), r.ms);
    std::snprintf(line, sizeof(line), "%-13s %-9s %4d %9.3f", r.mode.c_str(), r.op.c_str(), r.sms, r.ms);
    text += line;
    if (moved > 0) {
      std::snprintf(line, sizeof(line), " %11.0f %6.1f %% %13.0f %10.0f", moved, 100 * moved / copy_gbs, logical(r), wire(r));
      text += line;
    }
    text += "\n";
  }
  return text;
}

int RunBenchDispatch(const BenchDispatchOptions& options) {
  Validate(options);
  RoutingChoices(options.routing, 1, options.experts, options.top_k, 1);  // throws here, GPU or not
  VirtualPeers::PrepareProcess();
  const CudaStatus status = CudaAvailability();
  if (status.usable == 0) throw ConfigError("bench dispatch needs a GPU: " + status.reason);
#if YM_HAVE_CUDA
  Bench bench(options);
  bench.Heat();
  std::vector<BenchDispatchResult> results;
  const double copy_gbs = bench.CopyGbs();
  for (const std::string& mode : options.modes) {
    for (const int sms : options.sms) bench.Measure(mode, sms, &results);
  }
  std::fputs(BenchDispatchText(options, bench.description(), copy_gbs, bench.traffic(), results).c_str(), stdout);
#endif
  return 0;
}

}  // namespace yardmaster
