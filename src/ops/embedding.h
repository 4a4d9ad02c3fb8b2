// File: src/ops/embedding.h
#pragma once

#include "src/device/arena.h"
#include "src/device/device.h"

namespace yardmaster {

// x_TD[t] = table_VD[ids[t]]. Ids are checked against V by the data reader, never here.
void EmbeddingForward(const Stream& stream, const Tensor& ids /* int32 [T] */, const Tensor& table_VD, const Tensor& x_TD);

// dtable_VD[v] = beta * dtable_VD[v] + sum over t ascending with ids[t] == v of dx_TD[t]. Deterministic.
// squares, with beta 0: F64 [V * n], the addends of dtable's norm (ops/step_control.h), n for each row, so that rows
// without tokens need not be read for it. n is EmbeddingNormAddends, 0 where they are not summed: on cpu, and for rows
// that are not made of 16 bytes.
void EmbeddingBackward(const Stream& stream, const Tensor& ids, const Tensor& dx_TD, double beta, const Tensor& dtable_VD, Arena& work,
                       const Tensor& squares = {});
int64_t EmbeddingNormAddends(const Stream& stream, DType dx, const Tensor& dtable_VD);

}  // namespace yardmaster
