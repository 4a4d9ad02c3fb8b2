// The one MPI world of a test program, its cpu device, and tensors of known values.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "src/base/philox.h"
#include "src/comm/mpi/mpi_world.h"
#include "src/device/device.h"

namespace yardmaster::testing {

// Messages of at most 1000 bytes: every larger transfer takes the path of those over 2^31 bytes.
inline MpiWorld& World() {
  static MpiWorld world({.timeout_seconds = 60, .max_message_bytes = 1000});
  return world;
}

inline const Stream& CpuStream() {
  static const std::unique_ptr<Device> device = MakeCpuDevice({.threads = 1});
  static const Stream stream(device.get());
  return stream;
}

// Of mixed magnitudes, so that another order of additions shows in the last bits.
template <class T>
T Value(uint64_t stream, int64_t i) {
  const double scale[] = {1e-3, 1, 37, 4e3};
  return static_cast<T>(PhiloxNormal(17, stream, static_cast<uint64_t>(i)) * scale[i % 4]);
}

template <class T>
bool SameBits(const T* a, const T* b, int64_t n) {
  return n == 0 || std::memcmp(a, b, static_cast<size_t>(n) * sizeof(T)) == 0;
}

template <class T>
Tensor TensorOf(std::vector<T>& v, const Shape& shape) {
  YM_CHECK_EQ(shape.elements(), static_cast<int64_t>(v.size()));
  return Tensor(v.data(), DTypeOf<T>::value, shape);
}
template <class T>
Tensor TensorOf(std::vector<T>& v) {
  return TensorOf(v, {static_cast<int64_t>(v.size())});
}

}  // namespace yardmaster::testing
