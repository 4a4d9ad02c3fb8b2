#include "kernels/common/float_types.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/random/normal.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

struct Words {
  uint32_t x[4];
};

__device__ __forceinline__ Words Philox4x32(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0,
                   n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1), c3 = static_cast<uint32_t>(p0), c0 = n0, c2 = n2;
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

__device__ __forceinline__ double PortableLog(double u) {
  const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(u));
  double e = static_cast<double>(static_cast<int>(bits >> 52) - 1023);
  double m =
      __longlong_as_double(static_cast<long long>((bits & 0x000FFFFFFFFFFFFFull) | 0x3FF0000000000000ull));
  if (m > 0x1.6a09e667f3bcdp+0) m *= 0.5, e += 1;
  const double s = (m - 1) / (m + 1), z = s * s;
  double series = 1.0 / 23;
#pragma unroll
  for (int k = 21; k >= 1; k -= 2) series = fma(series, z, 1.0 / k);
  const double log_m = 2 * s * series;
  return fma(e, 0x1.62e42fee00000p-1, fma(e, 0x1.a39ef35793c76p-33, log_m));
}

__device__ __forceinline__ double PortableCosTurns(double v) {
  const double quarters = 4 * v, nearest = floor(quarters + 0.5);
  const double x = (quarters - nearest) * 1.5707963267948966;
  const double z = x * x;
  const int quarter = static_cast<int>(nearest) & 3;
  if (quarter % 2 == 0) {
    double series = 1.0 / 20922789888000;
    series = fma(series, z, -1.0 / 87178291200);
    series = fma(series, z, 1.0 / 479001600);
    series = fma(series, z, -1.0 / 3628800);
    series = fma(series, z, 1.0 / 40320);
    series = fma(series, z, -1.0 / 720);
    series = fma(series, z, 1.0 / 24);
    series = fma(series, z, -0.5);
    series = fma(series, z, 1.0);
    return quarter == 0 ? series : -series;
  }
  double series = 1.0 / 355687428096000;
  series = fma(series, z, -1.0 / 1307674368000);
  series = fma(series, z, 1.0 / 6227020800);
  series = fma(series, z, -1.0 / 39916800);
  series = fma(series, z, 1.0 / 362880);
  series = fma(series, z, -1.0 / 5040);
  series = fma(series, z, 1.0 / 120);
  series = fma(series, z, -1.0 / 6);
  series = fma(series, z, 1.0);
  const double sine = x * series;
  return quarter == 1 ? -sine : sine;
}

__device__ __forceinline__ double PhiloxNormal(uint64_t seed, uint64_t stream, uint64_t index) {
  const Words r = Philox4x32(seed, stream, index);
  const double u = (static_cast<double>((uint64_t{r.x[0]} << 32 | r.x[1]) >> 11) + 0.5) * 0x1.0p-53;
  const double v = static_cast<double>((uint64_t{r.x[2]} << 32 | r.x[3]) >> 11) * 0x1.0p-53;
  return sqrt(-2.0 * PortableLog(u)) * PortableCosTurns(v);
}

template <class T>
__global__ void __launch_bounds__(kThreads) NormalKernel(NormalBox box, uint64_t seed, uint64_t number_stream,
                                                         double scale, T* y, __nv_bfloat16* copy) {
  const int64_t n = box.extent[0] * box.extent[1] * box.extent[2];
  for (int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x; at < n;
       at += int64_t{gridDim.x} * kThreads) {
    const int64_t k = at % box.extent[2], rest = at / box.extent[2];
    const int64_t j = rest % box.extent[1], i = rest / box.extent[1];
    const int64_t index =
        ((box.begin[0] + i) * box.global1 + box.begin[1] + j) * box.global2 + box.begin[2] + k;
    const T value = static_cast<T>(scale * PhiloxNormal(seed, number_stream, static_cast<uint64_t>(index)));
    y[at] = value;
    if (copy != nullptr) copy[at] = __float2bfloat16_rn(static_cast<float>(value));
  }
}

}  // namespace

cudaError_t FillNormal(KernelType type, const NormalBox& box, uint64_t seed, uint64_t number_stream,
                       double scale, void* y, void* copy, cudaStream_t stream) {
  const int64_t n = box.extent[0] * box.extent[1] * box.extent[2];
  if (n == 0) return cudaSuccess;
  const unsigned blocks = GridFor((n + kThreads - 1) / kThreads);
  auto* bf16 = static_cast<__nv_bfloat16*>(copy);
  if (type == KernelType::kF32) {
    NormalKernel<<<blocks, kThreads, 0, stream>>>(box, seed, number_stream, scale, static_cast<float*>(y),
                                                  bf16);
  } else if (type == KernelType::kF64) {
    NormalKernel<<<blocks, kThreads, 0, stream>>>(box, seed, number_stream, scale, static_cast<double*>(y),
                                                  bf16);
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace yardmaster
