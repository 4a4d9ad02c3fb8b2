// Runs of the product on several cuda devices, or processes that share one: every layout and transport trains
// like one rank of the cpu device, and what happens when a rank is gone.
#include "src/base/error.h"
#include "src/device/cuda/make_cuda_device.h"
#include "tests/catch.h"
#include "tests/train/many_ranks.h"

namespace yardmaster::testing {
namespace {

#define YM_NEEDS_A_GPU()                                                      \
  do {                                                                        \
    const CudaStatus ym_status_ = CudaAvailability();                         \
    if (ym_status_.usable == 0) YM_SKIP("needs a GPU: " + ym_status_.reason); \
  } while (false)

class CudaRanks : public ManyRanks {
 public:
  RunResult OnGpus(int ranks, const std::string& name, std::vector<std::string> overrides,
                   const std::string& environment = "") const {
    overrides.insert(overrides.begin(), {"runtime.device=cuda", "runtime.share_device=true"});
    const RunResult result = Train(ranks, name, overrides, environment);
    INFO(result.output);
    if (environment.empty()) CHECK(result.code == 0);
    return result;
  }
  std::vector<double> Losses(const std::string& name) const {
    std::vector<double> out;
    for (const std::string& line : Steps(name)) out.push_back(NumberIn(line, "loss"));
    return out;
  }
  // The largest difference of the losses of two runs, step by step.
  double Apart(const std::string& a, const std::string& b) const {
    const std::vector<double> x = Losses(a), y = Losses(b);
    REQUIRE(x.size() == y.size());
    REQUIRE(x.size() == 12);
    double most = 0;
    for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
    return most;
  }
};

TEST_CASE("cuda ranks: every layout and transport trains like the cpu") {
  YM_NEEDS_A_GPU();
  CudaRanks runs;
  REQUIRE(runs.Train(1, "cpu", {"runtime.device=cpu"}).code == 0);
  runs.OnGpus(1, "one", {});
  CHECK(runs.Apart("one", "cpu") < 1e-4);
  const auto hash = [](const RunResult& run) { return After(run.output, "state sha256"); };
  const RunResult peer = runs.OnGpus(2, "peer", {"parallel.ep=2", "ep.transport=peer"});
  CHECK(Contains(peer.output, "peer memory ("));
  std::string small;
  for (const auto& [name, ranks, settings] :
       std::vector<std::tuple<const char*, int, std::vector<std::string>>>{
           {"dp", 2, {"parallel.ep=1"}},
           {"again", 2, {"parallel.ep=2", "ep.transport=peer"}},
           {"enqueued", 2, {"parallel.ep=2", "ep.transport=peer", "runtime.cuda_graph=false"}},
           {"no copy engines", 2, {"parallel.ep=2", "ep.transport=peer", "runtime.copy_engines=false"}},
           {"no overlap", 2, {"parallel.ep=2", "ep.transport=peer", "runtime.overlap=false"}},
           {"nccl", 2, {"parallel.ep=2", "ep.transport=nccl"}},
           {"exact counts", 2, {"parallel.ep=2", "ep.transport=nccl_exact"}},
           {"small windows", 2, {"parallel.ep=2", "ep.transport=peer", "ep.ragged_buffer_factor=0.6"}},
           {"small windows, enqueued",
            2,
            {"parallel.ep=2", "ep.transport=peer", "ep.ragged_buffer_factor=0.6", "runtime.cuda_graph=false"}},
           {"small segments", 2, {"parallel.ep=2", "ep.transport=nccl", "ep.ragged_buffer_factor=0.6"}},
           {"deduplicated", 2, {"parallel.ep=2", "ep.transport=peer", "ep.mode=deduplicated"}},
           {"four", 4, {"parallel.ep=4", "train.micro_batch_size=1"}}}) {
    INFO(name);
    const RunResult run = runs.OnGpus(ranks, name, settings);
    CHECK(runs.Apart(name, "one") < 1e-5);
    CHECK(runs.Apart(name, "cpu") < 1e-4);
    const std::string text = name;
    // What crosses, and how, changes no bit; replays are whole experts.
    if (text == "again" || text == "enqueued" || text == "no copy engines" || text == "no overlap" || text == "nccl" ||
        text == "exact counts")
      CHECK(hash(run) == hash(peer));
    if (text == "small windows") small = hash(run);
    if (text == "small windows, enqueued") CHECK(hash(run) == small);
    if (text.starts_with("small")) CHECK(Contains(run.output, "replays"));
  }
}

TEST_CASE("cuda ranks: two micro-batches in turn change no bit") {
  YM_NEEDS_A_GPU();
  CudaRanks runs;
  for (const char* transport : {"peer", "nccl"}) {
    INFO(transport);
    std::vector<std::string> settings = {"parallel.ep=2", "train.micro_batch_size=1", "train.global_batch_size=8",
                                         StrCat("ep.transport=", transport)};
    const RunResult one = runs.OnGpus(2, StrCat(transport, "_one"), settings);
    settings.push_back("runtime.two_batch_overlap=true");
    const RunResult two = runs.OnGpus(2, StrCat(transport, "_two"), settings);
    CHECK(After(two.output, "state sha256") == After(one.output, "state sha256"));
    CHECK(After(one.output, "state sha256") != "");
  }
}

TEST_CASE("cuda ranks: the step is recorded, whatever the layout and the transport") {
  YM_NEEDS_A_GPU();
  CudaRanks runs;
  for (const std::vector<std::string>& settings :
       {std::vector<std::string>{"parallel.ep=2", "ep.transport=peer"},
        {"parallel.ep=2", "ep.transport=nccl"},
        {"parallel.ep=1"}}) {
    std::vector<std::string> all = {"runtime.device=cuda", "runtime.share_device=true"};
    all.insert(all.end(), settings.begin(), settings.end());
    const RunResult run = runs.BenchStep(2, "bench", all);
    INFO(run.output);
    CHECK(run.code == 0);
    CHECK(Contains(run.output, ", CUDA graph"));
  }
}

TEST_CASE("cuda ranks: a checkpoint of two ranks goes on with one, and back") {
  YM_NEEDS_A_GPU();
  CudaRanks runs;
  runs.OnGpus(1, "straight", {});
  runs.OnGpus(2, "run", {"parallel.ep=2", "train.stop_at_step=4", "checkpoint.save_at_end=true"});
  runs.OnGpus(1, "run", {"train.stop_at_step=8", "checkpoint.save_at_end=true"});
  runs.OnGpus(2, "run", {"parallel.ep=2"});
  CHECK(runs.Apart("run", "straight") < 1e-5);
}

TEST_CASE("cuda ranks: a rank that stalls is named") {
  YM_NEEDS_A_GPU();
  CudaRanks runs;
  const RunResult stalled = runs.OnGpus(2, "stall", {"parallel.ep=2", "runtime.timeout_seconds=6"},
                                        "YARDMASTER_FAULT_STEP=kind=stall,rank=1,step=3");
  INFO(stalled.output);
  CHECK(stalled.code == static_cast<int>(ExitCode::kWatchdog));
  CHECK(Contains(stalled.output, "rank 1"));
}

}  // namespace
}  // namespace yardmaster::testing
