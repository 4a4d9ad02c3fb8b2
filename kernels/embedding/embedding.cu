#include "kernels/common/block_reduce.cuh"
#include "kernels/common/copy_async.cuh"
#include "kernels/common/counting_sort.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/common/scale_rows.h"
#include "kernels/embedding/embedding.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 128;

constexpr int kHeld =
    7;  // packs of a thread on their way before the first is stored: a row of 7168 BF16 elements

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    RowsKernel(const int32_t* ids, int64_t n_T, int64_t D, const T* table, T* x) {
  for (int64_t t = blockIdx.x; t < n_T; t += gridDim.x) {
    const T* from = table + int64_t{ids[t]} * D;
    for (int64_t base = int64_t{threadIdx.x} * kWidth; base < D; base += int64_t{kThreads} * kHeld * kWidth) {
      Pack<T, kWidth> held[kHeld];
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
        const int64_t d = base + int64_t{p} * kThreads * kWidth;
        if (d < D) held[p] = LoadPack<kWidth>(from + d);
      }
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
        const int64_t d = base + int64_t{p} * kThreads * kWidth;
        if (d < D) StorePack<kWidth>(x + t * D + d, held[p]);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads) StartsKernel(int64_t* starts, int64_t bins) {
  __shared__ int64_t shared[kThreads / 32];
  sort_internal::BlockScan<kThreads>(
      bins, shared, [&](int64_t b) { return starts[b]; },
      [&](int64_t b, int64_t first) { starts[b] = first; });
}

struct WriteOrder {
  const int32_t* from;  // null: items are tokens
  int32_t* to;
  __device__ __forceinline__ void operator()(int64_t item, int64_t place) const {
    if (place >= 0) to[place] = from != nullptr ? from[item] : static_cast<int32_t>(item);
  }
};

constexpr int kAddWarps = 2, kPlaces = 32, kGroup = 8, kGroups = kPlaces / kGroup;

// A warp owns the runs of equal ids that begin in kPlaces places of the sorted tokens, in a slice of 32 packs
// of the columns. It adds their rows in order, its own window of places first, then windows of the last run
// alone as far as that goes. Rows are on their way to a ring of one window, a group of them at a time, three
// groups ahead: where few ids are distinct, runs are thousands of rows long. With kWrite the table's rows are
// not read, and squares [V, slices] of what is written are summed where they are wanted.
template <class T, int kWidth, bool kWrite>
__global__ void __launch_bounds__(32 * kAddWarps)
    AddRunsKernel(const int32_t* ids, const int32_t* order, int64_t n_T, int64_t D, const T* dx,
                  Accum<T>* dtable, double* squares) {
  using A = Accum<T>;
  using P = Pack<T, kWidth>;
  __shared__ P ring[kPlaces][32 * kAddWarps];
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t slice = int64_t{blockIdx.y} * kAddWarps + warp, slices = (D + 32 * kWidth - 1) / (32 * kWidth);
  const int64_t d = (slice * 32 + lane) * kWidth;
  const bool inside = d < D;

  // A lane's place in the window: its token and id, -1 beyond the last.
  const auto token_at = [&](int64_t place) { return place < n_T ? order[place] : -1; };
  const auto id_of = [&](int token) { return token >= 0 ? ids[token] : -1; };
  int64_t base = int64_t{blockIdx.x} * kPlaces;
  int token = token_at(base + lane);
  const int id = id_of(token);
  int previous = __shfl_up_sync(kAll, id, 1);
  if (lane == 0) previous = base > 0 ? ids[order[base - 1]] : -1;
  const unsigned begins = __ballot_sync(kAll, id >= 0 && id != previous);
  if (begins == 0) return;
  const int first = __ffs(static_cast<int>(begins)) - 1;
  const int last_id = __shfl_sync(kAll, id, 31 - __clz(static_cast<int>(begins)));
  int next_token = token_at(base + kPlaces + lane), next_id = id_of(next_token);

  A* row = nullptr;
  A sum[kWidth] = {};
  const auto add = [&](int slot) {
    const P x = ring[slot][threadIdx.x];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum[j] += ToAccum(x.x[j]);
  };
  double* row_squares = nullptr;  // of the row and the warp's slice
  const auto write = [&] {
    if (row != nullptr && inside) StoreRounded<kWidth>(row, sum);
    if (!kWrite || row_squares == nullptr) return;
    double square = 0;
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      if (inside) square += static_cast<double>(sum[j]) * static_cast<double>(sum[j]);
    square = WarpReduce(square, SumOp());
    if (lane == 0) *row_squares = square;
  };
  // The rows of one group; `rows` and `starts` have a bit for each place of its window.
  const auto take = [&](unsigned rows, unsigned starts, int group) {
    rows = rows >> (kGroup * group) & 0xff, starts = starts >> (kGroup * group) & 0xff;
    if (rows == 0xff && starts == 0) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) add(kGroup * group + i);
      return;
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if ((rows >> i & 1) == 0) continue;
      if (starts >> i & 1) {
        write();
        const int64_t table_row = __shfl_sync(kAll, id, kGroup * group + i);
        row = dtable + table_row * D + d;
        if (kWrite && squares != nullptr && slice < slices) row_squares = squares + table_row * slices + slice;
        if constexpr (kWrite) {
#pragma unroll
          for (int j = 0; j < kWidth; ++j) sum[j] = A{0};
        } else if (inside) {
          LoadAccum<kWidth>(row, sum);
        }
      }
      add(kGroup * group + i);
    }
  };
  unsigned rows = __ballot_sync(kAll, id >= 0 && lane >= first), starts = begins;
  unsigned rows_before = 0, starts_before = 0;
#pragma unroll 1
  while (true) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = kGroup * group; i < kGroup * (group + 1); ++i) {
        const int t = __shfl_sync(kAll, token, i);
        if ((rows >> i & 1) == 0 || !inside) continue;
        if constexpr (sizeof(P) == 16) {
          CopyAsync(&ring[i][threadIdx.x], dx + int64_t{t} * D + d);
        } else {
          ring[i][threadIdx.x] = LoadPack<kWidth>(dx + int64_t{t} * D + d);
        }
      }
      CommitCopies();
      WaitForCopies<kGroups - 1>();
      if (group < kGroups - 1) {
        take(rows_before, starts_before, group + 1);
      } else {
        take(rows, starts, 0);
      }
    }
    if (rows == 0) break;  // what was on its way is added
    rows_before = rows, starts_before = starts;
    base += kPlaces;
    token = next_token;
    rows = __ballot_sync(kAll, next_id == last_id), starts = 0;
    next_token = token_at(base + kPlaces + lane), next_id = id_of(next_token);
  }
  write();
}
static_assert(kGroup == 8 && kPlaces == 32);

}  // namespace

cudaError_t EmbeddingRows(KernelType type, const int32_t* ids, int64_t n_T, int64_t D, const void* table,
                          void* x, cudaStream_t stream) {
  if (n_T == 0 || D == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    return DispatchWidth<T>(PacksFit(kPackWidth<T>, {table, x}, {D}), [&]<int kWidth>() {
      RowsKernel<T, kWidth><<<GridFor(n_T, int64_t{1} << 30), kThreads, 0, stream>>>(
          ids, n_T, D, static_cast<const T*>(table), static_cast<T*>(x));
      return cudaGetLastError();
    });
  });
}

cudaError_t EmbeddingGradient(KernelType type, const int32_t* ids, int64_t n_T, int64_t V, int64_t D,
                              const void* dx, double beta, void* dtable, double* squares,
                              const EmbeddingSortScratch& scratch, cudaStream_t stream) {
  if (V == 0 || D == 0) return cudaSuccess;
  if (squares != nullptr) {
    const int64_t sums = EmbeddingSquares(type, D);
    if (beta != 0 || sums == 0) return cudaErrorInvalidValue;
    const cudaError_t result = cudaMemsetAsync(squares, 0, static_cast<size_t>(V * sums) * 8, stream);
    if (result != cudaSuccess) return result;
  }
  const KernelType accum = type == KernelType::kBf16 ? KernelType::kF32 : type;
  if (beta != 1) {
    const auto bytes = static_cast<size_t>(V * D) * (accum == KernelType::kF64 ? 8 : 4);
    const cudaError_t result = beta == 0 ? cudaMemsetAsync(dtable, 0, bytes, stream)
                                         : ScaleRows(accum, dtable, D, dtable, D, V, D, beta, stream);
    if (result != cudaSuccess) return result;
  }
  if (n_T == 0) return cudaSuccess;
  const int32_t* order = nullptr;
  for (int pass = 0; pass < scratch.passes; ++pass) {
    const SortKeys keys{.keys = ids,
                        .order = order,
                        .n = n_T,
                        .first = 0,
                        .shift = pass * scratch.bits,
                        .mask = (int64_t{1} << scratch.bits) - 1,
                        .bins = int64_t{1} << scratch.bits,
                        .chunk = scratch.chunk};
    cudaError_t result = CountByBin(keys, scratch.prefix, scratch.starts, stream);
    if (result != cudaSuccess) return result;
    StartsKernel<<<1, kThreads, 0, stream>>>(scratch.starts, keys.bins);
    int32_t* to = scratch.order + pass % 2 * n_T;
    result = ScatterByBin(keys, scratch.prefix, scratch.starts, WriteOrder{order, to}, stream);
    if (result != cudaSuccess) return result;
    order = to;
  }
  return DispatchKernelType(type, [&]<class T>() {
    const bool packs = PacksFit(kPackWidth<T>, {dx, dtable}, {D});
    if (squares != nullptr && !packs) return cudaErrorInvalidValue;
    return DispatchWidth<T>(packs, [&]<int kWidth>() {
      const int64_t slice = int64_t{32} * kAddWarps * kWidth;
      const dim3 grid(static_cast<unsigned>((n_T + kPlaces - 1) / kPlaces),
                      static_cast<unsigned>((D + slice - 1) / slice));
      const auto add = [&](auto* kernel) {
        kernel<<<grid, 32 * kAddWarps, 0, stream>>>(ids, order, n_T, D, static_cast<const T*>(dx),
                                                    static_cast<Accum<T>*>(dtable), squares);
      };
      beta == 0 ? add(&AddRunsKernel<T, kWidth, true>) : add(&AddRunsKernel<T, kWidth, false>);
      return cudaGetLastError();
    });
  });
}

int64_t EmbeddingSquares(KernelType type, int64_t D) {
  int64_t sums = 0;
  DispatchKernelType(type, [&]<class T>() {
    if (D % kPackWidth<T> == 0) sums = (D + 32 * kPackWidth<T> - 1) / (32 * kPackWidth<T>);
    return cudaSuccess;
  });
  return sums;
}

}  // namespace yardmaster
