#include "src/ops/cpu/elementwise_cpu.h"

#include <algorithm>
#include <cstring>

#include "src/device/cpu_parallel.h"

namespace yardmaster::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements

template <class F>
void DispatchAny(DType t, F&& f) {
  switch (t) {
    case DType::kU8:
      return f.template operator()<uint8_t>();
    case DType::kU16:
      return f.template operator()<uint16_t>();
    case DType::kI32:
      return f.template operator()<int32_t>();
    case DType::kI64:
      return f.template operator()<int64_t>();
    case DType::kBF16:
      return f.template operator()<BFloat16>();
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kF64:
      return f.template operator()<double>();
  }
}

// BF16 converts through F32 in both directions.
template <class To, class From>
To ConvertTo(From x) {
  if constexpr (std::is_same_v<From, BFloat16>) {
    return ConvertTo<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return BFloat16(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

template <class From, class To>
void ConvertRows(const Stream& stream, const Tensor& x, const Tensor& y) {
  const From* from = x.as<From>();
  To* to = y.as<To>();
  const int64_t cols = x.cols();
  ParallelFor(stream, x.rows(), std::max<int64_t>(1, kGrain / cols),
              [&](int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r) {
                  const From* from_row = from + r * x.ld();
                  To* to_row = to + r * y.ld();
                  for (int64_t i = 0; i < cols; ++i) to_row[i] = ConvertTo<To>(from_row[i]);
                }
              });
}

}  // namespace

void Fill(const Stream& stream, double value, const Tensor& y) {
  DispatchAny(y.dtype(), [&]<class T>() {
    T* data = y.as<T>();
    const T v = ConvertTo<T>(value);
    ParallelFor(stream, y.elements(), kGrain,
                [&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, v); });
  });
}

void Add(const Stream& stream, const Tensor& a, const Tensor& b, const Tensor& y) {
  DispatchFloat(a.dtype(), [&]<class T>() {
    const T* pa = a.as<T>();
    const T* pb = b.as<T>();
    T* py = y.as<T>();
    ParallelFor(stream, y.elements(), kGrain, [&](int64_t begin, int64_t end) {
#pragma GCC ivdep  // y may be a or b
      for (int64_t i = begin; i < end; ++i) py[i] = pa[i] + pb[i];
    });
  });
}

void Copy(const Stream& stream, const Tensor& x, const Tensor& y) {
  if (x.dtype() == y.dtype()) {
    const int64_t bytes = DTypeBytes(x.dtype());
    ParallelFor(stream, x.rows(), std::max<int64_t>(1, kGrain / x.cols()),
                [&](int64_t begin, int64_t end) {
                  for (int64_t r = begin; r < end; ++r) {
                    std::memmove(static_cast<char*>(y.data()) + r * y.ld() * bytes,
                                 static_cast<const char*>(x.data()) + r * x.ld() * bytes,
                                 static_cast<size_t>(x.cols() * bytes));
                  }
                });
    return;
  }
  // Both are F32, F64 or BF16.
  DispatchAny(x.dtype(), [&]<class From>() {
    DispatchAny(y.dtype(), [&]<class To>() {
      if constexpr (!std::is_integral_v<From> && !std::is_integral_v<To>)
        ConvertRows<From, To>(stream, x, y);
    });
  });
}

}  // namespace yardmaster::cpu
