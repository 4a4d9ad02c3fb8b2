// File: kernels/quantize/sources.cuh
//
// Where the values of a quantised tile come from: a thread's eight rows of eight neighbours, and their
// magnitudes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/swiglu/swiglu_act.cuh"

namespace yardmaster {

// 16 bytes that are read once, or zeros. Volatile: all of a thread's loads are on their way before anything
// waits for one.
__device__ __forceinline__ void LoadOnce(const void* p, bool there, uint32_t& a, uint32_t& b, uint32_t& c,
                                         uint32_t& d) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.u32 p, %5, 0;\n mov.u32 %0, 0;\n mov.u32 %1, 0;\n mov.u32 %2, 0;\n "
      "mov.u32 %3, 0;\n"
      " @p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
      : "=&r"(a), "=&r"(b), "=&r"(c), "=&r"(d)
      : "l"(p), "r"(static_cast<uint32_t>(there)));
}

// Eight elements as they were loaded. Magnitudes are words without signs, whose order as numbers is theirs by
// size, with infinity and NaN on top: two BF16 in one, or one F32.
template <class T>
struct Eight;

template <>
struct Eight<__nv_bfloat16> {
  static constexpr int kWords = 4;
  uint32_t w[4];
  __device__ __forceinline__ void Load(const __nv_bfloat16* p, bool there) {
    LoadOnce(p, there, w[0], w[1], w[2], w[3]);
  }
  __device__ __forceinline__ float Get(int j) const {
    return __uint_as_float(j % 2 ? w[j / 2] & 0xFFFF0000u : w[j / 2] << 16);
  }
  __device__ __forceinline__ void Set(int k, float even, float odd) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(even, odd);
    w[k] = *reinterpret_cast<const uint32_t*>(&pair);
  }
  static __device__ __forceinline__ uint32_t Abs(uint32_t v) { return v & 0x7FFF7FFFu; }
  static __device__ __forceinline__ uint32_t Max(uint32_t a, uint32_t b) {
    const __nv_bfloat162 m = __hmax2_nan(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                         *reinterpret_cast<const __nv_bfloat162*>(&b));
    return *reinterpret_cast<const uint32_t*>(&m);
  }
  // The largest of two rows' words, in one word; FP32 bits of a half.
  static constexpr int kRowsOfWord = 2;
  static __device__ __forceinline__ uint32_t OfRows(uint32_t even, uint32_t odd) {
    return Max(__byte_perm(even, odd, 0x5410), __byte_perm(even, odd, 0x7632));
  }
  static __device__ __forceinline__ uint32_t OfColumn(const uint32_t* words, int c) {
    return c % 2 ? words[c / 2] & 0x7FFF0000u : words[c / 2] << 16;
  }
};

template <>
struct Eight<float> {
  static constexpr int kWords = 8;
  uint32_t w[8];
  __device__ __forceinline__ void Load(const float* p, bool there) {
    LoadOnce(p, there, w[0], w[1], w[2], w[3]);
    LoadOnce(p + 4, there, w[4], w[5], w[6], w[7]);
  }
  __device__ __forceinline__ float Get(int j) const { return __uint_as_float(w[j]); }
  static __device__ __forceinline__ uint32_t Abs(uint32_t v) { return v & 0x7FFFFFFFu; }
  static __device__ __forceinline__ uint32_t Max(uint32_t a, uint32_t b) { return max(a, b); }
  static constexpr int kRowsOfWord = 1;
  static __device__ __forceinline__ uint32_t OfRows(uint32_t row, uint32_t /*none*/) { return row; }
  static __device__ __forceinline__ uint32_t OfColumn(const uint32_t* words, int c) { return words[c]; }
};

// A source loads rows [row, row + rows) of a thread's eight, at most 8, from `column` on; what is not there
// is zeros.

// Stored values.
template <class T>
struct PlainSource {
  using Element = T;
  static constexpr int kBlocksOfSm = sizeof(T) == 2 ? 3 : 2;
  const T* x;
  int64_t ld;
  __device__ __forceinline__ void Load(int64_t row, int rows, int64_t column, Eight<T> (&out)[8]) const {
    const T* p = x + row * ld + column;
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i].Load(p + i * ld, i < rows);
  }
};

// Stored F32, rounded to BF16: what a weight's BF16 copy would hold.
struct RoundedSource {
  using Element = __nv_bfloat16;
  static constexpr int kBlocksOfSm = 2;
  const float* x;
  int64_t ld;
  __device__ __forceinline__ void Load(int64_t row, int rows, int64_t column,
                                       Eight<__nv_bfloat16> (&out)[8]) const {
    const float* p = x + row * ld + column;
    Eight<float> v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i].Load(p + i * ld, i < rows);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) out[i].Set(k, v[i].Get(2 * k), v[i].Get(2 * k + 1));
    }
  }
};

// w_r * silu(g) * u of [g | u], F columns each, rounded to BF16.
struct SwigluSource {
  using Element = __nv_bfloat16;
  static constexpr int kBlocksOfSm = 2;
  const __nv_bfloat16* gate_up;
  const float* w;
  int64_t ld, F;
  __device__ __forceinline__ void Load(int64_t row, int rows, int64_t column,
                                       Eight<__nv_bfloat16> (&out)[8]) const {
    const __nv_bfloat16* p = gate_up + row * ld + column;
    Eight<__nv_bfloat16> g[8], u[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      g[i].Load(p + i * ld, i < rows);
      u[i].Load(p + i * ld + F, i < rows);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float wr = w != nullptr && i < rows ? w[row + i] : 1.0f;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        out[i].Set(k, SwigluAct(wr, g[i].Get(2 * k), u[i].Get(2 * k)),
                   SwigluAct(wr, g[i].Get(2 * k + 1), u[i].Get(2 * k + 1)));
      }
    }
  }
};

// h * rstd_r * weight_d, rounded to BF16.
struct NormedSource {
  using Element = __nv_bfloat16;
  static constexpr int kBlocksOfSm = 3;
  const __nv_bfloat16* h;
  const float* rstd;
  const __nv_bfloat16* weight;
  int64_t ld;
  __device__ __forceinline__ void Load(int64_t row, int rows, int64_t column,
                                       Eight<__nv_bfloat16> (&out)[8]) const {
    const __nv_bfloat16* p = h + row * ld + column;
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i].Load(p + i * ld, i < rows);
    Eight<__nv_bfloat16> v;
    v.Load(weight + column, rows > 0);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i >= rows) continue;  // stays zero: a product with a negative weight would be -0
      const float scale = rstd[row + i];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        out[i].Set(k, out[i].Get(2 * k) * scale * v.Get(2 * k),
                   out[i].Get(2 * k + 1) * scale * v.Get(2 * k + 1));
      }
    }
  }
};

}  // namespace yardmaster
