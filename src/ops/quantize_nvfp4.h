// File: src/ops/quantize_nvfp4.h
//
// NVFP4: E2M1 codes, two a byte (the even column in the low half), an E4M3 scale per run of 16 and one FP32
// scale per tensor. docs/quantisation.md has the arithmetic and what a training recipe would need beyond it.
#pragma once

#include "src/device/device.h"

namespace yardmaster {

inline constexpr int64_t kNvfp4Run = 16;

// out F32 [1] = largest magnitude of x [R, C] (F32 or BF16, ld >= C); NaN or infinite if an element is; 0
// without elements.
void AbsMax(const Stream& stream, const Tensor& x, const Tensor& out);

struct Nvfp4Args {
  Tensor x;       // [R, C] F32 or BF16, ld >= C; C even, and a multiple of 16 on cuda
  Tensor amax;    // F32 [1] in device memory: AbsMax of x, or of a larger tensor that x is part of
  Tensor codes;   // U8 [R, C / 2]
  Tensor scales;  // U8 [R, ceil(C / 16)]: E4M3
};
void QuantizeNvfp4(const Stream& stream, const Nvfp4Args& args);
// out [R, C] F32, or that rounded to BF16; args.x is not read.
void DequantizeNvfp4(const Stream& stream, const Nvfp4Args& args, const Tensor& out);

}  // namespace yardmaster
