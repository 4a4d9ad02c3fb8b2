// File: src/ops/cpu/gemm_cpu.h
//
// GEMM on the cpu device: the longer side of D is cut into blocks, each one call of single-threaded
// OpenBLAS. The cut depends on the shape alone, so the bits do not depend on the number of threads.
#pragma once

#include "src/ops/gemm.h"

namespace yardmaster::cpu {

void Gemm(const Stream& stream, const GemmArgs& args);  // arguments checked, m and n not 0

}  // namespace yardmaster::cpu
