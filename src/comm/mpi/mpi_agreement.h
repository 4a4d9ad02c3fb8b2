// File: src/comm/mpi/mpi_agreement.h
//
// Agreement (base/agreement.h) over all ranks by MPI, with deadlines. Private to src/comm/mpi:
// MpiWorld makes it.
#pragma once

#include <memory>

#include "src/base/agreement.h"
#include "src/comm/mpi/mpi_call.h"

namespace yardmaster {

std::unique_ptr<Agreement> MakeMpiAgreement(std::shared_ptr<MpiState> state);

}  // namespace yardmaster
