// The command line: parses, calls one function of src/train, src/data or src/config per command, and turns errors into
// one message and an exit code (src/base/error.h).
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/comm/agree.h"
#include "src/comm/mpi/mpi_world.h"
#include "src/config/printer.h"
#include "src/config/reader.h"
#include "src/data/tokenize.h"
#include "src/train/evaluate_run.h"
#include "src/train/loop.h"
#include "src/train/parity.h"
#include "src/train/sample.h"
#include "src/train/signals.h"
#include "src/train/validate_report.h"
#include "tools/bazel/version_info.h"
#include "tools/commands/bench_dispatch.h"
#include "tools/commands/bench_grouped_gemm.h"
#include "tools/commands/bench_moe_layer.h"
#include "tools/commands/bench_op.h"
#include "tools/commands/bench_peers.h"
#include "tools/commands/bench_step.h"

namespace yardmaster {
namespace {

bool LaunchedByMpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMI_SIZE") || std::getenv("PMIX_RANK"); }

// auto: colour on a terminal, never under mpirun (which makes pipes of terminals) or when NO_COLOR is set.
bool UseColor(const std::string& wanted) {
  if (wanted != "auto") return wanted == "always";
  return !LaunchedByMpirun() && ::isatty(STDOUT_FILENO) && !std::getenv("NO_COLOR");
}

// Runs `command`; an error becomes one message and its exit code. An error that all ranks threw alike (AgreedError) is told
// once; any other ends the whole job, so that no rank waits for one that is gone.
int Guarded(MpiWorld* world, const std::function<int()>& command) {
  ExitCode code = ExitCode::kInternal;
  try {
    const int result = command();
    FlushLog();
    return result;
  } catch (const AgreedError& e) {
    if (!world || world->rank() == 0) LogError(e.what());
    FlushLog();
    return static_cast<int>(e.code());
  } catch (const Error& e) {
    code = e.code();
    LogError(e.what());
  } catch (const std::bad_alloc&) {
    LogError("out of memory\n  hint: a smaller train.micro_batch_size, train.global_batch_size or model; the memory table shows what a step needs");
  } catch (const std::exception& e) {
    LogError(StrCat("internal error: ", e.what(), "\n  hint: this is a bug in Yardmaster ", YardmasterVersion(), " (", YardmasterCommit(), ")"));
  }
  FlushLog();
  if (world && world->size() > 1) world->Abort(code);
  return static_cast<int>(code);
}

// Runs `command` with the ranks that a launcher has started, or null.
int WithRanks(const std::function<int(MpiWorld*)>& command) {
  if (!MpiWorld::Launched()) return command(nullptr);
  MpiWorld world;
  InitLog({world.rank(), UseColor("auto")});
  return Guarded(&world, [&] { return command(&world); });
}

struct CommonOptions {
  std::string config_path, color = "auto";
  std::vector<std::string> set;
  void AddConfig(CLI::App* app) {
    app->add_option("CONFIG", config_path, "YAML file (docs/config_reference.md)")->required();
    app->add_option("--set", set, "override a setting: --set train.steps=100")->type_name("KEY=VALUE")->allow_extra_args(false);
  }
};

// Before MPI tells: whether this process speaks for the job in what all ranks find alike (the config).
bool SpeaksForAll() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank) == 0;
  }
  return true;
}

int RunTrain(const CommonOptions& common, bool print_config, bool accept_changes) {
  InstallSignalHandlers();  // a signal during start-up is acted upon after the first step
  LoadedConfig loaded;
  try {
    loaded = LoadConfig(common.config_path, common.set);
  } catch (const Error& e) {
    if (SpeaksForAll()) throw;
    return static_cast<int>(e.code());
  }
  if (print_config) {
    if (SpeaksForAll()) std::fputs(PrintConfig(loaded.config).c_str(), stdout);
    return 0;
  }
  const std::string color = common.color == "auto" ? loaded.config.logging.color : common.color;
  const TrainOptions options{loaded, PrintConfig(loaded.config), StrCat(YardmasterVersion(), " (", YardmasterCommit(), ")"), accept_changes};
  if (!MpiWorld::Launched()) {
    InitLog({0, UseColor(color)});
    return Train(options, nullptr);
  }
  MpiWorld world;
  InitLog({world.rank(), UseColor(color)});
  return Guarded(&world, [&] { return Train(options, &world); });
}

// How many processes a launcher has started for this job.
int LaunchedProcesses() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "PMI_SIZE"}) {
    if (const char* size = std::getenv(name)) return std::atoi(size);
  }
  return 1;
}

// Runs a command that works alone: of several processes each would do the same, and say it.
int Alone(const char* name, const std::function<int()>& command) {
  if (LaunchedProcesses() <= 1) return command();
  if (!SpeaksForAll()) return static_cast<int>(ExitCode::kConfig);
  throw ConfigError(StrCat(name, " runs in one process, found ", LaunchedProcesses()), "", "start it without mpirun");
}

// The word at `at` of the command line that should name a command and does not; "": there is none.
std::string UnknownCommand(const std::vector<std::string>& commands, int at, int argc, char** argv) {
  const std::string word = argc > at ? argv[at] : "";
  const bool known = std::find(commands.begin(), commands.end(), word) != commands.end();
  return word.empty() || word[0] == '-' || known ? "" : word;
}

}  // namespace

int RunCommandLine(int argc, char** argv) {
  CLI::App app{"Yardmaster trains dropless Mixture-of-Experts language models."};
  app.name("yardmaster");
  app.require_subcommand(1);
  app.set_version_flag("--version", StrCat("yardmaster ", YardmasterVersion(), " (", YardmasterCommit(), ")\n", YardmasterCudaStatus()));
  std::function<int()> command;

  CommonOptions common;
  bool print_config = false, accept_changes = false;
  CLI::App* train = app.add_subcommand("train", "train, or resume, the run that CONFIG describes");
  common.AddConfig(train);
  train->add_flag("--print-config", print_config, "print the resolved config and stop");
  train->add_flag("--accept-changes", accept_changes, "resume although settings or data differ from the checkpoint's");
  train->add_option("--color", common.color, "auto, always or never")->check(CLI::IsMember({"auto", "always", "never"}));
  train->callback([&] { command = [&] { return RunTrain(common, print_config, accept_changes); }; });

  CLI::App* validate = app.add_subcommand("validate", "check CONFIG and say what it describes, without running it");
  common.AddConfig(validate);
  validate->add_flag("--print-config", print_config, "print the resolved config");
  int64_t ranks = 0;
  validate->add_option("--ranks", ranks, "plan the memory of a rank of a run on so many, not of one that holds the whole model")
      ->check(CLI::Range(1, 1 << 20));
  validate->callback([&] {
    command = [&] {
      if (!SpeaksForAll()) return 0;
      const LoadedConfig loaded = LoadConfig(common.config_path, common.set);
      if (print_config) {
        std::fputs(PrintConfig(loaded.config).c_str(), stdout);
        return 0;
      }
      std::fputs(ValidateReport(common.config_path, loaded.config, ranks, loaded.places).c_str(), stdout);
      return 0;
    };
  });

  TokenizeOptions tokenize_options;
  CLI::App* tokenize = app.add_subcommand("tokenize", "make a byte-level data set (.bin/.idx) of files and directories");
  tokenize->add_option("PATH", tokenize_options.paths, "files, or directories with all files below them");
  tokenize->add_option("--file-list", tokenize_options.file_list, "a file with one path a line");
  tokenize->add_option("--out", tokenize_options.out_prefix, "writes OUT.train.*, OUT.heldout.*, OUT.json")->required();
  tokenize->add_option("--heldout-fraction", tokenize_options.heldout_fraction, "share of the documents")->capture_default_str();
  tokenize->add_flag("--force", tokenize_options.replace, "replace a data set that is there already");
  tokenize->callback([&] {
    command = [&] {
      return Alone("tokenize", [&] {
        std::fputs(TokenizeReport(Tokenize(tokenize_options)).c_str(), stdout);
        return 0;
      });
    };
  });

  SampleOptions sample_options;
  CLI::App* sample = app.add_subcommand("sample", "continue a text with the model of a run");
  sample->add_option("RUN_DIR", sample_options.run_dir, "directory of a run")->required();
  sample->add_option("--prompt", sample_options.prompt, "text to continue")->required();
  sample->add_option("--tokens", sample_options.tokens, "how many tokens")->capture_default_str();
  sample->add_option("--temperature", sample_options.temperature, "0: always the likeliest token")->capture_default_str();
  sample->add_option("--seed", sample_options.seed, "of the draws")->capture_default_str();
  sample->callback([&] { command = [&] { return Alone("sample", [&] { return RunSample(sample_options); }); }; });

  EvaluateRunOptions evaluate_options;
  CLI::App* evaluate = app.add_subcommand("evaluate", "validation loss of a run's newest checkpoint");
  evaluate->add_option("RUN_DIR", evaluate_options.run_dir, "directory of a run")->required();
  evaluate->add_option("--data", evaluate_options.data, "path prefix of .bin/.idx instead of the run's validation data");
  evaluate->add_flag("--zero-routed-experts", evaluate_options.zero_routed_experts, "ablation: without the routed experts' output");
  evaluate->callback([&] { command = [&] { return Alone("evaluate", [&] { return RunEvaluate(evaluate_options); }); }; });

  ParityOptions parity_options;
  CLI::App* parity = app.add_subcommand("parity", "compare with a Hugging Face checkpoint and its expected outputs");
  parity->add_option("--hf", parity_options.hf_dir, "directory with config.json, safetensors, expected.safetensors")->required();
  parity->add_option("--out", parity_options.out, "safetensors file to write")->required();
  parity->add_option("--device", parity_options.device, "cpu or cuda")->capture_default_str();
  parity->add_option("--precision", parity_options.precision, "fp32 or fp64 on cpu; fp32 or bf16 on cuda")->capture_default_str();
  parity->add_option("--steps", parity_options.steps, "AdamW steps")->capture_default_str();
  parity
      ->add_option("--mtp-input", parity_options.mtp_input,
                   "post_norm or pre_norm: what multi-token prediction gets from below")
      ->capture_default_str();
  parity->add_option("--route-from", parity_options.route_from, "take the chosen experts from this file");
  parity->callback([&] { command = [&] { return Alone("parity", [&] { return RunParity(parity_options); }); }; });

  CLI::App* bench = app.add_subcommand("bench", "measure a part of the trainer on this machine's GPU");
  bench->require_subcommand(1);
  BenchGroupedGemmOptions gemm_options;
  CLI::App* gemm = bench->add_subcommand("grouped-gemm", "the experts' GEMMs beside one dense GEMM (cuBLASLt) over the same rows");
  gemm->add_option("--rows", gemm_options.rows, "rows of all experts together")->capture_default_str();
  gemm->add_option("--experts", gemm_options.experts, "how many experts share them")->capture_default_str();
  gemm->add_option("--n", gemm_options.n, "output width")->capture_default_str();
  gemm->add_option("--k", gemm_options.k, "input width")->capture_default_str();
  gemm->add_option("--routing", gemm_options.routing, "balanced, jitter (+-30 %), skew:S (one expert has S times the mean), one, empty")
      ->capture_default_str();
  gemm->add_option("--precision", gemm_options.precision, "of ours: bf16 or fp8_block; the dense one is BF16")
      ->capture_default_str();
  gemm->add_option("--ops", gemm_options.ops, "which; all by default")->delimiter(',')->check(CLI::IsMember(BenchGroupedGemmOps()));
  gemm->add_option("--pairs", gemm_options.pairs, "runs of each, in turn; at least 7")->capture_default_str();
  gemm->add_option("--heat-seconds", gemm_options.heat_seconds, "load before each measurement, so that the clock is that of a long run")
      ->capture_default_str();
  gemm->add_flag("--loop", gemm_options.loop, "beside a loop of dense GEMMs with counts on the host, too");
  gemm->add_flag("--json", gemm_options.json, "one JSON object instead of a table");
  gemm->callback([&] { command = [&] { return RunBenchGroupedGemm(gemm_options); }; });

  BenchDispatchOptions dispatch_options;
  CLI::App* dispatch = bench->add_subcommand("dispatch", "expert-parallel dispatch and combine, with virtual ranks on one GPU");
  dispatch->add_option("--ranks", dispatch_options.ranks, "virtual ranks")->capture_default_str();
  dispatch->add_option("--tokens", dispatch_options.tokens, "tokens of each rank")->capture_default_str();
  dispatch->add_option("--top-k", dispatch_options.top_k, "experts that a token chooses")->capture_default_str();
  dispatch->add_option("--experts", dispatch_options.experts, "of all ranks together")->capture_default_str();
  dispatch->add_option("--hidden", dispatch_options.hidden, "BF16 elements of a row")->capture_default_str();
  dispatch->add_option("--routing", dispatch_options.routing, "balanced, random, real (popular experts), skew:S, one")
      ->capture_default_str();
  dispatch->add_option("--modes", dispatch_options.modes, "expanded, deduplicated; both by default")->delimiter(',');
  dispatch->add_option("--sms", dispatch_options.sms, "multiprocessors of all ranks together; 0: all but four")
      ->delimiter(',')->capture_default_str();
  dispatch->add_option("--repeats", dispatch_options.repeats, "runs, of which the median counts; at least 3")->capture_default_str();
  dispatch->add_option("--heat-seconds", dispatch_options.heat_seconds, "load before measuring")->capture_default_str();
  dispatch->add_flag("--json", dispatch_options.json, "one JSON object instead of a table");
  dispatch->callback([&] { command = [&] { return RunBenchDispatch(dispatch_options); }; });

  AddBenchMoeLayer(*bench, &command);
  BenchPeersOptions peers_options;
  CLI::App* peers = bench->add_subcommand("peers", "dispatch and combine between processes, under mpirun, beside the wire's speed");
  peers->add_option("--tokens", peers_options.tokens, "tokens of each rank")->capture_default_str();
  peers->add_option("--top-k", peers_options.top_k, "experts of a token")->capture_default_str();
  peers->add_option("--experts", peers_options.experts, "routed experts of all ranks")->capture_default_str();
  peers->add_option("--hidden", peers_options.hidden, "width of a row")->capture_default_str();
  peers->add_option("--routing", peers_options.routing, "balanced, random, real, skew:S or one")->capture_default_str();
  peers->add_option("--sms", peers_options.sms, "multiprocessors of each rank")->delimiter(',');
  peers->add_option("--repeats", peers_options.repeats, "runs of each; at least 3")->capture_default_str();
  peers->add_option("--way", peers_options.way, "peer memory")->check(CLI::IsMember({"peer", "ipc", "windows"}))->capture_default_str();
  peers->add_flag("--nccl,!--no-nccl", peers_options.nccl, "dispatch over NCCL too")->capture_default_str();
  peers->add_flag("--json", peers_options.json, "one JSON object instead of a table");
  peers->callback([&] {
    command = [&] {
      return WithRanks([&](MpiWorld* world) { return RunBenchPeers(peers_options, world); });
    };
  });
  BenchStepOptions step_options;
  CLI::App* step = bench->add_subcommand(
      "step", "whole training steps of CONFIG: time, tokens/s, TFLOP/s, memory, time by part");
  common.AddConfig(step);
  step->add_option("--routing", step_options.routing,
                   "real (the router's own choice), balanced, skew:S (one expert has S times the mean)")
      ->capture_default_str();
  step->add_option("--impl", step_options.impl, "auto, or naive: the baseline without the work on speed")
      ->capture_default_str();
  step->add_option("--steps", step_options.steps, "measured steps")->capture_default_str();
  step->add_option("--warmup", step_options.warmup, "steps before; at least 2")->capture_default_str();
  step->add_option("--timed", step_options.timed, "steps timed op by op, after; 0: none")
      ->capture_default_str();
  step->add_flag("--ops", step_options.ops, "a line for each op and size");
  step->add_flag("--json", step_options.json, "one JSON object instead of text");
  step->callback([&] {
    command = [&] {
      step_options.config_path = common.config_path;
      step_options.set = common.set;
      return WithRanks([&](MpiWorld* world) { return RunBenchStep(step_options, world); });
    };
  });

  BenchOpOptions op_options;
  uint64_t op_seed = 0;
  for (const auto& [name, summary] : BenchOpNames()) {
    if (name == gemm->get_name()) continue;  // `bench all` has a line for it, too
    CLI::App* op = bench->add_subcommand(name, summary);
    op->add_option("--tokens", op_options.tokens, "of the timed sizes, those of DeepSeek-V3")->capture_default_str();
    op->add_option("--precision", op_options.precision, "bf16 or fp32")->capture_default_str();
    CLI::Option* seed =
        op->add_option("--seed", op_seed, "of the random sizes and inputs that are checked; another in every run by default");
    op->add_option("--rounds", op_options.rounds, "random sizes checked")->capture_default_str();
    op->add_option("--repeats", op_options.repeats, "timed runs of each call; at least 3")->capture_default_str();
    op->add_option("--heat-seconds", op_options.heat_seconds, "load before products are measured, so that the clock is that of a long run")
        ->capture_default_str();
    op->add_flag("--check-only", op_options.check_only, "compare with the cpu device in double, without the clock");
    op->add_flag("--json", op_options.json, "one JSON object instead of a table");
    op->callback([&, name = name, seed] {
      op_options.op = name;
      if (seed->count() > 0) op_options.seed = op_seed;
      command = [&] { return RunBenchOp(op_options); };
    });
  }

  CLI::App* reference = app.add_subcommand("config-reference", "print docs/config_reference.md");
  reference->callback([&] {
    command = [] {
      std::fputs(ConfigReferenceMarkdown().c_str(), stdout);
      return 0;
    };
  });

  const bool benchmark = argc > 1 && argv[1] == bench->get_name();
  std::vector<std::string> commands;
  for (const CLI::App* c : (benchmark ? bench : &app)->get_subcommands({})) commands.push_back(c->get_name());
  if (const std::string word = UnknownCommand(commands, benchmark ? 2 : 1, argc, argv); !word.empty()) {
    if (!SpeaksForAll()) return static_cast<int>(ExitCode::kConfig);
    InitLog({0, UseColor("auto")});
    const std::string near = NearestName(word, commands);
    const char* what = benchmark ? "benchmark" : "command";
    return Guarded(nullptr, [&]() -> int {
      throw ConfigError(StrCat("there is no ", what, " '", word, "'",
                               near.empty() ? "" : StrCat("; did you mean ", near, "?")),
                        "", StrCat("the ", what, "s are ", StrJoin(commands, ", "), "; each has --help"));
    });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    if (!SpeaksForAll()) return static_cast<int>(ExitCode::kConfig);
    InitLog({0, UseColor("auto")});
    const std::string parsed = argc > 1 && argv[1][0] != '-' ? StrCat(" ", argv[1]) : "";
    return Guarded(nullptr, [&]() -> int {
      throw ConfigError(e.what(), "", StrCat("`yardmaster", parsed, " --help` lists what it takes"));
    });
  }
  if (!train->parsed()) InitLog({0, UseColor("auto")});
  return Guarded(nullptr, command);
}

}  // namespace yardmaster

int main(int argc, char** argv) {
  const int code = yardmaster::RunCommandLine(argc, argv);
  if ((std::fflush(stdout) != 0 || std::ferror(stdout)) && code == 0) {
    std::fputs("error: the output could not be written (standard output)\n", stderr);
    return static_cast<int>(yardmaster::ExitCode::kDiskFull);
  }
  return code;
}
