#include "src/ops/cpu/quantize_nvfp4_cpu.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "src/device/cpu_parallel.h"
#include "src/tensor/small_float.h"

namespace yardmaster::cpu {
namespace {

constexpr uint32_t kInfinityBits = 0x7F800000u;

template <class T>
uint32_t MagnitudeBits(T v) {
  return std::bit_cast<uint32_t>(static_cast<float>(v)) & 0x7FFFFFFFu;
}

template <class F>
void DispatchSource(DType t, F&& f) {
  t == DType::kF32 ? f.template operator()<float>() : f.template operator()<BFloat16>();
}

// What a tensor's values are multiplied by so that its largest is 6 * 448. At most 2^100, so that the product
// with the inverse of the smallest run scale is finite.
float TensorInverse(float amax) { return amax > 0 ? std::min(kE2m1Max * kE4m3Max / amax, 0x1p100f) : 1.0f; }

template <class T>
void QuantizeRow(const T* x, int64_t C, float amax, uint8_t* codes, uint8_t* scales) {
  const bool tensor_nan = MagnitudeBits(amax) >= kInfinityBits;
  const float to_tensor = tensor_nan ? 0 : TensorInverse(amax);
  std::memset(codes, 0, static_cast<size_t>(C / 2));
  for (int64_t c0 = 0; c0 < C; c0 += kNvfp4Run) {
    const int64_t c1 = std::min(C, c0 + kNvfp4Run);
    uint32_t largest = 0;
    for (int64_t c = c0; c < c1; ++c) largest = std::max(largest, MagnitudeBits(x[c]));
    uint8_t scale = kE4m3Nan;  // E2M1 has no NaN: the scale says it
    float inverse = 0;
    if (!tensor_nan && largest < kInfinityBits) {
      scale = E4m3FromFloat(std::bit_cast<float>(largest) * to_tensor / kE2m1Max);
      if (scale != 0) inverse = to_tensor / E4m3ToFloat(scale);
    }
    scales[c0 / kNvfp4Run] = scale;
    if (inverse == 0) continue;
    for (int64_t c = c0; c < c1; ++c) {
      const uint8_t code = E2m1FromFloat(static_cast<float>(x[c]) * inverse);
      codes[c / 2] = static_cast<uint8_t>(codes[c / 2] | (c % 2 ? code << 4 : code));
    }
  }
}

}  // namespace

void AbsMax(const Tensor& x, const Tensor& out) {
  uint32_t largest = 0;
  DispatchSource(x.dtype(), [&]<class T>() {
    for (int64_t r = 0; r < x.dim(0); ++r)
      for (int64_t c = 0; c < x.dim(1); ++c)
        largest = std::max(largest, MagnitudeBits(x.as<T>()[r * x.ld() + c]));
  });
  out.as<float>()[0] = std::bit_cast<float>(largest);
}

void QuantizeNvfp4(const Stream& stream, const Nvfp4Args& g) {
  const int64_t R = g.x.dim(0), C = g.x.dim(1);
  DispatchSource(g.x.dtype(), [&]<class T>() {
    ParallelFor(stream, R, GrainFor(R, 16), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        QuantizeRow(g.x.as<T>() + r * g.x.ld(), C, g.amax.as<float>()[0], g.codes.as<uint8_t>() + r * (C / 2),
                    g.scales.as<uint8_t>() + r * g.scales.dim(1));
      }
    });
  });
}

void DequantizeNvfp4(const Stream& stream, const Nvfp4Args& g, const Tensor& out) {
  const int64_t R = out.dim(0), C = out.dim(1);
  const float amax = g.amax.as<float>()[0];
  const float tensor = MagnitudeBits(amax) >= kInfinityBits ? 1.0f : 1.0f / TensorInverse(amax);
  DispatchSource(out.dtype(), [&]<class T>() {
    ParallelFor(stream, R, GrainFor(R, 16), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < C; ++c) {
          const uint8_t pair = g.codes.as<uint8_t>()[r * (C / 2) + c / 2];
          const float scale = E4m3ToFloat(g.scales.as<uint8_t>()[r * g.scales.dim(1) + c / kNvfp4Run]);
          out.as<T>()[r * C + c] = T(E2m1ToFloat(c % 2 ? pair >> 4 : pair & 15) * scale * tensor);
        }
      }
    });
  });
}

}  // namespace yardmaster::cpu
