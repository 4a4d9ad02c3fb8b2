#include "src/config/schema.h"

#include <utility>

namespace yardmaster {
namespace {

// Sizes of a model stay far below 2^31, so that products of a few of them fit in 128 bits.
constexpr double kMaxWidth = 1 << 20;
constexpr double kMaxLayers = 1 << 14;
constexpr double kMaxExperts = 1 << 16;
constexpr double kMaxInt32 = 2147483647.0;
constexpr double kMaxCount = 1e15;  // steps, seeds: exact in a double

// Declares the fields of one struct of Config.
template <class S>
class SectionBuilder {
 public:
  using Get = std::function<S&(Config&)>;
  SectionBuilder(std::string path, std::string doc, Get get) : get_(std::move(get)) {
    section_.path = std::move(path);
    section_.doc = std::move(doc);
  }

  template <class T>
  Field& Add(const std::string& name, T S::*member, const std::string& doc) {
    Field field;
    field.name = name;
    field.doc = doc;
    field.access = [get = get_, member](Config& config) { return FieldPointer(&(get(config).*member)); };
    section_.fields.push_back(std::move(field));
    return section_.fields.back();
  }

  // A field of published configurations that must have this value.
  void Only(const std::string& name, const std::string& value, const std::string& doc) {
    Field field;
    field.name = name;
    field.doc = doc;
    field.only = value;
    field.access = [](Config&) { return FieldPointer(); };
    section_.fields.push_back(std::move(field));
  }

  Section Build() { return std::move(section_); }

 private:
  Get get_;
  Section section_;
};

Section RunSection() {
  SectionBuilder<RunConfig> s("run", "The run.", [](Config& c) -> RunConfig& { return c.run; });
  s.Add("dir", &RunConfig::dir, "directory of everything that the run writes").Required().NonEmpty();
  s.Add("seed", &RunConfig::seed, "seed of the initial weights").AtLeast(0).AtMost(kMaxCount);
  return s.Build();
}

Section RuntimeSection() {
  SectionBuilder<RuntimeConfig> s("runtime", "The machine.",
                                  [](Config& c) -> RuntimeConfig& { return c.runtime; });
  s.Add("device", &RuntimeConfig::device,
        "device of the computation; auto: cuda where it can be used, else cpu")
      .OneOf({"auto", "cpu", "cuda"});
  s.Add("threads", &RuntimeConfig::threads,
        "threads of the cpu device per rank; 0: cores / ranks on the machine")
      .AtLeast(0)
      .AtMost(4096);
  s.Add("deterministic", &RuntimeConfig::deterministic,
        "the same build, configuration and data give the same bits; false permits faster ways that do not");
  s.Add("cuda_graph", &RuntimeConfig::cuda_graph,
        "on cuda, the training step is recorded once as a CUDA graph, communication and all, and replayed, which "
        "gives the same bits with less work for the host; steps that the host takes part in are not: exact replays, "
        "timed ones, those of ep.transport nccl_exact");
  s.Add("attention", &RuntimeConfig::attention,
        "on cuda. auto: cuDNN where it takes the shape; unfused: matrix products and softmax kernels")
      .OneOf({"auto", "unfused"});
  s.Add("attention_workspace_gib", &RuntimeConfig::attention_workspace_gib,
        "on cuda, memory in GiB that attention's backward may take at a time; its deterministic form needs 2 "
        "S^2 bytes "
        "a head and is faster with many heads at once; one head may take more")
      .AtLeast(0.25)
      .AtMost(1024);
  s.Add("recompute", &RuntimeConfig::recompute,
        "what backward computes once more instead of finding it saved, which changes no bit. norms: normalised "
        "states and latents; projections: these and the queries, keys and values of latent attention")
      .OneOf({"none", "norms", "projections"});
  s.Add("saved_inputs", &RuntimeConfig::saved_inputs,
        "how inputs of linear layers which weight gradients alone read (normalised states, where no router does, and "
        "latents) are kept for backward, which changes no bit. compute: in the compute type; recipe: as the 8-bit copies "
        "of precision.compute that weight gradients multiply (docs/quantisation.md)")
      .OneOf({"compute", "recipe"});
  s.Add("run_ahead", &RuntimeConfig::run_ahead,
        "whether a step is enqueued before the host looks at the one before it, so that the device does not wait "
        "for the host; a step's line is then written while the next one runs. auto: on cuda")
      .OneOf({"auto", "always", "never"});
  s.Add("timeout_seconds", &RuntimeConfig::timeout_seconds,
        "how long a rank waits for others before it names them and gives up; more than the longest work of "
        "one rank alone, such as reading a checkpoint")
      .AtLeast(1)
      .AtMost(1e6);
  s.Add("share_device", &RuntimeConfig::share_device,
        "lets more ranks run on a machine than it has GPUs, which they are dealt in turn; for tests: what NCCL "
        "carries between them goes through sockets");
  s.Add("overlap", &RuntimeConfig::overlap,
        "with several ranks, on cuda devices: dispatch and combine beside the shared expert and weight gradients, "
        "reductions beside the backward pass of the layers below. It changes no bit");
  s.Add("two_batch_overlap", &RuntimeConfig::two_batch_overlap,
        "two micro-batches of a step take turns within every layer, so that dispatch and combine of one run beside the "
        "computation of the other (with overlap); takes memory for the saved state of both. Without effect on the last "
        "micro-batch of an odd number. It changes no bit, but for the order of a sum with multi-token prediction");
  s.Add("copy_engines", &RuntimeConfig::copy_engines,
        "with several ranks, on cuda devices: large gradients and weights are carried by copy engines among ranks that "
        "reach each other's memory, which leaves the multiprocessors to computation; false: by NCCL. It changes no bit");
  return s.Build();
}

Section ModelSection() {
  using M = ModelConfig;
  SectionBuilder<M> s(
      "model",
      "The model, with the field names of DeepSeek-V3's `config.json`. Letters: D hidden width, H "
      "heads, E experts, K experts per token, F expert width.",
      [](Config& c) -> M& { return c.model; });
  s.Add("model_type", &M::model_type, "model family")
      .OneOf({"deepseek_v3", "deepseek_v2", "qwen3_moe", "mixtral"});
  s.Add("vocab_size", &M::vocab_size, "vocabulary").Required().AtLeast(2).AtMost(kMaxInt32);
  s.Add("hidden_size", &M::hidden_size, "hidden width D").Required().AtLeast(1).AtMost(kMaxWidth);
  s.Add("num_hidden_layers", &M::num_hidden_layers, "decoder layers")
      .Required()
      .AtLeast(1)
      .AtMost(kMaxLayers);
  s.Add("first_k_dense_replace", &M::first_k_dense_replace, "the first layers that have a dense MLP")
      .AtLeast(0)
      .AtMost(kMaxLayers);
  s.Add("intermediate_size", &M::intermediate_size,
        "width of the dense MLP; needed where there are dense layers")
      .AtLeast(0)
      .AtMost(kMaxWidth);
  s.Add("max_position_embeddings", &M::max_position_embeddings, "longest sequence of the model")
      .AtLeast(1)
      .AtMost(kMaxInt32);
  s.Add("rms_norm_eps", &M::rms_norm_eps, "added to the mean square in each RMSNorm").Above(0).Below(1);
  s.Add("initializer_range", &M::initializer_range, "standard deviation of the initial weights")
      .Above(0)
      .Below(10);
  s.Add("num_attention_heads", &M::num_attention_heads, "heads H").Required().AtLeast(1).AtMost(kMaxExperts);
  s.Add("num_key_value_heads", &M::num_key_value_heads,
        "key and value heads of grouped-query attention (qwen3_moe, mixtral), each for as many query heads; "
        "0: heads H")
      .AtLeast(0)
      .AtMost(kMaxExperts);
  s.Add("head_dim", &M::head_dim, "width of a head of grouped-query attention, even; 0: D / H")
      .AtLeast(0)
      .AtMost(kMaxWidth);
  s.Add("q_lora_rank", &M::q_lora_rank,
        "rank of the query projection; 0 or null: queries are projected directly")
      .AtLeast(0)
      .AtMost(kMaxWidth)
      .NullIsZero();
  s.Add("kv_lora_rank", &M::kv_lora_rank,
        "rank of the key and value projection; this and the next three are required by deepseek_v3 and "
        "deepseek_v2")
      .AtLeast(0)
      .AtMost(kMaxWidth);
  s.Add("qk_nope_head_dim", &M::qk_nope_head_dim, "query and key width of a head without position")
      .AtLeast(0)
      .AtMost(kMaxWidth);
  s.Add("qk_rope_head_dim", &M::qk_rope_head_dim, "query and key width of a head that is rotated; even")
      .AtLeast(0)
      .AtMost(kMaxWidth);
  s.Add("v_head_dim", &M::v_head_dim, "value width of a head").AtLeast(0).AtMost(kMaxWidth);
  s.Add("rope_theta", &M::rope_theta, "base of the rotation frequencies").AtLeast(1);
  s.Add("rope_scaling", &M::rope_scaling, "YaRN, or null for plain rotary positions");
  s.Add("n_routed_experts", &M::n_routed_experts, "routed experts E; 0: a dense model")
      .AtLeast(0)
      .AtMost(kMaxExperts);
  s.Add("num_experts_per_tok", &M::num_experts_per_tok, "routed experts K of a token")
      .AtLeast(0)
      .AtMost(kMaxExperts);
  s.Add("n_shared_experts", &M::n_shared_experts,
        "shared experts: one MLP of n_shared_experts x moe_intermediate_size that every token passes")
      .AtLeast(0)
      .AtMost(kMaxExperts);
  s.Add("moe_intermediate_size", &M::moe_intermediate_size, "width F of an expert")
      .AtLeast(0)
      .AtMost(kMaxWidth);
  s.Add("n_group", &M::n_group, "groups of experts; a token's experts lie in topk_group of them")
      .AtLeast(1)
      .AtMost(kMaxExperts);
  s.Add("topk_group", &M::topk_group, "groups that a token may use").AtLeast(1).AtMost(kMaxExperts);
  s.Add("scoring_func", &M::scoring_func, "router scores; softmax unless model_type is deepseek_v3")
      .OneOf({"sigmoid", "softmax"});
  s.Add("topk_method", &M::topk_method,
        "choice of experts. noaux_tc: a bias for selection only, a group's score is the sum of its two "
        "largest; greedy: "
        "neither bias nor groups; group_limited_greedy: no bias, a group's score is its largest. greedy "
        "unless model_type "
        "is deepseek_v3")
      .OneOf({"noaux_tc", "greedy", "group_limited_greedy"});
  s.Add("norm_topk_prob", &M::norm_topk_prob,
        "the weights of the chosen experts are normalised to sum 1; false by default if model_type is "
        "deepseek_v2");
  s.Add("routed_scaling_factor", &M::routed_scaling_factor, "factor of the routed experts' weights").Above(0);
  s.Add("num_nextn_predict_layers", &M::num_nextn_predict_layers, "multi-token prediction modules")
      .AtLeast(0)
      .AtMost(16);
  s.Add("mtp_input", &M::mtp_input,
        "what a multi-token prediction module gets from below: the state after the last norm (Megatron-Core, "
        "inference "
        "engines) or before it (torchtitan)")
      .OneOf({"post_norm", "pre_norm"});
  s.Only("hidden_act", "silu", "activation of the MLPs");
  s.Only("tie_word_embeddings", "false", "the head has its own weights");
  s.Only("attention_bias", "false", "projections have no bias");
  s.Only("moe_layer_freq", "1", "every layer after the dense ones has experts");
  return s.Build();
}

Section RopeScalingSection() {
  using R = RopeScaling;
  SectionBuilder<R> s(
      "model.rope_scaling",
      "YaRN (arXiv 2309.00071) for contexts beyond those of pre-training. Absent or null: none.",
      [](Config& c) -> R& { return *c.model.rope_scaling; });
  s.Add("type", &R::type, "kind of scaling").OneOf({"yarn"});
  s.Add("factor", &R::factor, "context extension").AtLeast(1);
  s.Add("original_max_position_embeddings", &R::original_max_position_embeddings,
        "context before the extension")
      .AtLeast(1)
      .AtMost(kMaxInt32);
  s.Add("beta_fast", &R::beta_fast, "rotations in the original context above which a frequency is kept")
      .Above(0);
  s.Add("beta_slow", &R::beta_slow,
        "rotations in the original context below which a frequency is interpolated")
      .Above(0);
  s.Add("mscale", &R::mscale, "temperature of the rotated part; taken only with mscale_all_dim, else it is that of 1 (as in Hugging Face)").AtLeast(0);
  s.Add("mscale_all_dim", &R::mscale_all_dim,
        "temperature of the whole softmax scale; 0: only the rotated part is scaled, as for mscale 1")
      .AtLeast(0);
  return s.Build();
}

Section TrainSection() {
  using T = TrainConfig;
  SectionBuilder<T> s("train", "Length and batch of the training.", [](Config& c) -> T& { return c.train; });
  s.Add("steps", &T::steps, "last step of the run; schedules do not depend on it")
      .Required()
      .AtLeast(1)
      .AtMost(kMaxCount);
  s.Add("stop_at_step", &T::stop_at_step,
        "ends this launch early, resumable, without touching schedules; 0: not")
      .AtLeast(0)
      .AtMost(kMaxCount);
  s.Add("sequence_length", &T::sequence_length, "tokens of a sequence")
      .Required()
      .AtLeast(1)
      .AtMost(kMaxInt32);
  s.Add("micro_batch_size", &T::micro_batch_size, "sequences that a rank computes at once")
      .AtLeast(1)
      .AtMost(kMaxWidth);
  s.Add("global_batch_size", &T::global_batch_size,
        "sequences of a step over all ranks, an integer or a schedule; each value a multiple of "
        "micro_batch_size x "
        "data-parallel ranks")
      .Required()
      .AtLeast(1)
      .AtMost(kMaxInt32)
      .Whole();
  s.Add("eval_every_steps", &T::eval_every_steps, "steps between evaluations; 0: only at the end")
      .AtLeast(0)
      .AtMost(kMaxCount);
  s.Add("eval_sequences", &T::eval_sequences,
        "sequences of the held-out part evaluated each time; 0: all of it")
      .AtLeast(0)
      .AtMost(kMaxCount);
  s.Add("mtp_loss_weight", &T::mtp_loss_weight,
        "weight of the loss of multi-token prediction (a mean over positions and depths), a number or a "
        "schedule")
      .AtLeast(0);
  s.Add("max_skipped_steps", &T::max_skipped_steps,
        "steps in a row that may be skipped for a non-finite loss or gradient norm; one more ends the run")
      .AtLeast(0)
      .AtMost(kMaxCount);
  s.Add("replica_check_every_steps", &T::replica_check_every_steps,
        "steps between comparisons of everything that several ranks hold copies of; a difference ends the "
        "run and names tensor and rank; 0: never")
      .AtLeast(0)
      .AtMost(kMaxCount);
  return s.Build();
}

Section ParallelSection() {
  using P = ParallelConfig;
  SectionBuilder<P> s("parallel", "Layout of the ranks: world = dp x pp, and ep divides dp.",
                      [](Config& c) -> P& { return c.parallel; });
  s.Add("ep", &P::ep,
        "ranks that share the experts of a layer; auto: the largest divisor of the data-parallel ranks up to "
        "2")
      .AtLeast(1)
      .AtMost(kMaxExperts)
      .AutoIsZero();
  s.Add("pp", &P::pp, "pipeline stages").AtLeast(1).AtMost(kMaxLayers);
  s.Add("zero", &P::zero, "ZeRO stage: 0 replicates, 1 shards optimizer state over data-parallel ranks")
      .AtLeast(0)
      .AtMost(1);
  return s.Build();
}

Section EpSection() {
  SectionBuilder<EpConfig> s("ep", "Dispatch of tokens to experts.",
                             [](Config& c) -> EpConfig& { return c.ep; });
  s.Add("mode", &EpConfig::mode,
        "expanded: a row crosses for each (token, expert); deduplicated: one for each (token, rank), "
        "replicated on arrival; auto: deduplicated where balanced routing saves more on the wire than the copies cost in "
        "memory (by ranks, experts, top-k and groups alone), expanded where rows travel by NCCL")
      .OneOf({"expanded", "deduplicated", "auto"});
  s.Add("transport", &EpConfig::transport,
        "how rows travel between cuda devices. peer: straight into the peers' memory, which they share by NCCL's windows "
        "(windows) or CUDA IPC (ipc); nccl: in messages of a fixed size for each pair of ranks, expanded only; nccl_exact: "
        "in messages of the size that is needed, for which the host waits in each layer; auto: peer where all ranks of a "
        "group reach each other's memory, else nccl")
      .OneOf({"auto", "peer", "ipc", "windows", "nccl", "nccl_exact"});
  s.Add("payload", &EpConfig::payload,
        "what dispatch carries to experts, forward and backward. compute: rows in the compute type; recipe: rows in "
        "the 8 bits of precision.compute and their scales, about half as many bytes, which are kept for backward too "
        "(docs/quantisation.md). Combine carries the compute type")
      .OneOf({"compute", "recipe"});
  s.Add("num_sms", &EpConfig::num_sms,
        "multiprocessors of a GPU that dispatch and combine over peer memory use; ranks that share a GPU need as many each")
      .AtLeast(1)
      .AtMost(1024);
  s.Add("ragged_buffer_factor", &EpConfig::ragged_buffer_factor,
        "rows of a dispatch window as a multiple of the balanced load, at least 0.01; -1: the worst case. A load "
        "that does not fit is never dropped: its step is computed again, in rounds. Below 1 a balanced one does "
        "not fit")
      .AtLeast(-1);
  s.Add("overflow_check_every_n_steps", &EpConfig::overflow_check_every_n_steps,
        "steps between looks of the host at the overflow flag, at most (it also looks before evaluation, "
        "save and exit); what an overflow spoiled is computed again from there, so a small number is cheap "
        "where windows are often too small, a large one where never")
      .AtLeast(1)
      .AtMost(1024);
  return s.Build();
}

Section MoeSection() {
  SectionBuilder<MoeConfig> s("moe", "Balance of the experts.",
                              [](Config& c) -> MoeConfig& { return c.moe; });
  s.Add("gemm", &MoeConfig::gemm,
        "grouped GEMM of the experts on cuda. auto: the fastest for the GPU, type and shape; hopper: that of "
        "sm_90 or none; portable: that of every GPU; loop: a dense GEMM for each expert with counts read by the host, a "
        "baseline that needs runtime.cuda_graph false. With mxfp8 all but auto keep every product, those of linear layers "
        "too, away from units that multiply MXFP8 (docs/quantisation.md)")
      .OneOf({"auto", "hopper", "portable", "loop"});
  s.Add("bias_update_speed", &MoeConfig::bias_update_speed,
        "step of the router bias after each batch (balance without auxiliary loss), a number or a schedule; "
        "0: none")
      .AtLeast(0);
  s.Add("sequence_balance_weight", &MoeConfig::sequence_balance_weight,
        "weight of DeepSeek's sequence-wise balance loss (1 at balance; docs/balancing.md); 0: none")
      .AtLeast(0);
  s.Add("micro_batch_balance_weight", &MoeConfig::micro_batch_balance_weight,
        "weight of the balance loss by micro-batch (1 at balance); 0: none")
      .AtLeast(0);
  s.Add("global_batch_balance_weight", &MoeConfig::global_batch_balance_weight,
        "weight of the balance loss against the load of the previous global batch (1 at balance); 0: none")
      .AtLeast(0);
  s.Add("router_z_weight", &MoeConfig::router_z_weight,
        "weight of the router's z-loss, the mean of logsumexp squared; 0: none")
      .AtLeast(0);
  s.Add("capacity_factor", &MoeConfig::capacity_factor,
        "capacity of an expert in a micro-batch of training, as a multiple of the balanced load; pairs "
        "beyond are dropped "
        "and counted; 0: dropless")
      .AtLeast(0);
  s.Add("drop_policy", &MoeConfig::drop_policy,
        "which pairs stay within the capacity: those of the largest weight, or of the first tokens")
      .OneOf({"probs", "position"});
  s.Add("pad_to_capacity", &MoeConfig::pad_to_capacity,
        "with a capacity: rows of zeros fill every expert up to it, so that all compute the same number of "
        "rows; results are the same");
  s.Add("force_routing", &MoeConfig::force_routing,
        "for benchmarks: experts by the number of the token, balanced, or skewed by force_skew")
      .OneOf({"none", "balanced", "skewed"});
  s.Add("force_skew", &MoeConfig::force_skew,
        "largest over mean load of force_routing skewed, at most n_routed_experts / num_experts_per_tok")
      .AtLeast(1);
  return s.Build();
}

Section PrecisionSection() {
  SectionBuilder<PrecisionConfig> s("precision", "Number formats.",
                                    [](Config& c) -> PrecisionConfig& { return c.precision; });
  s.Add("compute", &PrecisionConfig::compute,
        "type of weights and activations, or a recipe of 8-bit products (docs/quantisation.md)")
      .OneOf({"fp32", "fp64", "bf16", "fp8_block", "mxfp8"});
  s.Add("fp8_block_scales", &PrecisionConfig::fp8_block_scales,
        "scales of fp8_block: amax / 448, or that rounded up to a power of two")
      .OneOf({"power_of_two", "exact"});
  return s.Build();
}

Section OptimizerSection() {
  using O = OptimizerConfig;
  SectionBuilder<O> s("optimizer", "The optimizer.", [](Config& c) -> O& { return c.optimizer; });
  s.Add("type", &O::type, "AdamW with decoupled weight decay").OneOf({"adamw"});
  s.Add("beta1", &O::beta1, "decay of the first moment").AtLeast(0).Below(1);
  s.Add("beta2", &O::beta2, "decay of the second moment").AtLeast(0).Below(1);
  s.Add("eps", &O::eps, "added to the root of the second moment").Above(0).Below(1);
  s.Add("weight_decay", &O::weight_decay, "decoupled weight decay, multiplied by the learning rate")
      .AtLeast(0);
  s.Add("decay_norms", &O::decay_norms, "weight decay for the weights of norms");
  s.Add("decay_embedding", &O::decay_embedding, "weight decay for embedding and head");
  s.Add("clip_grad_norm", &O::clip_grad_norm, "largest global gradient norm; 0: no clipping").AtLeast(0);
  s.Add("moments", &O::moments, "type in which moments are kept; F64 with precision.compute fp64").OneOf({"fp32", "bf16"});
  return s.Build();
}

Section ScheduleSection() {
  SectionBuilder<ScheduleConfig> s("schedule", "Schedules by tokens.",
                                   [](Config& c) -> ScheduleConfig& { return c.schedule; });
  s.Add("learning_rate", &ScheduleConfig::learning_rate, "learning rate: a number, segments or a preset")
      .Required()
      .AtLeast(0);
  return s.Build();
}

Section DataSection() {
  using D = DataConfig;
  SectionBuilder<D> s("data", "The data: Megatron `.bin`/`.idx` pairs, named by their common prefix.",
                      [](Config& c) -> D& { return c.data; });
  s.Add("train", &D::train, "prefix of the training data").Required().NonEmpty();
  s.Add("validation", &D::validation, "prefix of the held-out data; empty: no evaluation");
  s.Add("shuffle", &D::shuffle, "documents and samples in a random order of each epoch");
  s.Add("attend_across_documents", &D::attend_across_documents,
        "tokens attend to earlier documents of their sample, as in DeepSeek-V3's pre-training; false: they "
        "do not");
  s.Add("reset_positions", &D::reset_positions, "rotary positions begin anew with each document of a sample");
  s.Add("seed", &D::seed, "seed of that order").AtLeast(0).AtMost(kMaxCount);
  return s.Build();
}

Section CheckpointSection() {
  using C = CheckpointConfig;
  SectionBuilder<C> s("checkpoint", "Checkpoints, under `run.dir`/checkpoints.",
                      [](Config& c) -> C& { return c.checkpoint; });
  s.Add("every_steps", &C::every_steps, "steps between checkpoints; 0: only at the end and on request")
      .AtLeast(0)
      .AtMost(kMaxCount);
  s.Add("keep_latest", &C::keep_latest, "checkpoints that are kept, at least 2; 0: all")
      .AtLeast(0)
      .AtMost(kMaxCount);
  s.Add("resume", &C::resume, "auto: from the newest good checkpoint; never; or the number of a step")
      .OneOf({"auto", "never"})
      .OrInteger();
  s.Add("verify", &C::verify,
        "check before resuming: every byte, or only names and sizes; what is read is checked in any case, "
        "and all of it once something is wrong")
      .OneOf({"full", "sizes"});
  s.Add("save_at_end", &C::save_at_end, "a checkpoint of the last step");
  return s.Build();
}

Section LoggingSection() {
  using L = LoggingConfig;
  SectionBuilder<L> s("logging", "The console; metrics.jsonl has every step.",
                      [](Config& c) -> L& { return c.logging; });
  s.Add("every_steps", &L::every_steps, "steps between console lines").AtLeast(1).AtMost(kMaxCount);
  s.Add("timings_every_steps", &L::timings_every_steps,
        "steps between those whose ops are timed, for the console and metrics.jsonl; a timed step is not "
        "replayed "
        "from a CUDA graph; 0: none")
      .AtLeast(0)
      .AtMost(kMaxCount);
  s.Add("state_hash", &L::state_hash,
        "the last lines hold a hash of weights, moments and buffers; it reads all of them, seconds a GiB");
  s.Add("color", &L::color, "colours; auto: never under mpirun or into a pipe")
      .OneOf({"auto", "always", "never"});
  return s.Build();
}

}  // namespace

const std::vector<Section>& ConfigSchema() {
  static const std::vector<Section> schema = {
      RunSection(),      RuntimeSection(), ModelSection(),      RopeScalingSection(), TrainSection(),
      ParallelSection(), EpSection(),      MoeSection(),        PrecisionSection(),   OptimizerSection(),
      ScheduleSection(), DataSection(),    CheckpointSection(), LoggingSection()};
  return schema;
}

const Section* FindSection(const std::string& path) {
  for (const Section& section : ConfigSchema()) {
    if (section.path == path) return &section;
  }
  return nullptr;
}

const Field* FindField(const Section& section, const std::string& name) {
  for (const Field& field : section.fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

}  // namespace yardmaster
