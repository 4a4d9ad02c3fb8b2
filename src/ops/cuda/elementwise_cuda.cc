#include "src/ops/cuda/elementwise_cuda.h"

#include <cstring>

#include "kernels/elementwise/elementwise.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/cuda/kernel_types.h"

namespace yardmaster::cuda {
namespace {

template <class T>
uint64_t BitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

uint64_t PatternOf(double value, DType type) {
  switch (type) {
    case DType::kU8:
      return BitsOf(static_cast<uint8_t>(value));
    case DType::kU16:
      return BitsOf(static_cast<uint16_t>(value));
    case DType::kI32:
      return BitsOf(static_cast<int32_t>(value));
    case DType::kI64:
      return BitsOf(static_cast<int64_t>(value));
    case DType::kBF16:
      return BitsOf(BFloat16(static_cast<float>(value)));
    case DType::kF32:
      return BitsOf(static_cast<float>(value));
    case DType::kF64:
      return BitsOf(value);
  }
  YM_CHECK(false, "Fill of ", DTypeName(type));
  return 0;
}

}  // namespace

void Fill(const Stream& stream, double value, const Tensor& y) {
  YM_CUDA_CHECK(stream, "Fill",
                FillPattern(y.data(), y.elements(), static_cast<int>(DTypeBytes(y.dtype())),
                            PatternOf(value, y.dtype()), CudaStream(stream)));
}

void Add(const Stream& stream, const Tensor& a, const Tensor& b, const Tensor& y) {
  YM_CUDA_CHECK(
      stream, "Add",
      AddElements(KernelTypeOf(a.dtype()), a.data(), b.data(), y.data(), y.elements(), CudaStream(stream)));
}

void Copy(const Stream& stream, const Tensor& x, const Tensor& y) {
  const cudaStream_t s = CudaStream(stream);
  if (x.dtype() != y.dtype()) {
    YM_CUDA_CHECK(stream, "Copy",
                  ConvertRows(KernelTypeOf(x.dtype()), KernelTypeOf(y.dtype()), x.data(), x.ld(), y.data(),
                              y.ld(), x.rows(), x.cols(), s));
    return;
  }
  if (x.contiguous() && y.contiguous()) {
    YM_CUDA_CHECK(
        stream, "Copy",
        cudaMemcpyAsync(y.data(), x.data(), static_cast<size_t>(x.bytes()), cudaMemcpyDeviceToDevice, s));
    return;
  }
  const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements * DTypeBytes(x.dtype())); };
  YM_CUDA_CHECK(stream, "Copy",
                cudaMemcpy2DAsync(y.data(), bytes(y.ld()), x.data(), bytes(x.ld()), bytes(x.cols()),
                                  static_cast<size_t>(x.rows()), cudaMemcpyDeviceToDevice, s));
}

}  // namespace yardmaster::cuda
