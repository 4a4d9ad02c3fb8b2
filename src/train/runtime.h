// File: src/train/runtime.h
//
// What a process is before it trains: its ranks and groups, its device and the reason for it, the dispatcher.
// Passed in, never global.
#pragma once

#include <memory>
#include <string>

#include "src/base/agreement.h"
#include "src/comm/communicator.h"
#include "src/comm/ep/cuda/peer_table.h"
#include "src/comm/ep/dispatcher.h"
#include "src/comm/ep/ep_plan.h"
#include "src/comm/mpi/mpi_world.h"
#include "src/comm/nccl/nccl_world.h"
#include "src/config/reader.h"
#include "src/device/cuda/make_cuda_device.h"
#include "src/parallel/mesh.h"
#include "src/train/engine.h"

namespace yardmaster {

// Why a run with `local_ranks` processes on a machine of this status cannot be on its cuda devices; empty: it
// can.
std::string WhyNotCuda(const Config& config, int local_ranks, const CudaStatus& status);

// The device of a run with `local_ranks` processes on this machine: what runtime.device says; auto: cuda
// where this build, this machine, the number of ranks, the precision and everything else that the config asks
// for allow it, else cpu. `reason`, for the start-up summary. Throws ConfigError when the device that was
// asked for cannot be had, or no device computes in the precision.
DeviceKind ChooseDevice(const Config& config, int local_ranks, std::string* reason);
// The same on a machine of this status. Where it has GPUs that cannot run the configuration, ConfigError, with
// runtime.device auto too: who has GPUs does not expect to train on the cpu.
DeviceKind ChooseDevice(const Config& config, int local_ranks, const CudaStatus& status, std::string* reason);

// The ranks that share the experts of a layer among `world`: what parallel.ep says; auto: the largest divisor of
// the data-parallel ranks up to 2 that divides the experts too.
int64_t ExpertParallelRanks(const Config& config, int64_t world);
// How rank `ep_index` of an expert-parallel group of `ep` dispatches.
EpOptions DispatchOptions(const Config& config, int64_t ep, int64_t ep_index);

class Runtime {
 public:
  // `loaded` decides device, threads and layout. `world` null: one process without MPI. Throws ConfigError
  // for an impossible layout or a device that is not there, on any rank. Collective.
  Runtime(const LoadedConfig& loaded, MpiWorld* world);

  int rank() const { return world_ ? world_->rank() : 0; }
  int size() const { return world_ ? world_->size() : 1; }
  int ranks_on_machine() const { return world_ ? world_->local_size() : 1; }
  int ranks_on_device() const { return ranks_on_device_; }  // of memory: a GPU's, or on cpu the machine's
  const Mesh& mesh() const { return mesh_; }
  Device& device() { return *device_; }
  const std::string& device_reason() const { return device_reason_; }
  Agreement& agreement() { return *agreement_; }
  Dispatcher* dispatcher() { return dispatcher_.get(); }  // null for a model without experts
  // Where Engine's arenas for dispatch lie: memory that peers reach, or null for the device's own.
  Device* dispatch_memory() { return peer_memory_.get(); }
  // A recorded step was enqueued: the watchdog's affair.
  void NoteReplay();
  std::string transport() const;  // how ranks talk, for the start-up summary; "" for one
  Groups groups() { return {stage_.get(), dp_.get(), edp_.get()}; }
  int dp_rank() const { return dp_->rank(); }
  int dp_size() const { return dp_->size(); }

 private:
  void MakeDevice(const Config& config);
  std::unique_ptr<Communicator> Group(const std::vector<int64_t>& ranks, const char* name);
  std::unique_ptr<Dispatcher> MakeDispatcher(const Config& config);
  std::unique_ptr<Dispatcher> MakeCudaDispatcher(const Config& config, EpOptions ep);

  MpiWorld* world_;
  int ranks_on_device_ = 1;
  Mesh mesh_;
  std::unique_ptr<Agreement> agreement_;
  std::unique_ptr<Device> device_;
  std::string device_reason_, ep_transport_;
  std::unique_ptr<NcclWorld> nccl_;  // several ranks on cuda devices
  std::unique_ptr<Communicator> stage_, dp_, edp_;
  std::unique_ptr<Communicator> ep_;  // null without expert parallelism
  std::unique_ptr<MpiCommunicator> ep_control_;
  std::unique_ptr<PeerTable> peers_;
  std::unique_ptr<PeerMemory> peer_memory_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

}  // namespace yardmaster
