#include "src/nn/parameter.h"

#include "src/base/philox.h"
#include "src/ops/elementwise.h"
#include "src/ops/random_normal.h"

namespace yardmaster {

Parameter* ParameterList::Add(const std::string& name, const Shape& global_shape, DecayClass decay,
                              InitKind init, double init_std) {
  YM_CHECK(Find(name) == nullptr, "two parameters are named ", name);
  auto p = std::make_unique<Parameter>();
  p->name = name;
  p->spec = ShardSpec::Replicated(global_shape);
  p->decay = decay;
  p->init = init;
  p->init_std = init_std;
  parameters_.push_back(std::move(p));
  by_name_[name] = parameters_.back().get();
  return parameters_.back().get();
}

Parameter* ParameterList::AddExpert(const std::string& name, const Shape& global_shape, int64_t begin,
                                    int64_t count, double init_std) {
  YM_CHECK(0 <= begin && 0 < count && begin + count <= global_shape[0], "experts ", begin, " + ", count,
           " of ", global_shape);
  Parameter* p = Add(name, global_shape, DecayClass::kMatrix, InitKind::kNormal, init_std);
  p->group = ParameterGroup::kExpert;
  p->spec.box.begin[0] = begin;
  p->spec.box.extent[0] = count;
  return p;
}

Buffer* ParameterList::AddBuffer(const std::string& name, const Shape& shape, DType dtype) {
  YM_CHECK(buffer_names_.insert(name).second, "two buffers are named ", name);
  auto b = std::make_unique<Buffer>();
  b->name = name;
  b->spec = ShardSpec::Replicated(shape);
  b->dtype = dtype;
  buffers_.push_back(std::move(b));
  return buffers_.back().get();
}

Parameter* ParameterList::Find(const std::string& name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : at->second;
}

namespace {

// 8-bit copies of [N, K] or [L, N, K], for forward and, with gradients, for the input gradient.
WeightCopies AllocateCopies(const Parameter& p, const QuantFormat& format, bool gradients, Arena& weights) {
  const Shape shape(p.spec.box.extent);
  const int64_t L = shape.rank() == 3 ? shape[0] : 1, N = shape[-2], K = shape[-1];
  const auto copy = [&](int64_t rows, int64_t columns) {
    return AllocateQuantized(weights, p.name.c_str(), format, {L, rows, columns});
  };
  WeightCopies copies{.format = format, .rows = copy(N, K), .cols = {}};
  if (gradients) copies.cols = copy(K, N);
  return copies;
}

}  // namespace

void AllocateParameters(const ParameterList& list, ComputeTypes types, Arena& weights, Arena* grads) {
  for (const auto& p : list.parameters()) {
    const Shape local(p->spec.box.extent);
    const DType value_type = p->value_in_accum ? types.accum : types.compute;
    const bool quantised = p->in_recipe && types.recipe.format;
    p->master = weights.Allocate(p->name.c_str(), types.accum, local);
    p->value = value_type == types.accum ? p->master
               : quantised               ? Tensor()
                                         : weights.Allocate(p->name.c_str(), value_type, local);
    p->copies = quantised ? AllocateCopies(*p, *types.recipe.format, grads != nullptr, weights) : WeightCopies();
    p->grad = grads ? grads->Allocate(p->name.c_str(), types.accum, local) : Tensor();
  }
  for (const auto& b : list.buffers()) {
    b->value = weights.Allocate(b->name.c_str(), b->dtype, Shape(b->spec.box.extent));
    if (b->value.data() == nullptr) continue;  // dry
    const HostTensor zeros(b->dtype, b->value.shape());
    weights.device()->CopyFromHost(b->value.data(), zeros.view().data(),
                                   static_cast<size_t>(b->value.bytes()));
  }
}

void QuantizeParameters(const ParameterList& list, const Stream& stream) {
  for (const auto& p : list.parameters()) {
    if (p->copies.defined()) QuantizeWeights(stream, p->copies, p->master);
  }
}

void InitialiseParameters(const ParameterList& list, uint64_t seed, Device& device) {
  const Stream stream(&device);
  for (const auto& p : list.parameters()) {
    YM_CHECK(p->master.defined(), p->name, " has no memory yet");
    if (p->master.data() == nullptr) continue;  // dry
    const Tensor copy = p->has_rounded_value() ? p->value : Tensor();
    if (p->init == InitKind::kOnes) {
      Fill(stream, 1, p->master);
      if (copy.defined()) Fill(stream, 1, copy);
    } else {
      RandomNormal(stream, {.seed = seed,
                            .number_stream = StreamOf(p->name.c_str()),
                            .scale = p->init_std,
                            .spec = p->spec,
                            .y = p->master,
                            .copy = copy});
    }
  }
  QuantizeParameters(list, stream);
  stream.Synchronize();
}

}  // namespace yardmaster
