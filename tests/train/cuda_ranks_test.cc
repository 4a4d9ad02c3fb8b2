// Runs of the product on several cuda devices, or processes that share one: every layout and
// transport trains like one rank of the cpu device, and what happens when a rank is gone.
#include "src/base/error.h"
#include "src/comm/nccl/nccl_options.h"
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

// Wide enough that copy engines carry the larger tensors, and 8-bit kernels take all of them.
constexpr int64_t kWideHidden = 128;
const std::vector<std::string>& Wide() {
  static_assert(257 * kWideHidden * int64_t{sizeof(float)} >= kLeastCopiedBytes);  // the embedding's gradient
  static const std::vector<std::string> settings = {StrCat("model.hidden_size=", kWideHidden),
                                                    "model.intermediate_size=192",
                                                    "model.moe_intermediate_size=64",
                                                    "model.q_lora_rank=32",
                                                    "model.kv_lora_rank=32",
                                                    "model.qk_nope_head_dim=16",
                                                    "model.qk_rope_head_dim=16",
                                                    "model.v_head_dim=16"};
  return settings;
}

std::vector<std::string> Join(std::initializer_list<std::vector<std::string>> lists) {
  std::vector<std::string> all;
  for (const std::vector<std::string>& list : lists)
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

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
  const RunResult peer = runs.OnGpus(2, "peer", {"parallel.ep=2", "ep.transport=peer"});
  CHECK(Contains(peer.output, "peer memory ("));
  std::string small;
  for (const auto& [name, ranks, settings] :
       std::vector<std::tuple<const char*, int, std::vector<std::string>>>{
           {"dp", 2, {"parallel.ep=1"}},
           {"again", 2, {"parallel.ep=2", "ep.transport=peer"}},
           {"enqueued", 2, {"parallel.ep=2", "ep.transport=peer", "runtime.cuda_graph=false"}},
           {"no overlap", 2, {"parallel.ep=2", "ep.transport=peer", "runtime.overlap=false"}},
           {"nccl", 2, {"parallel.ep=2", "ep.transport=nccl"}},
           {"exact counts", 2, {"parallel.ep=2", "ep.transport=nccl_exact"}},
           {"small windows",
            2,
            {"parallel.ep=2", "ep.transport=peer", "ep.ragged_buffer_factor=0.6"}},
           {"small windows, enqueued",
            2,
            {"parallel.ep=2", "ep.transport=peer", "ep.ragged_buffer_factor=0.6",
             "runtime.cuda_graph=false"}},
           {"small segments",
            2,
            {"parallel.ep=2", "ep.transport=nccl", "ep.ragged_buffer_factor=0.6"}},
           {"deduplicated", 2, {"parallel.ep=2", "ep.transport=peer", "ep.mode=deduplicated"}},
           {"four", 4, {"parallel.ep=4", "train.micro_batch_size=1"}}}) {
    INFO(name);
    const RunResult run = runs.OnGpus(ranks, name, settings);
    CHECK(runs.Apart(name, "one") < 1e-5);
    CHECK(runs.Apart(name, "cpu") < 1e-4);
    const std::string text = name;
    // What crosses, and how, changes no bit; replays are whole experts.
    if (text == "again" || text == "enqueued" || text == "no overlap" || text == "nccl" ||
        text == "exact counts")
      CHECK(HashOf(run) == HashOf(peer));
    if (text == "small windows") small = HashOf(run);
    if (text == "small windows, enqueued") CHECK(HashOf(run) == small);
    if (text.starts_with("small")) CHECK(Contains(run.output, "replays"));
  }
}

TEST_CASE("cuda ranks: what copy engines carry has the bits of what NCCL carries") {
  YM_NEEDS_A_GPU();
  CudaRanks runs;
  const std::vector<std::vector<std::string>> layouts = {
      {"parallel.ep=2", "precision.compute=bf16"}, {"parallel.ep=1", "parallel.zero=0"}};
  for (const std::vector<std::string>& layout : layouts) {
    INFO(layout[0]);
    const std::string name = layout[0];
    const RunResult nccl =
        runs.OnGpus(2, name, Join({Wide(), layout, {"runtime.copy_engines=false"}}));
    CHECK_FALSE(Contains(nccl.output, "copy engines"));
    for (const std::string way :
         {"runtime.overlap=true", "runtime.overlap=false", "runtime.cuda_graph=false"}) {
      INFO(way);
      const RunResult copies =
          runs.OnGpus(2, StrCat(name, " ", way), Join({Wide(), layout, {way}}));
      CHECK(Contains(copies.output, " and copy engines"));
      CHECK(HashOf(copies) == HashOf(nccl));
    }
  }
}

TEST_CASE("cuda ranks: squares that come out of the reductions change with nothing but the sums") {
  YM_NEEDS_A_GPU();
  CudaRanks runs;
  const auto steps = [&](const std::string& name, const std::vector<std::string>& settings) {
    INFO(name);
    runs.OnGpus(2, name, Join({Wide(), {"parallel.ep=1"}, settings}));
    return runs.Steps(name);  // with their losses and norms
  };
  const std::vector<std::string> owned = steps("own rows", {"parallel.zero=1"});
  CHECK(owned.size() == 12);
  CHECK(steps("all rows", {"parallel.zero=0"}) == owned);
  CHECK(steps("enqueued", {"parallel.zero=1", "runtime.cuda_graph=false"}) == owned);
  CHECK(steps("by NCCL", {"parallel.zero=1", "runtime.copy_engines=false"}) == owned);
}

TEST_CASE("cuda ranks: two micro-batches in turn change no bit") {
  YM_NEEDS_A_GPU();
  CudaRanks runs;
  const auto compare = [&](const std::string& name, const std::vector<std::string>& settings) {
    INFO(name);
    const std::vector<std::string> all = Join(
        {settings, {"parallel.ep=2", "train.micro_batch_size=1", "train.global_batch_size=8"}});
    const RunResult one = runs.OnGpus(2, name + " one", all);
    const RunResult two =
        runs.OnGpus(2, name + " two", Join({all, {"runtime.two_batch_overlap=true"}}));
    CHECK(HashOf(two) == HashOf(one));
    CHECK_FALSE(Contains(one.output, "second saved"));
    CHECK(Contains(two.output, "second saved"));
  };
  for (const char* transport : {"peer", "nccl"}) {
    const std::string by = StrCat("ep.transport=", transport);
    compare(transport, {by});
    compare(StrCat(transport, ", 8-bit rows and copies"),
            Join({Wide(),
                  {by, "precision.compute=fp8_block", "ep.payload=recipe", "runtime.saved_inputs=recipe"}}));
  }
}

TEST_CASE("cuda ranks: weights agree in every precision, and a flipped bit of one is found") {
  YM_NEEDS_A_GPU();
  CudaRanks runs;
  for (const char* precision : {"bf16", "fp8_block"}) {
    INFO(precision);
    const std::vector<std::string> settings =
        Join({Wide(),
              {StrCat("precision.compute=", precision), "parallel.ep=1", "parallel.zero=1",
               "train.replica_check_every_steps=1", "train.steps=4"}});
    runs.OnGpus(2, StrCat(precision, " agree"), settings);
    const RunResult flipped = runs.OnGpus(
        2, precision, settings, "YARDMASTER_FAULT_STEP=kind=flip,rank=1,step=2,tensor=down_proj");
    INFO(flipped.output);
    CHECK(flipped.code == static_cast<int>(ExitCode::kCorruption));
    CHECK(Contains(flipped.output, "differ between ranks after step 2"));
    CHECK(Contains(flipped.output, "down_proj.weight"));
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
