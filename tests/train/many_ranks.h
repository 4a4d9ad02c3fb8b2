// Runs of the product itself under mpirun, on a small data set, and what they leave behind.
#pragma once

#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "src/checkpoint/load.h"
#include "src/checkpoint/manifest.h"
#include "tests/train/small_run.h"

namespace yardmaster::testing {

struct RunResult {
  int code = 0;        // of mpirun, or of the program where it runs alone
  std::string output;  // both streams
};

inline RunResult Shell(const std::string& command) {
  RunResult result;
  // Without Bazel's own variables: a test runs inside this one.
  FILE* pipe = ::popen(
      StrCat("unset XML_OUTPUT_FILE; export OMPI_MCA_mpi_yield_when_idle=1; ", command, " 2>&1").c_str(),
      "r");
  YM_CHECK(pipe != nullptr, command);
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) result.output.append(buffer, n);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

// A directory with a data set, and runs in it.
class ManyRanks {
 public:
  ManyRanks() {
    WriteSmallDataset(Path("text"));
    FileWriter file(Path("small.yaml"));
    file.Write(kSmallConfig);
    file.Close(false);
  }
  std::string Path(const std::string& name) const { return JoinPath(temp_.path(), name); }

  // yardmaster train on `ranks` ranks into run.dir NAME. `environment` as in "A=b C=d".
  RunResult Train(int ranks, const std::string& name, const std::vector<std::string>& overrides = {},
                  const std::string& environment = "") const {
    return Run("train", "", ranks, name, overrides, environment);
  }
  // yardmaster bench step on such a run.
  RunResult BenchStep(int ranks, const std::string& name, const std::vector<std::string>& overrides) const {
    return Run("bench step", "--routing real --warmup 3 --steps 3", ranks, name, overrides, "");
  }

  // Every tensor of a checkpoint, whole, as doubles.
  std::map<std::string, std::vector<double>> Tensors(const std::string& name, int64_t step) const {
    const std::string path =
        Path(StrCat(name, "/checkpoints/", StrFormat("step_%08lld", static_cast<long long>(step))));
    const Manifest manifest = OpenManifest(path);
    std::map<std::string, HostTensor> host;
    std::vector<StateTensor> state;
    for (const auto& [tensor, info] : manifest.tensors) {
      host.emplace(tensor, HostTensor(info.dtype, info.shape));
      state.push_back({tensor, host.at(tensor).view(), ShardSpec::Replicated(info.shape)});
    }
    SingleProcess alone;
    LoadCheckpoint(path, state, *device_, alone);
    std::map<std::string, std::vector<double>> out;
    for (const auto& [tensor, values] : host) {
      std::vector<double>& to = out[tensor];
      if (values.dtype() == DType::kI64) {
        to.assign(values.as<int64_t>(), values.as<int64_t>() + values.elements());
        continue;
      }
      DispatchFloat(values.dtype(), [&]<class T>() {
        for (int64_t i = 0; i < values.elements(); ++i)
          to.push_back(static_cast<double>(values.view().as<T>()[i]));
      });
    }
    return out;
  }

  // The lines of training steps in metrics.jsonl, without what may differ between equal runs.
  std::vector<std::string> Steps(const std::string& name) const {
    std::vector<std::string> out;
    for (const std::string& line : MetricsLines(temp_.path(), name)) {
      if (line.find("\"loss\":") == std::string::npos) continue;
      out.push_back(std::regex_replace(WithoutTimes(line), std::regex(",\"replays\":[0-9]+"), ""));
    }
    return out;
  }

 private:
  RunResult Run(const std::string& verb, const std::string& options, int ranks, const std::string& name,
                const std::vector<std::string>& overrides, const std::string& environment) const {
    std::string command = StrCat("env ", environment, " ");
    if (ranks > 1) command += StrCat("tools/bazel/mpi_test.sh ", ranks, " ");
    command +=
        StrCat("tools/yardmaster_unstamped ", verb, " ", Path("small.yaml"), " ", options,
               " --set runtime.threads=1 --set 'run.dir=", Path(name),
               "' --set data.train=", Path("text.train"), " --set data.validation=", Path("text.heldout"));
    for (const std::string& o : overrides) command += StrCat(" --set '", o, "'");
    return Shell(command);
  }

  TempDir temp_;
  std::unique_ptr<Device> device_ = MakeCpuDevice({.threads = 1});
};

inline double NumberIn(const std::string& line, const std::string& key) {
  const size_t at = line.find("\"" + key + "\":");
  YM_CHECK(at != std::string::npos, key, " in ", line);
  return std::stod(line.substr(at + key.size() + 3));
}

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The text behind `label` up to the end of its line; "" if there is none.
inline std::string After(const std::string& text, const std::string& label) {
  const size_t at = text.find(label);
  if (at == std::string::npos) return "";
  return text.substr(at + label.size(), text.find('\n', at) - at - label.size());
}

// The hash of its state that a run printed at its end, 64 digits: it must have.
inline std::string HashOf(const RunResult& run) {
  const std::string text = After(run.output, "state sha256");
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  YM_CHECK_EQ(text.size() - begin, size_t{64}, run.output);
  return text.substr(begin);
}

// The largest difference of two sets of tensors, each relative to the largest element of its tensor; of the
// tensors whose names begin with `prefix` ("" : all), of which there must be some.
inline double LargestDifference(const std::map<std::string, std::vector<double>>& a,
                                const std::map<std::string, std::vector<double>>& b,
                                const std::string& prefix = "") {
  YM_CHECK_EQ(a.size(), b.size());
  double most = 0;
  int compared = 0;
  for (const auto& [name, x] : a) {
    if (!name.starts_with(prefix)) continue;
    ++compared;
    const std::vector<double>& y = b.at(name);
    YM_CHECK_EQ(x.size(), y.size(), name);
    double scale = 0, difference = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      scale = std::max(scale, std::abs(x[i]));
      difference = std::max(difference, std::isnan(x[i] - y[i]) ? 1e300 : std::abs(x[i] - y[i]));
    }
    most = std::max(most, difference / (scale > 0 ? scale : 1));
  }
  YM_CHECK(compared > 0, "no tensor's name begins with '", prefix, "'");
  return most;
}

}  // namespace yardmaster::testing
