// A run that takes a fraction of a second: a data set of generated text, a small DeepSeek-V3, everything on.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/base/philox.h"
#include "src/base/strings.h"
#include "src/config/printer.h"
#include "src/config/reader.h"
#include "src/data/tokenize.h"
#include "src/train/loop.h"
#include "tests/base/temp_dir.h"

namespace yardmaster::testing {

// Words drawn from a small vocabulary, so that there is something to learn.
inline void WriteSmallDataset(const std::string& prefix, uint64_t seed = 1) {
  const std::string text_dir = prefix + ".texts";
  MakeDirectories(text_dir);
  const char* words[] = {"router", "expert", "token", "dispatch", "combine", "the", "of", "a"};
  for (int doc = 0; doc < 12; ++doc) {
    std::string text;
    for (uint64_t i = 0; i < 120; ++i)
      text += StrCat(words[Philox4x32(seed, static_cast<uint64_t>(doc), i)[0] % 8], " ");
    FileWriter file(JoinPath(text_dir, StrCat("doc", doc, ".txt")));
    file.Write(text);
    file.Close(false);
  }
  TokenizeOptions options;
  options.paths = {text_dir};
  options.out_prefix = prefix;
  options.heldout_fraction = 0.2;
  Tokenize(options);
}

inline constexpr char kSmallConfig[] = R"(
run: {dir: unset, seed: 7}
model:
  vocab_size: 257
  hidden_size: 32
  num_hidden_layers: 3
  first_k_dense_replace: 1
  intermediate_size: 48
  max_position_embeddings: 64
  initializer_range: 0.05
  num_attention_heads: 2
  q_lora_rank: 16
  kv_lora_rank: 16
  qk_nope_head_dim: 8
  qk_rope_head_dim: 4
  v_head_dim: 8
  n_routed_experts: 8
  num_experts_per_tok: 2
  n_shared_experts: 1
  moe_intermediate_size: 16
  n_group: 2
  topk_group: 1
  routed_scaling_factor: 1.5
train: {steps: 12, sequence_length: 16, micro_batch_size: 2, global_batch_size: 4}
moe: {bias_update_speed: 0.01}
schedule:
  learning_rate: {preset: warmup_cosine, peak: 1e-2, warmup_steps: 2, total_steps: 12, min: 1e-3}
data: {train: unset, validation: unset, seed: 3}
checkpoint: {every_steps: 0}
logging: {every_steps: 100}
)";

// The small config with its paths under `dir`, run.dir = dir/NAME, and further overrides.
inline TrainOptions SmallRun(const std::string& dir, const std::string& name,
                             std::vector<std::string> overrides = {}) {
  std::vector<std::string> all = {StrCat("run.dir=", JoinPath(dir, name)),
                                  StrCat("data.train=", JoinPath(dir, "text.train")),
                                  StrCat("data.validation=", JoinPath(dir, "text.heldout"))};
  all.insert(all.end(), overrides.begin(), overrides.end());
  TrainOptions options;
  options.loaded = ParseConfig(kSmallConfig, "small.yaml", all);
  options.config_yaml = PrintConfig(options.loaded.config);
  options.build = "test";
  return options;
}

inline std::vector<std::string> MetricsLines(const std::string& dir, const std::string& name) {
  std::vector<std::string> lines = StrSplit(ReadFile(JoinPath(JoinPath(dir, name), "metrics.jsonl")), '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

// The fields that may not differ between equal runs: everything but times.
inline std::string WithoutTimes(std::string line) {
  const auto cut = [&](const char* from, const char* to) {
    const size_t begin = line.find(from), end = line.find(to, begin == std::string::npos ? 0 : begin);
    if (begin != std::string::npos && end != std::string::npos) line.erase(begin, end - begin);
  };
  cut(",\"ms\":", ",\"load_max_over_mean\"");
  cut(",\"parts_ms\":", "}");
  return line;
}

// All tensor bytes of a checkpoint of one rank.
inline std::string ShardBytes(const std::string& dir, const std::string& name, int64_t step) {
  const std::string file =
      ReadFile(StrCat(dir, "/", name, "/checkpoints/", StrFormat("step_%08lld", static_cast<long long>(step)),
                      "/shard_00000.safetensors"));
  uint64_t header = 0;  // which names the step
  std::memcpy(&header, file.data(), sizeof(header));
  return file.substr(sizeof(header) + header);
}

}  // namespace yardmaster::testing
