#include "tools/commands/bench_peers.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/base/error.h"
#include "src/base/philox.h"
#include "src/base/strings.h"
#include "src/device/arena.h"
#include "src/device/cuda/make_cuda_device.h"
#include "tools/commands/routing_choices.h"

#if YM_HAVE_CUDA
#include "src/comm/ep/cuda/make_peers.h"
#include "src/comm/ep/cuda/nccl_dispatcher.h"
#include "src/comm/ep/cuda/peer_dispatcher.h"
#include "src/comm/nccl/nccl_communicator.h"
#include "src/comm/nccl/nccl_world.h"
#include "src/device/cuda/cuda_device.h"
#endif

namespace yardmaster {
namespace {

constexpr const char* kUsage = "yardmaster bench peers --help";

void Validate(const BenchPeersOptions& o, int ranks) {
  if (o.tokens < 1 || o.hidden < 8 || o.hidden % 8 != 0)
    throw ConfigError("--tokens must be at least 1 and --hidden a multiple of 8", "", kUsage);
  if (ranks < 2)
    throw ConfigError("bench peers needs several ranks", "", "mpirun -n 2 yardmaster bench peers");
  if (o.experts < ranks || o.experts % ranks != 0)
    throw ConfigError(StrCat("--experts ", o.experts, " is no multiple of the ", ranks, " ranks"), "",
                      kUsage);
  if (o.top_k < 1 || o.top_k > o.experts)
    throw ConfigError("--top-k must be from 1 to the number of experts", "", kUsage);
  if (o.repeats < 3)
    throw ConfigError("--repeats must be at least 3, so that their median means something", "", kUsage);
  for (const int sms : o.sms) {
    if (sms < 1 || sms > 1024)
      throw ConfigError(StrCat("--sms ", sms, " is no number of multiprocessors"), "", kUsage);
  }
}

#if YM_HAVE_CUDA

struct Result {
  std::string what;
  int sms = 0;
  double ms = 0, wire_gbs = 0, of_stores = 0;
};

class Bench {
 public:
  Bench(const BenchPeersOptions& o, MpiWorld* world)
      : o_(o),
        world_(world),
        n_(world->size()),
        me_(world->rank()),
        agreement_(world->MakeAgreement()),
        device_(MakeCudaDevice({.index = world->local_rank() % CudaAvailability().usable, .rank = me_})),
        cuda_(static_cast<CudaDevice&>(*device_)),
        nccl_(world, agreement_.get(), device_.get(),
              {.share_device = world->local_size() > CudaAvailability().usable, .timeout_seconds = 60}),
        group_(nccl_.Group(All(), "ep")),
        control_(world->WorldGroup()),
        stream_(device_.get()) {
    const PeersWanted wanted{.way = o.way == "ipc"       ? PeersWanted::Way::kIpc
                                    : o.way == "windows" ? PeersWanted::Way::kWindows
                                                         : PeersWanted::Way::kAny,
                             .host = world->host()};
    table_ = MakePeers(wanted, device_.get(), group_.get(), control_.get(), &how_);
    if (!table_) throw ConfigError("no peer memory: " + how_, "--way", kUsage);
    memory_ = std::make_unique<PeerMemory>(device_.get(), table_.get());
    cuda_.Check(cudaEventCreate(begin_.address()), "bench", "cudaEventCreate");
    cuda_.Check(cudaEventCreate(end_.address()), "bench", "cudaEventCreate");
    CountRoutes();
  }

  std::vector<Result> Run() {
    std::vector<Result> results;
    Stores(&results);
    for (const DispatchMode mode : {DispatchMode::kExpanded, DispatchMode::kDeduplicated}) {
      for (const int sms : o_.sms) {
        PeerDispatcher dispatcher(Options(mode), {.num_sms = sms, .deadline_seconds = 30}, table_.get(),
                                  device_.get());
        MeasureDispatcher(dispatcher, mode, sms, memory_.get(), &results);
        dispatcher.ThrowIfFailed();
      }
    }
    if (o_.nccl) {
      NcclDispatcher segments(Options(DispatchMode::kExpanded), false,
                              static_cast<NcclCommunicator*>(group_.get()));
      MeasureDispatcher(segments, DispatchMode::kExpanded, 0, device_.get(), &results);
    }
    return results;
  }

  std::string Heading() const {
    return StrFormat(
        "%s\n%d ranks x %lld tokens, top-%lld of %lld, hidden %lld, BF16, routing %s; peer memory by %s\n"
        "to other ranks, of each rank: %.0f rows, %.0f after deduplication (%.0f %% saved)\n",
        device_->description().c_str(), n_, static_cast<long long>(o_.tokens),
        static_cast<long long>(o_.top_k), static_cast<long long>(o_.experts),
        static_cast<long long>(o_.hidden), o_.routing.c_str(), how_.c_str(), remote_rows_, remote_copies_,
        100 * (1 - remote_copies_ / std::max(remote_rows_, 1.0)));
  }

 private:
  std::vector<int64_t> All() const {
    std::vector<int64_t> ranks(static_cast<size_t>(n_));
    std::iota(ranks.begin(), ranks.end(), int64_t{0});
    return ranks;
  }

  // Rows and deduplicated rows that leave a rank, on the average, and the fullest window.
  void CountRoutes() {
    const int64_t L = o_.experts / n_;
    std::vector<int64_t> window(static_cast<size_t>(n_), 0);
    for (int p = 0; p < n_; ++p) {
      const std::vector<int32_t> idx =
          RoutingChoices(o_.routing, o_.tokens, o_.experts, o_.top_k, static_cast<uint64_t>(p + 1));
      if (p == me_) idx_ = idx;
      for (size_t i = 0; i < idx.size(); ++i) {
        const int64_t owner = idx[i] / L;
        const bool first = i % static_cast<size_t>(o_.top_k) == 0 || idx[i - 1] / L != owner;
        ++window[static_cast<size_t>(owner)];
        if (owner == p) continue;
        remote_rows_ += 1.0 / n_;
        remote_copies_ += first ? 1.0 / n_ : 0;
      }
    }
    fullest_ = *std::max_element(window.begin(), window.end());
  }

  EpOptions Options(DispatchMode mode) const {
    // Windows with a little room over this routing; segments of NCCL need the fullest pair of ranks.
    const double balanced = static_cast<double>(o_.tokens * o_.top_k);
    return {.num_experts = o_.experts,
            .top_k = o_.top_k,
            .ep = n_,
            .ep_index = me_,
            .ragged_buffer_factor =
                std::min(1.1 * static_cast<double>(fullest_) / balanced, static_cast<double>(n_)),
            .mode = mode};
  }

  // Milliseconds of one call of the slowest rank: median of `repeats` runs of `calls` calls, after one
  // untimed.
  double Time(int calls, const std::function<void()>& call) {
    std::vector<double> times;
    const cudaStream_t s = cuda_.compute_stream();
    for (int i = 0; i <= o_.repeats; ++i) {
      cuda_.Check(cudaDeviceSynchronize(), "bench", "cudaDeviceSynchronize");
      agreement_->AllGather("");
      cuda_.Check(cudaEventRecord(begin_.get(), s), "bench", "cudaEventRecord");
      for (int c = 0; c < calls; ++c) call();
      cuda_.Check(cudaEventRecord(end_.get(), s), "bench", "cudaEventRecord");
      cuda_.Check(cudaEventSynchronize(end_.get()), "bench", "cudaEventSynchronize");
      float ms = 0;
      cuda_.Check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "bench", "cudaEventElapsedTime");
      double slowest = 0;
      for (const std::string& t : agreement_->AllGather(StrFormat("%.9g", static_cast<double>(ms) / calls)))
        slowest = std::max(slowest, std::strtod(t.c_str(), nullptr));
      if (i > 0) times.push_back(slowest);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  void Stores(std::vector<Result>* results) {
    constexpr int64_t kBytes = int64_t{256} << 20;
    char* to_me = static_cast<char*>(table_->Allocate(kBytes));
    static_cast<void>(to_me);
    char* to_next = table_->region(table_->regions() - 1).base[static_cast<size_t>((me_ + 1) % n_)];
    const std::unique_ptr<void, std::function<void(void*)>> from(device_->Allocate(kBytes),
                                                                 [this](void* p) { device_->Free(p); });
    std::vector<uint32_t> values(kBytes / 4);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint32_t>(i * 2654435761u + me_);
    device_->CopyFromHost(from.get(), values.data(), kBytes);
    const cudaStream_t s = cuda_.compute_stream();
    const auto add = [&](const char* what, int sms, const std::function<void()>& call) {
      const double ms = Time(4, call);
      results->push_back({what, sms, ms, 1e-6 * kBytes / ms, 0});
    };
    add("copy engine", 0, [&] {
      cuda_.Check(cudaMemcpyAsync(to_next, from.get(), kBytes, cudaMemcpyDefault, s), "bench",
                  "cudaMemcpyAsync");
    });
    for (const int sms : o_.sms) {
      add("stores", sms, [&] { StoreToPeer(stream_, from.get(), to_next, kBytes, sms); });
      stores_[sms] = results->back().wire_gbs;
    }
    if (!o_.nccl) return;
    auto& comm = static_cast<NcclCommunicator&>(*group_);
    const std::unique_ptr<void, std::function<void(void*)>> in(device_->Allocate(kBytes),
                                                               [this](void* p) { device_->Free(p); });
    add("NCCL send and receive", 0, [&] {
      comm.Exchange(stream_, {{(me_ + 1) % n_, from.get(), kBytes}},
                    {{(me_ + n_ - 1) % n_, in.get(), kBytes}}, "bench");
    });
  }

  struct Tensors {
    Tensor idx, overflow, x, w, x_R, w_R, y, dw;
  };
  Tensors Allocate(Arena& saved, int64_t R) const {
    const int64_t T = o_.tokens, K = o_.top_k, D = o_.hidden;
    return {saved.Allocate("idx", DType::kI32, {T, K}),  saved.Allocate("overflow", DType::kI32, {1}),
            saved.Allocate("x", DType::kBF16, {T, D}),   saved.Allocate("w", DType::kF32, {T, K}),
            saved.Allocate("x_R", DType::kBF16, {R, D}), saved.Allocate("w_R", DType::kF32, {R}),
            saved.Allocate("y", DType::kBF16, {T, D}),   saved.Allocate("dw", DType::kF32, {T, K})};
  }

  void MeasureDispatcher(Dispatcher& dispatcher, DispatchMode mode, int sms, Device* memory,
                         std::vector<Result>* results) {
    const int64_t R = dispatcher.window_rows(o_.tokens);
    const auto dry = MakeDryDevice(DeviceKind::kCuda);
    Arena dry_saved("saved", dry.get()), dry_work("work", dry.get());
    RoutingHandle handle;
    const auto run = [&](const Stream& s, const Tensors& t, Arena& saved, Arena& work) {
      dispatcher.Plan(s, t.idx, t.overflow, &handle, saved, work);
      dispatcher.Dispatch(s, handle, t.x, t.w, t.x_R, t.w_R, work);
      dispatcher.Combine(s, handle, t.x_R, {}, {}, t.y, t.w_R, t.dw, work);
    };
    run(Stream(dry.get()), Allocate(dry_saved, R), dry_saved, dry_work);
    // Peer memory is never given back: one pair of arenas serves all runs over it.
    const bool peers = memory == memory_.get();
    if (!peers || !saved_) {
      (peers ? saved_ : plain_saved_) = std::make_unique<Arena>("saved", memory);
      (peers ? work_ : plain_work_) = std::make_unique<Arena>("work", memory);
      const size_t room = peers ? 2 : 1;  // for the mode that needs more
      (peers ? saved_ : plain_saved_)->Commit(room * dry_saved.high_water());
      (peers ? work_ : plain_work_)
          ->Commit(room * dry_work.high_water() + (peers ? dry_saved.high_water() : 0));
    }
    Arena &saved = *(peers ? saved_ : plain_saved_), &work = *(peers ? work_ : plain_work_);
    saved.Release(0);
    work.Release(0);
    const Tensors t = Allocate(saved, R);
    device_->CopyFromHost(t.idx.data(), idx_.data(), static_cast<size_t>(t.idx.bytes()));
    std::vector<BFloat16> x(static_cast<size_t>(o_.tokens * o_.hidden));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = i < 1'000'003 ? BFloat16(static_cast<float>(PhiloxUniform(1, 7, i) - 0.5)) : x[i - 1'000'003];
    device_->CopyFromHost(t.x.data(), x.data(), x.size() * sizeof(BFloat16));
    const bool dedup = mode == DispatchMode::kDeduplicated;
    const std::string name = StrCat(sms == 0 ? "NCCL segments" : dedup ? "deduplicated" : "expanded");
    const double bytes = (dedup ? remote_copies_ : remote_rows_) * static_cast<double>(o_.hidden) * 2;
    const auto add = [&](const char* op, double wire, const std::function<void()>& call) {
      const double ms = Time(4, call), gbs = 1e-6 * wire / ms;
      results->push_back({StrCat(name, " ", op), sms, ms, gbs, sms ? gbs / stores_[sms] : 0});
    };
    const size_t mark = saved.Mark();
    add("plan", 0, [&] {
      saved.Release(mark);
      dispatcher.Plan(stream_, t.idx, t.overflow, &handle, saved, work);
    });
    add("dispatch", bytes, [&] { dispatcher.Dispatch(stream_, handle, t.x, t.w, t.x_R, t.w_R, work); });
    add("combine", bytes,
        [&] { dispatcher.Combine(stream_, handle, t.x_R, {}, {}, t.y, t.w_R, t.dw, work); });
    int32_t overflow = 0;
    device_->CopyToHost(&overflow, t.overflow.data(), sizeof(overflow));
    if (overflow != 0) results->back().what += " (overflow: windows too small)";
  }

  const BenchPeersOptions& o_;
  MpiWorld* world_;
  int n_, me_;
  std::unique_ptr<Agreement> agreement_;
  std::unique_ptr<Device> device_;
  CudaDevice& cuda_;
  NcclWorld nccl_;
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<MpiCommunicator> control_;
  Stream stream_;
  std::string how_;
  std::unique_ptr<PeerTable> table_;
  std::unique_ptr<PeerMemory> memory_;
  std::unique_ptr<Arena> saved_, work_, plain_saved_, plain_work_;
  CudaEvent begin_, end_;
  std::vector<int32_t> idx_;
  double remote_rows_ = 0, remote_copies_ = 0;
  int64_t fullest_ = 0;
  std::map<int, double> stores_;  // GB/s by multiprocessors
};

std::string Text(const BenchPeersOptions& o, const std::string& heading, const std::vector<Result>& results) {
  if (o.json) {
    nlohmann::ordered_json out = {{"about", heading}, {"results", nlohmann::json::array()}};
    for (const Result& r : results)
      out["results"].push_back({{"what", r.what},
                                {"sms", r.sms},
                                {"ms", r.ms},
                                {"wire_gbs", r.wire_gbs},
                                {"of_stores", r.of_stores}});
    return out.dump(2) + "\n";
  }
  std::string text =
      heading + StrFormat("%-28s %4s %9s %10s %10s\n", "", "SMs", "ms", "wire GB/s", "of stores");
  for (const Result& r : results) {
    text += StrFormat("%-28s %4s %9.3f", r.what.c_str(), r.sms ? std::to_string(r.sms).c_str() : "", r.ms);
    if (r.wire_gbs > 0) text += StrFormat(" %10.0f", r.wire_gbs);
    if (r.of_stores > 0) text += StrFormat(" %8.1f %%", 100 * r.of_stores);
    text += "\n";
  }
  return text;
}

#endif

}  // namespace

int RunBenchPeers(const BenchPeersOptions& options, MpiWorld* world) {
  Validate(options, world ? world->size() : 1);
  RoutingChoices(options.routing, 1, options.experts, options.top_k, 1);  // throws here, GPU or not
  const CudaStatus status = CudaAvailability();
  if (status.usable == 0) throw ConfigError("bench peers needs a GPU: " + status.reason);
#if YM_HAVE_CUDA
  Bench bench(options, world);
  const std::vector<Result> results = bench.Run();
  if (world->rank() == 0) std::fputs(Text(options, bench.Heading(), results).c_str(), stdout);
#endif
  return 0;
}

}  // namespace yardmaster
