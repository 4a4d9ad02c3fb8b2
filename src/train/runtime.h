// File: src/train/runtime.h
//
// What a process is before it trains: its ranks and groups, its device and the reason for it, the dispatcher. Passed in,
// never global.
#pragma once

#include <memory>
#include <string>

#include "src/base/agreement.h"
#include "src/comm/communicator.h"
#include "src/comm/ep/dispatcher.h"
#include "src/comm/mpi/mpi_world.h"
#include "src/config/config.h"
#include "src/train/engine.h"

namespace yardmaster {

class Runtime {
 public:
  // `config` decides device, threads and layout; `world` may be of one rank. Throws ConfigError for an impossible
  // layout or a device that is not there.
  Runtime(const Config& config, MpiWorld* world);

  int rank() const { return world_->rank(); }
  int size() const { return world_->size(); }
  Device& device() { return *device_; }
  Agreement& agreement() { return *agreement_; }
  Dispatcher& dispatcher() { return *dispatcher_; }
  Groups groups() { return {world_group_.get(), dp_.get(), edp_.get()}; }
  int dp_rank() const { return dp_->rank(); }
  int dp_size() const { return dp_->size(); }
  int64_t ep() const { return ep_size_; }
  const std::string& device_reason() const { return device_reason_; }

 private:
  MpiWorld* world_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Agreement> agreement_;
  std::unique_ptr<Communicator> world_group_, dp_, ep_, edp_;
  std::unique_ptr<Dispatcher> dispatcher_;
  int64_t ep_size_ = 1;
  std::string device_reason_;
};

// auto, cpu or cuda -> cpu or cuda, with one sentence why. Throws ConfigError when cuda is asked for and not there.
std::string ChooseDevice(const std::string& wanted, std::string* reason);

}  // namespace yardmaster
