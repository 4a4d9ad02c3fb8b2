// File: src/comm/mpi/mpi_roll_call.h
//
// RollCall over a communicator of its own, so that its messages meet no others. Private to src/comm/mpi:
// MpiWorld makes it.
#pragma once

#include <memory>

#include "src/comm/mpi/mpi_call.h"
#include "src/comm/roll_call.h"

namespace yardmaster {

std::unique_ptr<RollCall> MakeMpiRollCall(std::shared_ptr<MpiState> state);

}  // namespace yardmaster
