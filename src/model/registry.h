// File: src/model/registry.h
//
// The parameter registry: what the layers above see of a model. Order is the order of declaration (embedding,
// layers, final norm, head), the same on every rank; global norms and hashes are taken in it.
#pragma once

#include <vector>

#include "src/nn/parameter.h"
#include "src/tensor/state.h"

namespace yardmaster {

class Registry {
 public:
  explicit Registry(ParameterList* list) : list_(list) {}
  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return list_->parameters(); }
  const std::vector<std::unique_ptr<Buffer>>& buffers() const { return list_->buffers(); }
  ParameterList& list() const { return *list_; }
  // Masters and buffers as checkpoint state, names as they are.
  std::vector<StateTensor> State() const;

 private:
  ParameterList* list_;
};

}  // namespace yardmaster
