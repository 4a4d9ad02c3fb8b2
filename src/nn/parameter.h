// File: src/nn/parameter.h
//
// What a module owns. Modules declare parameters and buffers when they are built; memory is given to all of
// them at once afterwards (AllocateParameters), so that every byte is planned. The list is the single truth
// that the optimizer, ZeRO, checkpoints, HF import/export, clipping and replica checks walk
// (model/registry.h).
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "src/device/arena.h"
#include "src/ops/recipe_gemm.h"
#include "src/tensor/shard_spec.h"

namespace yardmaster {

enum class ParameterGroup : uint8_t {
  kDense,   // the same on every data-parallel rank; gradients reduced over dp
  kExpert,  // first axis = experts, split over ep; gradients reduced over edp
};
enum class DecayClass : uint8_t { kMatrix, kNorm, kEmbedding };
enum class InitKind : uint8_t { kNormal, kOnes };

struct Parameter {
  std::string name;  // global and unique; Hugging Face's name where one tensor is one tensor there
  ShardSpec spec;    // global shape and the box that this rank computes with
  ParameterGroup group = ParameterGroup::kDense;
  DecayClass decay = DecayClass::kMatrix;
  InitKind init = InitKind::kNormal;
  double init_std = 0;
  bool value_in_accum = false;  // the router: computed with in the accumulator type
  bool in_recipe = false;       // of a linear layer or of experts: multiplied in the run's recipe
  // Compute type (accumulator type if value_in_accum). Undefined where a recipe multiplies 8-bit copies and the
  // compute type is not the master's: nothing reads it.
  Tensor value;
  Tensor master;                // F32 (F64 in fp64 mode); the same memory as value when the types are equal
  WeightCopies copies;          // of a parameter in a recipe
  Tensor grad;                  // main gradient: F32 (F64 in fp64 mode)
  bool embeds = false;          // a table whose gradient EmbeddingBackward writes
  // Addends of the gradient's norm (ops/step_control.h), F64, where whoever writes the gradient can sum them on the
  // way; undefined: nobody does.
  Tensor squares;
  int64_t squares_per_chunk = 0;
  bool squared = false;         // they are those of the gradient as it is
  bool fresh = true;            // no gradient written in this step yet
  bool written_once = false;    // nothing is added to what is written first in this step

  // Whether `value` is a rounded copy of the master in memory of its own.
  bool has_rounded_value() const { return value.defined() && value.data() != master.data(); }
  RecipeWeight weight() const { return {value, copies}; }

  // 0 for the first contribution of a step, 1 afterwards: the beta of whatever writes the gradient, so that
  // no gradient is cleared by a pass of its own. Host state only: the order of writers is the same in every
  // step.
  double TakeGradBeta() {
    const double beta = fresh ? 0 : 1;
    fresh = squared = false;
    return beta;
  }

  // The same for a writer that sums squares where they are wanted.
  struct GradWrite {
    double beta;
    Tensor squares;  // undefined: not wanted
  };
  GradWrite TakeGradWrite() {
    const bool wanted = fresh && written_once && squares.defined();
    const double beta = TakeGradBeta();
    squared = wanted;
    return {beta, wanted ? squares : Tensor{}};
  }
};

// State that is no parameter: kept in checkpoints, not touched by the optimizer (the router's bias).
struct Buffer {
  std::string name;
  ShardSpec spec;
  DType dtype = DType::kF32;
  bool published = true;  // false: state of training, which model files do not hold
  Tensor value;           // zero at the start of a fresh run
};

class ParameterList {
 public:
  Parameter* Add(const std::string& name, const Shape& global_shape, DecayClass decay, InitKind init,
                 double init_std);
  // An expert tensor [E, ...] of which this rank owns experts [begin, begin + count).
  Parameter* AddExpert(const std::string& name, const Shape& global_shape, int64_t begin, int64_t count,
                       double init_std);
  Buffer* AddBuffer(const std::string& name, const Shape& shape, DType dtype);

  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  const std::vector<std::unique_ptr<Buffer>>& buffers() const { return buffers_; }
  Parameter* Find(const std::string& name) const;  // null if absent
  // written_once: of one micro-batch, so that no gradient is added to.
  void BeginStep(bool written_once = false) {
    for (auto& p : parameters_) {
      p->fresh = true;
      p->squared = false;
      p->written_once = written_once;
    }
  }

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::unordered_map<std::string, Parameter*> by_name_;
  std::unordered_set<std::string> buffer_names_;
};

struct ComputeTypes {
  DType compute = DType::kF32;  // weights, activations
  DType accum = DType::kF32;    // main gradients, masters, router, statistics
  GemmRecipe recipe = {};       // matrix products of linear layers and experts
};

// Gives every parameter and buffer its memory: values, copies and buffers from `weights`, gradients from `grads`
// (null: none, evaluation only).
void AllocateParameters(const ParameterList& list, ComputeTypes types, Arena& weights, Arena* grads);

// Makes the 8-bit copies of all parameters in a recipe anew, from their masters: after these have been written.
// Nothing without a recipe, and on the dry device.
void QuantizeParameters(const ParameterList& list, const Stream& stream);

// Fills masters (values and copies) by Philox from (seed, parameter name, global element index): independent of the
// layout.
void InitialiseParameters(const ParameterList& list, uint64_t seed, Device& device);

}  // namespace yardmaster
