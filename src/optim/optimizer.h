// File: src/optim/optimizer.h
//
// From the main gradients of a step to new weights, on one path for every layout:
//   ReduceGradients  reduce-scatter: dense over dp, experts over edp (sums, in rank order)
//   Norm             double partial sums over fixed chunks of the global tensors, added in global order. A gradient whose
//                    writer or whose reduction summed its squares (Parameter::squares, Shard::squares) is not read for it
//   Update           AdamW on the rows that this rank owns (zero: 0 gathers the gradients first and updates all rows), then
//                    every rank gets all rows back, and makes 8-bit copies of weights in a recipe where AdamW did not
// With `parallel.zero: 1` each rank keeps optimizer state only for the rows that it owns; the bits do not change.
// Update reads the verdict in device memory and skips itself; nothing here waits for the host.
#pragma once

#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/config/config.h"
#include "src/model/registry.h"
#include "src/nn/context.h"
#include "src/ops/adamw.h"
#include "src/ops/step_control.h"

namespace yardmaster {

struct OptimizerGroups {
  Communicator* world;  // all ranks that hold parts of this model stage: norm
  Communicator* dense;  // dp
  Communicator* expert; // edp
};

class Optimizer {
 public:
  // grouped_gemm: of the experts' products, which sum squares or do not.
  Optimizer(const OptimizerConfig& config, int64_t zero, Registry registry, ComputeTypes types, OptimizerGroups groups,
            GroupedGemmMode grouped_gemm = GroupedGemmMode::kAuto);

  // Moments (zeroed), the norm's partial sums, and room for those who sum squares where they write or reduce gradients.
  void Allocate(Arena& arena, const Stream& stream);

  // Early: of the registry's parameters [begin, end), on a stream beside the backward pass, which must have given them all
  // of this step's gradients. ReduceGradients reduces the others.
  void ReduceEarly(const Stream& stream, size_t begin, size_t end);
  void ReduceGradients(const Stream& stream);
  // -> partials(). Gradients that no other rank shares, which `reducing` leaves alone, are squared
  // first, beside what is still on its way there; then ctx.stream waits for that. Either may be the
  // other.
  void Norm(Context& ctx, const Stream& reducing);
  const Tensor& partials() const { return partials_; }       // F64 [chunks of all parameters], the same on every rank
  // Update and gather. Dense weights come first and travel on `gathering`, which may be ctx.stream, while those of the
  // experts are computed.
  void Update(Context& ctx, const Tensor& step_state, const Stream& gathering);

  // What this rank writes to a checkpoint: the rows it owns of weights and moments; and what it wants back: all rows of
  // the weights, and of the moments what it keeps.
  std::vector<StateTensor> SavedState() const;
  std::vector<StateTensor> LoadedState() const;
  // What must be the same on every rank that holds it: weights as they are computed with, values
  // and 8-bit copies; with zero 0 masters and moments too. With zero 1 a moment is there once, and
  // a master that is not the value itself is up to date in its owner's rows alone: other ranks are
  // sent values.
  std::vector<ReplicaTensor> ReplicatedState() const;

 private:
  // A range of whole rows of a local tensor is one box of it, or up to three (parallel/zero.h).
  struct Shard {
    Parameter* parameter;
    Communicator* group;
    bool shared() const { return group->size() > 1; }
    std::vector<int64_t> bounds;      // elements of the local tensor, one range per rank of the group
    int64_t begin, end;               // this rank's own range
    int64_t kept_begin, kept_end;     // the range of moments kept here: own (zero 1) or all (zero 0)
    int64_t first_chunk;              // index into partials_ of the global tensor's first chunk
    double weight_decay;
    Tensor m, v;                      // [kept elements]
    Tensor squares;                   // F64 [runs of the own range], from the reduction; undefined: Norm squares the sum
    bool reduced = false;             // by ReduceEarly, in this step
    bool quantised_with_update = false;  // this rank updates all rows: its 8-bit copies are made in the same pass
    bool expert = false;
  };
  // A gradient to which no part of the model contributed in this step is zero: not every part runs
  // in every step.
  static void ClearUnused(const Stream& stream, const Parameter& p);
  void Reduce(const Stream& stream, Shard& shard);
  // `work` must not be used on another stream meanwhile.
  void Gather(const Stream& stream, bool expert, Arena& work) const;
  void GatherCopies(const Stream& stream, const Shard& shard, Arena& work) const;
  void Squares(const Stream& stream, bool shared) const;
  void AllocateSquares(Arena& arena, const Stream& stream, Shard& shard) const;
  int64_t ChunkOf(const Shard& shard, const Box& local) const;
  std::vector<StateTensor> State(bool own_rows_only) const;

  OptimizerConfig config_;
  int64_t zero_;
  ComputeTypes types_;
  OptimizerGroups groups_;
  GroupedGemmMode grouped_gemm_;
  std::vector<Shard> shards_;
  std::vector<AdamWTensor> dense_, expert_;  // rebuilt by Allocate: the arguments of AdamWMulti
  int64_t num_chunks_ = 0;
  Tensor partials_;
};

}  // namespace yardmaster
