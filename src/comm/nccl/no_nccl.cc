// NcclWorld of a build without CUDA: nothing makes one, since there is no cuda device either.
#include "src/base/error.h"
#include "src/comm/nccl/nccl_world.h"

namespace yardmaster {

struct NcclWorld::Impl {};

NcclWorld::NcclWorld(MpiWorld* /*world*/, Agreement* /*agreement*/, Device* /*device*/,
                     const NcclOptions& /*options*/) {
  throw ConfigError("there is no NCCL: this program was built without CUDA", "runtime.device",
                    "build on a machine with the CUDA toolkit, cuDNN and NCCL, or set runtime.device to cpu");
}
NcclWorld::~NcclWorld() = default;
std::unique_ptr<Communicator> NcclWorld::Group(const std::vector<int64_t>& /*ranks*/,
                                               const std::string& /*name*/, bool /*apart*/) {
  return nullptr;
}
void NcclWorld::Replayed(const Stream& /*stream*/) {}
std::string NcclWorld::description() const { return ""; }

}  // namespace yardmaster
