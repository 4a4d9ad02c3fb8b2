#include "src/model/registry.h"

namespace yardmaster {

std::vector<StateTensor> Registry::State() const {
  std::vector<StateTensor> state;
  for (const auto& p : parameters()) state.push_back({p->name, p->master, p->spec});
  for (const auto& b : buffers()) state.push_back({b->name, b->value, b->spec});
  return state;
}

}  // namespace yardmaster
