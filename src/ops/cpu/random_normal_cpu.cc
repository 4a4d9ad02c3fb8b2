#include "src/ops/cpu/random_normal_cpu.h"

#include <vector>

#include "src/base/philox.h"
#include "src/device/cpu_parallel.h"

namespace yardmaster::cpu {
namespace {

constexpr int64_t kGrain = 1 << 12;  // elements

// The global index of the first element of each row (last axis) of the box.
int64_t GlobalIndexOfRow(const ShardSpec& spec, int64_t row) {
  const int rank = spec.global_shape.rank();
  std::vector<int64_t> at(spec.box.begin);
  for (int axis = rank - 2; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    at[i] += row % spec.box.extent[i];
    row /= spec.box.extent[i];
  }
  int64_t index = 0;
  for (int axis = 0; axis < rank; ++axis)
    index = index * spec.global_shape[axis] + at[static_cast<size_t>(axis)];
  return index;
}

}  // namespace

void RandomNormal(const Stream& stream, const RandomNormalArgs& g) {
  const int64_t cols = g.y.cols();
  DispatchFloat(g.y.dtype(), [&]<class T>() {
    T* y = g.y.as<T>();
    ParallelFor(stream, g.y.elements(), kGrain, [&](int64_t begin, int64_t end) {
      int64_t row = -1, first = 0;
      for (int64_t i = begin; i < end; ++i) {
        if (i / cols != row) row = i / cols, first = GlobalIndexOfRow(g.spec, row);
        const auto index = static_cast<uint64_t>(first + i % cols);
        y[i] = static_cast<T>(g.scale * PhiloxNormal(g.seed, g.number_stream, index));
        if (!g.copy.defined()) continue;
        if (g.copy.dtype() == DType::kBF16) {
          g.copy.as<BFloat16>()[i] = BFloat16(static_cast<float>(y[i]));
        } else {
          g.copy.as<T>()[i] = y[i];
        }
      }
    });
  });
}

}  // namespace yardmaster::cpu
