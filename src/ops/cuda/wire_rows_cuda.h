// File: src/ops/cuda/wire_rows_cuda.h
#pragma once

#include "src/ops/wire_rows.h"

namespace yardmaster::cuda {

// Arguments checked.
void PackRows(const Stream& stream, const PackRowsArgs& args);
void UnpackRows(const Stream& stream, const UnpackRowsArgs& args);

}  // namespace yardmaster::cuda
