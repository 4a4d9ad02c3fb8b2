#include "kernels/ep/meet.cuh"
#include "kernels/ep/rows.h"
#include "kernels/ep/spread_rows.cuh"
#include "kernels/ep/sum_rows.cuh"

namespace yardmaster {
namespace {

using namespace ep;

// ---- What the blocks of an operation have in shared memory

struct Windows {
  char* rows[kEpMaxRanks];
  char* weights[kEpMaxRanks];
  int64_t first[kEpMaxRanks + 1];  // of a mode's own
};

__device__ __forceinline__ int64_t WindowWord(const EpWindow& a, const EpWindow& b, int w, EpOp op) {
  return w == 0 ? HeadWord(op, a.region.id, b.region.id) : w == 1 ? a.place : b.place;
}

// Step 1 and 2 of an operation over the windows `a` and `b` (of this rank, posted; of the peers, into `s`). 0: failed.
__device__ __forceinline__ uint64_t Open(const EpGroup& g, EpOp op, const EpWindow& a, const EpWindow& b, Windows& s,
                                         bool* go) {
  const uint64_t epoch = Begin(g);
  if (epoch == 0) return 0;
  if (blockIdx.x == 0) Post(g, epoch, kEpHeadWords, [&](int, int w) { return WindowWord(a, b, w, op); });
  *go = AwaitReady(g, epoch, op, WindowWord(a, b, 0, op));
  const int p = static_cast<int>(threadIdx.x);
  if (*go && p < g.size) {
    s.rows[p] = a.region.base[p] + Word(g, epoch, p, 1);
    s.weights[p] = b.region.base[p] + Word(g, epoch, p, 2);
  }
  __syncthreads();
  FenceProxies();
  return epoch;
}

__device__ __forceinline__ void Close(const EpGroup& g, uint64_t epoch, EpOp op) {
  FenceProxies();
  if (LastBlock(g)) Finish(g, epoch, op);
}

__device__ __forceinline__ void CopyWeight(char* to, const char* from, int bytes) {
  if (bytes == 8) {
    *reinterpret_cast<uint64_t*>(to) = *reinterpret_cast<const uint64_t*>(from);
  } else {
    *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<const uint32_t*>(from);
  }
}

// ---- Where rows are

// The owner of a pair and its row there; false: none.
__device__ __forceinline__ bool FindPair(const EpRoute& r, int rank, int64_t L, int64_t pair, int* owner, int64_t* row) {
  const int64_t slot = r.send_slot[pair];
  if (slot < 0) return false;
  const int e = r.idx[pair];
  *owner = e / static_cast<int>(L);
  *row = r.begins[rank * r.E + e] + slot - r.send_offsets[e];
  return true;
}

struct ToWindows {
  const EpRoute& r;
  const Windows& s;
  int rank;
  int64_t L, stride;
  const char* w;
  int weight_bytes;
  __device__ __forceinline__ int count() const { return static_cast<int>(r.K); }
  __device__ __forceinline__ char* At(int64_t t, int k) const {
    int owner;
    int64_t row;
    return FindPair(r, rank, L, t * r.K + k, &owner, &row) ? s.rows[owner] + row * stride : nullptr;
  }
  __device__ __forceinline__ void Extra(int64_t t, int k) const {
    int owner;
    int64_t row;
    const int64_t pair = t * r.K + k;
    if (w != nullptr && FindPair(r, rank, L, pair, &owner, &row))
      CopyWeight(s.weights[owner] + row * weight_bytes, w + pair * weight_bytes, weight_bytes);
  }
};

template <class T>
struct FromWindows {
  const EpRoute& r;
  const Windows& s;
  int rank;
  int64_t L, stride;
  __device__ __forceinline__ int count() const { return static_cast<int>(r.K); }
  __device__ __forceinline__ const T* At(int64_t t, int k) const {
    int owner;
    int64_t row;
    return FindPair(r, rank, L, t * r.K + k, &owner, &row) ? reinterpret_cast<const T*>(s.rows[owner] + row * stride)
                                                           : nullptr;
  }
};

// Which part of offsets [0, n] holds i.
__device__ __forceinline__ int PartOf(const int64_t* offsets, int n, int64_t i) {
  int q = 0;
  while (q + 1 < n && offsets[q + 1] <= i) ++q;
  return q;
}

struct ToRanks {
  const EpRoute& r;
  const Windows& s;  // rows and weights as if row 0 were this rank's first in send order; first: send_offsets
  int n;
  int64_t stride;
  const char* w;
  int weight_bytes;
  __device__ __forceinline__ int count() const { return static_cast<int>(r.J); }
  __device__ __forceinline__ char* At(int64_t t, int j) const {
    const int64_t slot = r.send_slot[t * r.J + j];
    return slot < 0 ? nullptr : s.rows[PartOf(s.first, n, slot)] + slot * stride;
  }
  __device__ __forceinline__ void Extra(int64_t t, int j) const {
    if (w == nullptr) return;
    const int64_t slot = r.send_slot[t * r.J + j], bytes = r.K * weight_bytes;
    char* const to = s.weights[PartOf(s.first, n, slot)] + slot * bytes;
    for (int64_t k = 0; k < r.K; ++k)
      CopyWeight(to + k * weight_bytes, w + t * bytes + k * weight_bytes, weight_bytes);
  }
};

struct ToRows {
  const int64_t* recv_slot;
  int64_t K;
  char* rows;
  int64_t stride;
  const char* w;
  char* weights;
  int weight_bytes;
  __device__ __forceinline__ int count() const { return static_cast<int>(K); }
  __device__ __forceinline__ char* At(int64_t i, int k) const {
    const int64_t row = recv_slot[i * K + k];
    return row < 0 ? nullptr : rows + row * stride;
  }
  __device__ __forceinline__ void Extra(int64_t i, int k) const {
    if (w == nullptr) return;
    const int64_t row = recv_slot[i * K + k];
    CopyWeight(weights + row * weight_bytes, w + (i * K + k) * weight_bytes, weight_bytes);
  }
};

// Rows of a local tensor by a table of slots [rows, count].
template <class T>
struct FromSlots {
  const int64_t* slots;
  int64_t slots_a_row;
  const T* rows;
  int64_t D;
  __device__ __forceinline__ int count() const { return static_cast<int>(slots_a_row); }
  __device__ __forceinline__ const T* At(int64_t i, int k) const {
    const int64_t row = slots[i * slots_a_row + k];
    return row < 0 ? nullptr : rows + row * D;
  }
};

// ---- Copying kernels. kUnit: 0 bulk, else bytes of a plain copy's unit

template <int kUnit, class To>
__device__ __forceinline__ void Spread(const RowsIn& in, const To& to) {
  if constexpr (kUnit == 0) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char ring[];
    __shared__ uint64_t barriers[kSpreadWarps * kSpreadStages];
    SpreadRowsBulk(in, to, ring, barriers);
#endif
  } else if constexpr (kUnit == 16) {
    SpreadRowsPlain<uint4>(in, to);
  } else if constexpr (kUnit == 4) {
    SpreadRowsPlain<uint32_t>(in, to);
  } else {
    SpreadRowsPlain<uint16_t>(in, to);
  }
}

template <int kUnit>
__global__ void __launch_bounds__(kSpreadThreads, 1)
    DispatchKernel(const __grid_constant__ EpGroup g, const __grid_constant__ EpDispatchArgs a) {
  __shared__ Windows s;
  bool go = false;
  const uint64_t epoch = Open(g, EpOp::kDispatch, a.x_R, a.w_R, s, &go);
  if (epoch == 0) return;
  if (go) {
    Spread<kUnit>(RowsIn{static_cast<const char*>(a.x), a.route.T, a.row_bytes, a.row_bytes},
                  ToWindows{a.route, s, g.rank, a.route.E / g.size, a.x_R.stride, static_cast<const char*>(a.w), a.weight_bytes});
  }
  Close(g, epoch, EpOp::kDispatch);
}

template <int kUnit>
__global__ void __launch_bounds__(kSpreadThreads, 1)
    SendTokensKernel(const __grid_constant__ EpGroup g, const __grid_constant__ EpDispatchArgs a) {
  __shared__ Windows s;
  bool go = false;
  const uint64_t epoch = Open(g, EpOp::kSendTokens, a.x_R, a.w_R, s, &go);
  if (epoch == 0) return;
  if (go) {
    const int n = g.size, q = static_cast<int>(threadIdx.x);
    if (q <= n) s.first[q] = a.route.send_offsets[q];
    if (q < n) {
      int64_t first = -a.route.send_offsets[q];  // of this rank's rows among those that q receives
      for (int p = 0; p < g.rank; ++p) first += a.route.tokens[p * n + q];
      s.rows[q] += first * a.x_R.stride;
      s.weights[q] += first * a.route.K * a.weight_bytes;
    }
    __syncthreads();
    Spread<kUnit>(RowsIn{static_cast<const char*>(a.x), a.route.T, a.row_bytes, a.row_bytes},
                  ToRanks{a.route, s, n, a.x_R.stride, static_cast<const char*>(a.w), a.weight_bytes});
  }
  Close(g, epoch, EpOp::kSendTokens);
}

template <int kUnit>
__global__ void __launch_bounds__(kSpreadThreads, 1) ReplicateKernel(const __grid_constant__ EpReplicateArgs a) {
  Spread<kUnit>(RowsIn{static_cast<const char*>(a.x_received), a.route.recv_offsets[a.ranks], a.row_bytes, a.row_bytes},
                ToRows{a.route.recv_slot, a.route.K, static_cast<char*>(a.x_R), a.row_stride,
                       static_cast<const char*>(a.w_received), static_cast<char*>(a.w_R), a.weight_bytes});
}

// Rows of a round, dealt out to the warps one by one.
template <class Unit>
__global__ void __launch_bounds__(kSpreadThreads, 1)
    RoundKernel(const __grid_constant__ EpGroup g, const __grid_constant__ EpRoundArgs a) {
  __shared__ Windows s;
  bool go = false;
  const EpOp op = a.back ? EpOp::kRoundBack : EpOp::kRoundOut;
  const uint64_t epoch = Open(g, op, a.window, a.window, s, &go);
  if (epoch == 0) return;
  if (go) {
    const int64_t warps = int64_t{gridDim.x} * kSpreadWarps, warp = int64_t{blockIdx.x} * kSpreadWarps + threadIdx.x / 32;
    const int64_t units = a.row_bytes / int64_t{sizeof(Unit)};
    int64_t dealt = 0;
    for (int64_t b = 0; b < a.num_blocks; ++b) {
      const EpBlock block = a.blocks[b];
      for (int64_t i = (warp + warps - dealt % warps) % warps; i < block.rows; i += warps) {
        auto* const far = reinterpret_cast<Unit*>(s.rows[block.peer] + (block.row + i) * a.window.stride);
        auto* const near = reinterpret_cast<Unit*>(static_cast<char*>(a.sent) + (block.first + i) * a.row_bytes);
        const Unit* const from = a.back ? far : near;
        Unit* const to = a.back ? near : far;
        for (int64_t u = threadIdx.x % 32; u < units; u += 32) to[u] = from[u];
      }
      dealt += block.rows;
    }
  }
  Close(g, epoch, op);
}

// ---- Adding kernels. kWidth: 0 bulk, else elements of a plain load

template <class T, int kWidth, class From, class Out>
__device__ __forceinline__ void Sum(const RowsOut<T>& o, const From& from, const Out& out) {
  if constexpr (kWidth == 0) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char ring[];
    __shared__ uint64_t barriers[kSumWarps * kSumSlots];
    SumRowsBulk(o, from, out, ring, barriers);
#endif
  } else {
    SumRowsPlain<T, kWidth>(o, from, out);
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kSumThreads, 1)
    CombineKernel(const __grid_constant__ EpGroup g, const __grid_constant__ EpCombineArgs a) {
  using A = Accum<T>;
  __shared__ Windows s;
  bool go = false;
  const uint64_t epoch = Open(g, EpOp::kCombine, a.y_R, a.dw_R, s, &go);
  if (epoch == 0) return;
  if (go) {
    const int64_t L = a.route.E / g.size;
    T* const y = static_cast<T*>(a.y);
    Sum<T, kWidth>(RowsOut<T>{a.route.T, a.D, static_cast<const T*>(a.residual), static_cast<const T*>(a.addend)},
                       FromWindows<T>{a.route, s, g.rank, L, a.y_R.stride}, [&](int64_t t) { return y + t * a.D; });
    const int64_t pairs = a.dw != nullptr ? a.route.T * a.route.K : 0;
    for (int64_t i = int64_t{blockIdx.x} * kSumThreads + threadIdx.x; i < pairs; i += int64_t{gridDim.x} * kSumThreads) {
      int owner;
      int64_t row;
      static_cast<A*>(a.dw)[i] =
          FindPair(a.route, g.rank, L, i, &owner, &row) ? reinterpret_cast<const A*>(s.weights[owner])[row] : A{0};
    }
  }
  Close(g, epoch, EpOp::kCombine);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kSumThreads, 1)
    ReturnTokensKernel(const __grid_constant__ EpGroup g, const __grid_constant__ EpReturnArgs a) {
  using A = Accum<T>;
  __shared__ Windows s;
  bool go = false;
  const uint64_t epoch = Open(g, EpOp::kReturnTokens, a.y_back, a.dw_back, s, &go);
  if (epoch == 0) return;
  if (go) {
    const int n = g.size, p = static_cast<int>(threadIdx.x);
    if (p <= n) s.first[p] = a.route.recv_offsets[p];
    if (p < n) {
      int64_t first = -a.route.recv_offsets[p];  // of the tokens for this rank in p's send order
      for (int q = 0; q < g.rank; ++q) first += a.route.tokens[p * n + q];
      s.rows[p] += first * a.y_back.stride;
      s.weights[p] += first * a.route.K * static_cast<int64_t>(sizeof(A));
    }
    __syncthreads();
    const int64_t received = s.first[n], K = a.route.K;
    Sum<T, kWidth>(RowsOut<T>{received, a.D, nullptr, nullptr},
                       FromSlots<T>{a.route.recv_slot, K, static_cast<const T*>(a.y_R), a.D}, [&](int64_t i) {
                         return reinterpret_cast<T*>(s.rows[PartOf(s.first, n, i)] + i * a.y_back.stride);
                       });
    const int64_t pairs = a.dw_R != nullptr ? received * K : 0;
    for (int64_t i = int64_t{blockIdx.x} * kSumThreads + threadIdx.x; i < pairs; i += int64_t{gridDim.x} * kSumThreads) {
      const int64_t row = a.route.recv_slot[i];
      reinterpret_cast<A*>(s.weights[PartOf(s.first, n, i / K)])[i] = row < 0 ? A{0} : static_cast<const A*>(a.dw_R)[row];
    }
  }
  Close(g, epoch, EpOp::kReturnTokens);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kSumThreads, 1) SumTokensKernel(const __grid_constant__ EpSumArgs a) {
  using A = Accum<T>;
  T* const y = static_cast<T*>(a.y);
  const EpRoute& r = a.route;
  Sum<T, kWidth>(RowsOut<T>{r.T, a.D, static_cast<const T*>(a.residual), static_cast<const T*>(a.addend)},
                     FromSlots<T>{r.send_slot, r.J, static_cast<const T*>(a.y_back), a.D},
                     [&](int64_t t) { return y + t * a.D; });
  const int64_t pairs = a.dw != nullptr ? r.T * r.K : 0;
  for (int64_t i = int64_t{blockIdx.x} * kSumThreads + threadIdx.x; i < pairs; i += int64_t{gridDim.x} * kSumThreads) {
    // A choice's gradient comes from the one rank that owns its expert, zero from the others.
    A sum{0};
    for (int64_t first = 0; first < r.J; first += 8) {
      A x[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int64_t slot = first + j < r.J ? r.send_slot[i / r.K * r.J + first + j] : -1;
        x[j] = slot >= 0 ? static_cast<const A*>(a.dw_back)[slot * r.K + i % r.K] : A{0};
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += x[j];
    }
    static_cast<A*>(a.dw)[i] = sum;
  }
}

// ---- Launching

// 0: bulk; 16, 4, 2: bytes of a unit.
int UnitFor(const EpLaunch& launch, std::initializer_list<const void*> addresses, std::initializer_list<int64_t> lengths) {
  int64_t bits = 0;
  for (const void* p : addresses) bits |= static_cast<int64_t>(reinterpret_cast<uintptr_t>(p));
  for (const int64_t n : lengths) bits |= n;
  if (bits % 16 == 0) return launch.bulk ? 0 : 16;
  return bits % 4 == 0 ? 4 : 2;
}

template <class F>
cudaError_t DispatchUnit(int unit, F&& f) {
  switch (unit) {
    case 0: return f.template operator()<0>();
    case 16: return f.template operator()<16>();
    case 4: return f.template operator()<4>();
    default: return f.template operator()<2>();
  }
}
constexpr size_t SharedFor(int unit) { return unit == 0 ? kSpreadShared : 0; }

bool Bad(const EpRoute& r, int ranks, const EpLaunch& launch) {
  return launch.blocks < 1 || r.E % ranks != 0 || r.K < 1 || r.E > int64_t{1} << 30;
}
// A window's place counts in the region, whose base is aligned to 256 bytes on every rank; every rank's tensors are.
int64_t Length(const EpWindow& w) { return w.place | w.stride; }

// f.operator()<T, kWidth>() for `sources` rows beside residual and addend; kWidth 0: bulk.
template <class F>
cudaError_t DispatchSum(KernelType type, const EpLaunch& launch, int64_t sources, int64_t D,
                        std::initializer_list<const void*> addresses, int64_t place, F&& f) {
  return DispatchKernelType(type, [&]<class T>() {
    const bool fits = PacksFit(kPackWidth<T>, addresses, {D}) && place % 16 == 0;
    if (fits && launch.bulk && sources <= kSumBulkSources) return f.template operator()<T, 0>();
    return DispatchWidth<T>(fits, [&]<int kWidth>() { return f.template operator()<T, kWidth>(); });
  });
}
constexpr size_t SharedForSum(int width) { return width == 0 ? kSumShared : 0; }

}  // namespace

cudaError_t EpDispatch(const EpGroup& group, const EpDispatchArgs& args, const EpLaunch& launch, cudaStream_t stream) {
  if (Bad(args.route, group.size, launch)) return cudaErrorInvalidValue;
  return DispatchUnit(UnitFor(launch, {args.x}, {args.row_bytes, Length(args.x_R)}), [&]<int kUnit>() {
    DispatchKernel<kUnit><<<static_cast<unsigned>(launch.blocks), kSpreadThreads, SharedFor(kUnit), stream>>>(group, args);
    return cudaGetLastError();
  });
}

cudaError_t EpSendTokens(const EpGroup& group, const EpDispatchArgs& args, const EpLaunch& launch, cudaStream_t stream) {
  if (Bad(args.route, group.size, launch)) return cudaErrorInvalidValue;
  return DispatchUnit(UnitFor(launch, {args.x}, {args.row_bytes, Length(args.x_R)}), [&]<int kUnit>() {
    SendTokensKernel<kUnit><<<static_cast<unsigned>(launch.blocks), kSpreadThreads, SharedFor(kUnit), stream>>>(group, args);
    return cudaGetLastError();
  });
}

cudaError_t EpReplicate(const EpReplicateArgs& args, const EpLaunch& launch, cudaStream_t stream) {
  if (Bad(args.route, args.ranks, launch)) return cudaErrorInvalidValue;
  return DispatchUnit(UnitFor(launch, {args.x_received, args.x_R}, {args.row_bytes, args.row_stride}), [&]<int kUnit>() {
    ReplicateKernel<kUnit><<<static_cast<unsigned>(launch.blocks), kSpreadThreads, SharedFor(kUnit), stream>>>(args);
    return cudaGetLastError();
  });
}

cudaError_t EpCombine(const EpGroup& group, KernelType type, const EpCombineArgs& args, const EpLaunch& launch,
                      cudaStream_t stream) {
  if (Bad(args.route, group.size, launch)) return cudaErrorInvalidValue;
  return DispatchSum(type, launch, args.route.K, args.D, {args.residual, args.addend, args.y}, Length(args.y_R), [&]<class T, int kWidth>() {
    CombineKernel<T, kWidth><<<static_cast<unsigned>(launch.blocks), kSumThreads, SharedForSum(kWidth), stream>>>(group, args);
    return cudaGetLastError();
  });
}

cudaError_t EpReturnTokens(const EpGroup& group, KernelType type, const EpReturnArgs& args, const EpLaunch& launch,
                           cudaStream_t stream) {
  if (Bad(args.route, group.size, launch)) return cudaErrorInvalidValue;
  return DispatchSum(type, launch, args.route.K, args.D, {args.y_R}, Length(args.y_back), [&]<class T, int kWidth>() {
    ReturnTokensKernel<T, kWidth><<<static_cast<unsigned>(launch.blocks), kSumThreads, SharedForSum(kWidth), stream>>>(group, args);
    return cudaGetLastError();
  });
}

cudaError_t EpSumTokens(KernelType type, const EpSumArgs& args, const EpLaunch& launch, cudaStream_t stream) {
  if (launch.blocks < 1) return cudaErrorInvalidValue;
  return DispatchSum(type, launch, args.route.J, args.D, {args.residual, args.addend, args.y, args.y_back}, 0, [&]<class T, int kWidth>() {
    SumTokensKernel<T, kWidth><<<static_cast<unsigned>(launch.blocks), kSumThreads, SharedForSum(kWidth), stream>>>(args);
    return cudaGetLastError();
  });
}

cudaError_t EpMoveRound(const EpGroup& group, const EpRoundArgs& args, const EpLaunch& launch, cudaStream_t stream) {
  if (launch.blocks < 1) return cudaErrorInvalidValue;
  const auto blocks = static_cast<unsigned>(launch.blocks);
  switch (UnitFor({.blocks = 1, .bulk = false}, {args.sent}, {args.row_bytes, Length(args.window)})) {
    case 16: RoundKernel<uint4><<<blocks, kSpreadThreads, 0, stream>>>(group, args); break;
    case 4: RoundKernel<uint32_t><<<blocks, kSpreadThreads, 0, stream>>>(group, args); break;
    default: RoundKernel<uint16_t><<<blocks, kSpreadThreads, 0, stream>>>(group, args); break;
  }
  return cudaGetLastError();
}

cudaError_t LoadEpRowKernels(bool* bulk) {
  cudaError_t result = cudaSuccess;
  cudaFuncAttributes attributes;
  const auto load = [&](auto* kernel, size_t shared) {
    if (result == cudaSuccess) result = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
    if (shared == 0 || result != cudaSuccess) return;
    // What the code was compiled for, not what the GPU is: a newer GPU may run the oldest PTX.
    *bulk = attributes.ptxVersion >= 90;
    if (*bulk)
      result = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  };
  const auto load_unit = [&]<int kUnit>() {
    load(DispatchKernel<kUnit>, SharedFor(kUnit));
    load(SendTokensKernel<kUnit>, SharedFor(kUnit));
    load(ReplicateKernel<kUnit>, SharedFor(kUnit));
    return result;
  };
  for (const int unit : {0, 16, 4, 2}) static_cast<void>(DispatchUnit(unit, load_unit));
  load(RoundKernel<uint4>, 0);
  load(RoundKernel<uint32_t>, 0);
  load(RoundKernel<uint16_t>, 0);
  const auto load_sum = [&]<class T, int kWidth>() {
    load(CombineKernel<T, kWidth>, SharedForSum(kWidth));
    load(ReturnTokensKernel<T, kWidth>, SharedForSum(kWidth));
    load(SumTokensKernel<T, kWidth>, SharedForSum(kWidth));
    return result;
  };
  for (const KernelType type : {KernelType::kBf16, KernelType::kF32, KernelType::kF64}) {
    for (const bool with_bulk : {true, false}) {
      for (const int64_t D : {16, 1}) {
        const EpLaunch launch{.blocks = 1, .bulk = with_bulk};
        static_cast<void>(DispatchSum(type, launch, 1, D, {}, 0, load_sum));
      }
    }
  }
  return result;
}

}  // namespace yardmaster
