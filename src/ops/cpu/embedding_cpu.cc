#include "src/ops/cpu/embedding_cpu.h"

#include <algorithm>

#include "src/device/cpu_parallel.h"

namespace yardmaster::cpu {

void EmbeddingForward(const Stream& stream, const Tensor& ids, const Tensor& table_VD,
                      const Tensor& x_TD) {
  DispatchFloat(x_TD.dtype(), [&]<class T>() {
    const int32_t* id = ids.as<int32_t>();
    const T* table = table_VD.as<T>();
    T* x = x_TD.as<T>();
    const int64_t D = x_TD.dim(1);
    ParallelFor(stream, x_TD.dim(0), GrainFor(x_TD.dim(0), 64), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) std::copy_n(table + id[t] * D, D, x + t * D);
    });
  });
}

void EmbeddingBackward(const Stream& stream, const Tensor& ids, const Tensor& dx_TD, double beta,
                       const Tensor& dtable_VD) {
  DispatchFloat(dtable_VD.dtype(), [&]<class T>() {
    const int32_t* id = ids.as<int32_t>();
    const T* dx = dx_TD.as<T>();
    T* dtable = dtable_VD.as<T>();
    const int64_t n_T = dx_TD.dim(0), V = dtable_VD.dim(0), D = dtable_VD.dim(1);
    const T scale = static_cast<T>(beta);
    ParallelFor(stream, D, 32, [&](int64_t begin, int64_t end) {
      for (int64_t v = 0; v < V; ++v) {
        T* row = dtable + v * D;
        for (int64_t i = begin; i < end; ++i) row[i] = beta == 0 ? T{0} : scale * row[i];
      }
      for (int64_t t = 0; t < n_T; ++t) {
        T* row = dtable + id[t] * D;
        const T* add = dx + t * D;
        for (int64_t i = begin; i < end; ++i) row[i] += add[i];
      }
    });
  });
}

}  // namespace yardmaster::cpu
