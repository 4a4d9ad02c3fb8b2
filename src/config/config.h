// File: src/config/config.h
//
// Everything a run is told, as plain structs, one per section of the YAML file. schema.h lists the fields
// (name, doc, range), reader.h parses YAML with file:line:column and collects all errors at once, printer.h
// prints it back.
// A key that validates does what it says: what this version cannot run is refused by name (supported.h).
#pragma once

#include <cstdint>
#include <string>

#include "src/config/model_config.h"
#include "src/config/schedule_config.h"

namespace yardmaster {

struct RunConfig {
  std::string dir;  // everything this run writes lies here
  int64_t seed = 1;

  bool operator==(const RunConfig&) const = default;
};

struct RuntimeConfig {
  std::string device = "auto";  // auto | cpu | cuda
  int64_t threads = 0;          // of the cpu device; 0: cores / ranks on this machine
  bool deterministic = true;
  bool cuda_graph = true;          // on cuda: a step is recorded and replayed
  std::string attention = "auto";  // of the cuda device: auto | unfused
  double attention_workspace_gib = 2;  // of the cuda device
  std::string recompute = "none";      // by backward, instead of saving it: none | norms | projections
  std::string saved_inputs = "compute";  // of linear layers, for their weight gradients: compute | recipe
  std::string run_ahead = "auto";      // steps before the host has looked at the last: auto | always | never
  double timeout_seconds = 600;  // of every wait for other ranks
  bool share_device = false;     // more ranks than GPUs on a machine, for tests
  bool overlap = true;           // communication beside computation, on cuda devices
  bool two_batch_overlap = false;  // two micro-batches of a step take turns
  bool copy_engines = true;      // gradients and weights travel without multiprocessors, on cuda devices

  bool operator==(const RuntimeConfig&) const = default;
};

struct TrainConfig {
  int64_t steps = 0;               // last step of the run; schedules do not depend on it
  int64_t stop_at_step = 0;        // ends this launch early, resumable, schedules untouched; 0: none
  int64_t sequence_length = 0;     // S
  int64_t micro_batch_size = 1;    // sequences a rank computes at once
  Schedule global_batch_size;      // sequences in a step; each value a multiple of micro_batch_size * dp
  int64_t eval_every_steps = 0;    // 0: only at the end
  int64_t eval_sequences = 0;      // of the held-out part, from its beginning; 0: all of it
  int64_t max_skipped_steps = 10;  // non-finite steps in a row that are skipped; one more ends the run
  int64_t replica_check_every_steps = 0;             // compares what several ranks hold copies of; 0: never
  Schedule mtp_loss_weight = Schedule::Constant(0);  // lambda of the multi-token prediction loss, by tokens

  bool operator==(const TrainConfig&) const = default;
};

struct ParallelConfig {
  int64_t ep = 1;  // kAuto (0): the largest divisor of dp up to 2
  int64_t pp = 1;
  int64_t zero = 1;  // optimizer state 0: replicated, 1: sharded over data-parallel ranks

  bool operator==(const ParallelConfig&) const = default;
};

struct EpConfig {
  // expanded: a row crosses for each (token, expert); deduplicated: for each (token, rank), replicated on
  // arrival; auto: by the layout alone (ModeFor in src/comm/ep/ep_plan.h).
  std::string mode = "expanded";
  std::string transport = "auto";  // of cuda devices: auto | peer | ipc | windows | nccl | nccl_exact
  // What dispatch carries to experts. compute: rows in the compute type; recipe: 8-bit rows and their scales.
  std::string payload = "compute";
  int64_t num_sms = 16;            // multiprocessors for dispatch and combine over peer memory
  double ragged_buffer_factor = -1;          // window rows as a multiple of the balanced load; -1: worst case
  int64_t overflow_check_every_n_steps = 1;  // how often the host looks whether a window was too small

  bool operator==(const EpConfig&) const = default;
};

struct MoeConfig {
  // Of the cuda device: auto | hopper | portable | loop.
  std::string gemm = "auto";
  // Gamma of the auxiliary-loss-free balancing, by tokens; 0: no update.
  Schedule bias_update_speed = Schedule::Constant(0.001);
  // Weights of balance losses (docs/balancing.md), each 1 at perfect balance, a mean over the global batch,
  // added for every MoE layer; 0: none.
  double sequence_balance_weight = 0;      // DeepSeek's, by sequence
  double micro_batch_balance_weight = 0;   // the classical one, by micro-batch
  double global_batch_balance_weight = 0;  // against the load of the previous global batch
  double router_z_weight = 0;              // mean of logsumexp squared
  // Capacity: at most ceil(tokens K / E * factor) pairs of a micro-batch for an expert, in training; 0:
  // dropless.
  double capacity_factor = 0;
  std::string drop_policy = "probs";  // probs: the largest weights stay | position: the first tokens
  bool pad_to_capacity = false;       // every expert computes its whole capacity of each micro-batch
  // Benchmarks: balanced | skewed take experts by token number; skewed: the first takes force_skew times the
  // mean load.
  std::string force_routing = "none";
  double force_skew = 1;

  bool operator==(const MoeConfig&) const = default;
};

struct PrecisionConfig {
  // fp32 | fp64 | bf16 (cuda): weights, activations and products. fp8_block | mxfp8: products of linear layers and
  // experts from 8-bit copies, the rest in bf16 on cuda, fp32 on cpu.
  std::string compute = "fp32";
  std::string fp8_block_scales = "power_of_two";  // power_of_two | exact

  bool operator==(const PrecisionConfig&) const = default;
};

struct OptimizerConfig {
  std::string type = "adamw";
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;
  bool decay_norms = false;      // per-group switch: norm weights
  bool decay_embedding = true;   // embedding and head
  double clip_grad_norm = 1.0;   // 0: no clipping
  std::string moments = "fp32";  // fp32 | bf16

  bool operator==(const OptimizerConfig&) const = default;
};

struct ScheduleConfig {
  Schedule learning_rate;

  bool operator==(const ScheduleConfig&) const = default;
};

struct DataConfig {
  std::string train;       // path prefix of .bin/.idx
  std::string validation;  // path prefix; empty: no evaluation
  bool shuffle = true;
  bool attend_across_documents = true;  // of a sample; false: attention is masked at their ends
  bool reset_positions = false;         // rotary positions count from the beginning of the document
  int64_t seed = 0;  // of the shuffle

  bool operator==(const DataConfig&) const = default;
};

struct CheckpointConfig {
  int64_t every_steps = 0;  // 0: only at the end and on request
  int64_t keep_latest = 2;
  std::string resume = "auto";  // auto | never | a step number
  std::string verify = "full";  // full | sizes
  bool save_at_end = true;

  bool operator==(const CheckpointConfig&) const = default;
};

struct LoggingConfig {
  int64_t every_steps = 1;  // console lines; metrics.jsonl always gets every step
  int64_t timings_every_steps = 100;  // steps whose ops are timed; 0: none
  bool state_hash = true;             // at the end, of weights, moments and buffers
  std::string color = "auto";

  bool operator==(const LoggingConfig&) const = default;
};

struct Config {
  RunConfig run;
  RuntimeConfig runtime;
  ModelConfig model;
  TrainConfig train;
  ParallelConfig parallel;
  EpConfig ep;
  MoeConfig moe;
  PrecisionConfig precision;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  DataConfig data;
  CheckpointConfig checkpoint;
  LoggingConfig logging;

  bool operator==(const Config&) const = default;
};

}  // namespace yardmaster
