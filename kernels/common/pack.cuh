// File: kernels/common/pack.cuh
//
// A few neighbouring elements that move together, in accesses of at most 16 bytes. A kernel takes the width
// as a template argument: the full one where addresses and row lengths allow it, else 1.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/common/float_types.cuh"

namespace yardmaster {

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) Pack {
  T x[kWidth];
};

// Elements of 16 bytes.
template <class T>
inline constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

template <int kWidth, class T>
__device__ __forceinline__ Pack<T, kWidth> LoadPack(const T* p) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(p);
}
template <int kWidth, class T>
__device__ __forceinline__ void StorePack(T* p, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(p) = pack;
}
// The same in the accumulator type.
template <int kWidth, class T>
__device__ __forceinline__ void LoadAccum(const T* p, Accum<T> (&out)[kWidth]) {
  const Pack<T, kWidth> pack = LoadPack<kWidth>(p);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) out[j] = ToAccum(pack.x[j]);
}
template <int kWidth, class T, class A>
__device__ __forceinline__ void StoreRounded(T* p, const A (&in)[kWidth]) {
  Pack<T, kWidth> pack;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) pack.x[j] = FromAccum<T>(in[j]);
  StorePack<kWidth>(p, pack);
}

// All of these addresses (null: not there) are multiples of 16 bytes, and all of these lengths of `width`
// elements.
inline bool PacksFit(int width, std::initializer_list<const void*> addresses,
                     std::initializer_list<int64_t> lengths) {
  for (const void* p : addresses) {
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  }
  for (const int64_t n : lengths) {
    if (n % width != 0) return false;
  }
  return true;
}

// f.template operator()<kWidth>() with the full width of T or 1.
template <class T, class F>
cudaError_t DispatchWidth(bool fits, F&& f) {
  return fits ? f.template operator()<kPackWidth<T>>() : f.template operator()<1>();
}

// Thread blocks for `items` of work in a loop with the grid's stride: enough for every GPU, and fixed, so
// that nothing depends on the device.
inline unsigned GridFor(int64_t items, int64_t most = 132 * 16) {
  return static_cast<unsigned>(items < 1 ? 1 : items < most ? items : most);
}

}  // namespace yardmaster
