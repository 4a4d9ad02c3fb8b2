#include "kernels/common/copy_async.cuh"
#include "kernels/common/pack.cuh"
#include "kernels/rope/mla_rope_pack.h"

namespace yardmaster {
namespace {

constexpr int kThreads = 256;

// Rotation works on whole pairs: two elements at least.
template <int kWidth>
inline constexpr int kTurn = kWidth < 2 ? 2 : kWidth;

template <int kWidth, class T>
__device__ __forceinline__ void LoadTurn(const T* p, Accum<T> (&out)[kTurn<kWidth>]) {
  if constexpr (kWidth == 1) {
    out[0] = ToAccum(p[0]), out[1] = ToAccum(p[1]);
  } else {
    LoadAccum<kWidth>(p, out);
  }
}
template <int kWidth, class T, class A>
__device__ __forceinline__ void StoreTurn(T* p, const A (&in)[kTurn<kWidth>]) {
  if constexpr (kWidth == 1) {
    p[0] = FromAccum<T>(in[0]), p[1] = FromAccum<T>(in[1]);
  } else {
    StoreRounded<kWidth>(p, in);
  }
}

// Rotates the pairs of x; cos_sin is the table's row from the first pair on, null: there is none. sign -1 is
// the transpose.
template <int kCount, class A>
__device__ __forceinline__ void Rotate(A (&x)[kCount], const A* cos_sin, A sign) {
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    const A c = cos_sin != nullptr ? cos_sin[i] : static_cast<A>(NAN);
    const A s = cos_sin != nullptr ? sign * cos_sin[i + 1] : static_cast<A>(NAN);
    const A a = x[i], b = x[i + 1];
    x[i] = a * c - b * s;
    x[i + 1] = a * s + b * c;
  }
}

template <class A>
__device__ __forceinline__ const A* TableRow(const MlaRopeShape& g, int64_t t) {
  const int64_t position = g.positions[t];
  if (position < 0 || position >= g.max_positions) return nullptr;
  return static_cast<const A*>(g.table) + position * g.rope;
}

// Copies the first N and rotates the last P elements of a token's heads. `rope_stride` 0: one positional part
// for all heads.
template <int kWidth, class T>
__device__ __forceinline__ void PackHeads(const MlaRopeShape& g, const T* nope, int nope_stride,
                                          const T* rope, int rope_stride, const Accum<T>* cos_sin,
                                          Accum<T> sign, T* out) {
  constexpr int kStep = kTurn<kWidth>;
  const int copies = g.nope / kWidth, turns = g.rope / kStep, items = g.heads * (copies + turns),
            Q = g.nope + g.rope;
  for (int i = static_cast<int>(threadIdx.x); i < items; i += kThreads) {
    const int head = i / (copies + turns), c = i % (copies + turns);
    T* to = out + int64_t{head} * Q;
    if (c < copies) {
      const T* from = nope + int64_t{head} * nope_stride + c * kWidth;
      if (from != to + c * kWidth) StorePack<kWidth>(to + c * kWidth, LoadPack<kWidth>(from));
    } else {
      const int d = (c - copies) * kStep;
      Accum<T> x[kStep];
      LoadTurn<kWidth>(rope + int64_t{head} * rope_stride + d, x);
      Rotate(x, cos_sin != nullptr ? cos_sin + d : nullptr, sign);
      StoreTurn<kWidth>(to + g.nope + d, x);
    }
  }
}

// Copies `count` elements of each head from rows of one length to rows of another.
template <int kWidth, class T>
__device__ __forceinline__ void CopyHeads(int heads, int count, const T* from, int from_stride, T* to,
                                          int to_stride) {
  const int packs = count / kWidth;
  for (int i = static_cast<int>(threadIdx.x); i < heads * packs; i += kThreads) {
    const int head = i / packs, d = i % packs * kWidth;
    StorePack<kWidth>(to + int64_t{head} * to_stride + d,
                      LoadPack<kWidth>(from + int64_t{head} * from_stride + d));
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    PackKernel(MlaRopeShape g, const T* q, const T* kv, const T* k_rope, T* q_out, T* k_out, T* v_out) {
  const int Q = g.nope + g.rope, KV = g.nope + g.v;
  for (int64_t t = blockIdx.x; t < g.tokens; t += gridDim.x) {
    const Accum<T>* cos_sin = TableRow<Accum<T>>(g, t);
    const T* q_t = q + t * g.heads * Q;
    const T* kv_t = kv + t * g.heads * KV;
    PackHeads<kWidth>(g, q_t, Q, q_t + g.nope, Q, cos_sin, Accum<T>{1}, q_out + t * g.heads * Q);
    PackHeads<kWidth>(g, kv_t, KV, k_rope + t * g.ld_rope, 0, cos_sin, Accum<T>{1}, k_out + t * g.heads * Q);
    CopyHeads<kWidth>(g.heads, g.v, kv_t + g.nope, KV, v_out + t * g.heads * g.v, g.v);
  }
}

// dk_rope of one token: the sum over heads of dk_out's positional parts, rotated back once.
template <int kWidth, class T>
__device__ void SumHeads(const MlaRopeShape& g, const T* dk, const Accum<T>* cos_sin, T* dk_rope,
                         Accum<T>* shared) {
  using A = Accum<T>;
  constexpr int kStep = kTurn<kWidth>;
  const int Q = g.nope + g.rope, turns = g.rope / kStep;
  const int at_once = turns < kThreads ? turns : kThreads, runs = kThreads / at_once,
            run = (g.heads + runs - 1) / runs;
  const int lane = static_cast<int>(threadIdx.x) % at_once, r = static_cast<int>(threadIdx.x) / at_once;
  for (int base = 0; base < turns; base += at_once) {
    const int d = (base + lane) * kStep;
    const bool mine = r < runs && base + lane < turns;
    A sum[kStep] = {};
    if (mine) {
      for (int head = r * run; head < g.heads && head < (r + 1) * run; ++head) {
        A x[kStep];
        LoadTurn<kWidth>(dk + int64_t{head} * Q + g.nope + d, x);
#pragma unroll
        for (int j = 0; j < kStep; ++j) sum[j] += x[j];
      }
#pragma unroll
      for (int j = 0; j < kStep; ++j) shared[static_cast<int>(threadIdx.x) * kStep + j] = sum[j];
    }
    __syncthreads();
    if (mine && r == 0) {
      for (int other = 1; other < runs; ++other) {
#pragma unroll
        for (int j = 0; j < kStep; ++j) sum[j] += shared[(other * at_once + lane) * kStep + j];
      }
      Rotate(sum, cos_sin != nullptr ? cos_sin + d : nullptr, A{-1});
      StoreTurn<kWidth>(dk_rope + d, sum);
    }
    __syncthreads();
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) UnpackKernel(MlaRopeShape g, const T* dq_out, const T* dk_out,
                                                         const T* dv_out, T* dq, T* dkv, T* dk_rope) {
  __shared__ Accum<T> shared[kThreads * kTurn<kWidth>];
  const int Q = g.nope + g.rope, KV = g.nope + g.v;
  for (int64_t t = blockIdx.x; t < g.tokens; t += gridDim.x) {
    const Accum<T>* cos_sin = TableRow<Accum<T>>(g, t);
    const T* dq_t = dq_out + t * g.heads * Q;
    const T* dk_t = dk_out + t * g.heads * Q;
    T* dkv_t = dkv + t * g.heads * KV;
    PackHeads<kWidth>(g, dq_t, Q, dq_t + g.nope, Q, cos_sin, Accum<T>{-1}, dq + t * g.heads * Q);
    CopyHeads<kWidth>(g.heads, g.nope, dk_t, Q, dkv_t, KV);
    CopyHeads<kWidth>(g.heads, g.v, dv_out + t * g.heads * g.v, g.v, dkv_t + g.nope, KV);
    SumHeads<kWidth>(g, dk_t, cos_sin, dk_rope + t * g.ld_rope, shared);
  }
}

// ---- a warp for each head, one pack of a row for each lane
// ---------------------------------------------------- No index is divided, and while a warp works on one
// head, the rows of its next kStages - 1 are on their way to shared memory, where each lane reads what it
// copied. For shapes whose rows of one head are at most 32 packs (192 and 256 BF16 elements in the reference
// model: 24 and 32).

constexpr int kWarps = kThreads / 32, kStages = 3;

// cos, sin of a lane's pairs, NaN where the position has none.
template <int kWidth, class A>
__device__ __forceinline__ void LoadTable(const A* cos_sin, int d, A (&out)[kWidth]) {
  if (cos_sin != nullptr) {
    LoadAccum<kWidth>(cos_sin + d, out);
  } else {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) out[j] = static_cast<A>(NAN);
  }
}
template <int kWidth, class T>
__device__ __forceinline__ Pack<T, kWidth> Rotated(const Pack<T, kWidth>& in,
                                                   const Accum<T> (&cos_sin)[kWidth], Accum<T> sign) {
  Accum<T> x[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) x[j] = ToAccum(in.x[j]);
  Rotate(x, cos_sin, sign);
  Pack<T, kWidth> out;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) out.x[j] = FromAccum<T>(x[j]);
  return out;
}

// A warp's heads, every kWarps-th: fetch(head, stage) starts the copies of one into a buffer of the thread's own, kStages
// - 1 heads ahead of use(head, stage).
template <class Fetch, class Use>
__device__ __forceinline__ void ForHeads(int heads, const Fetch& fetch, const Use& use) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const auto ahead = [&](int head, int stage) {
    if (head < heads) fetch(head, stage);
    CommitCopies();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) ahead(warp + i * kWarps, i);
  int stage = 0;
#pragma unroll 1
  for (int head = warp; head < heads; head += kWarps) {
    ahead(head + (kStages - 1) * kWarps, stage == 0 ? kStages - 1 : stage - 1);
    WaitForCopies<kStages - 1>();
    const int ready = stage;
    stage = stage + 1 == kStages ? 0 : stage + 1;
    use(head, ready);
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 4)
    PackByWarpsKernel(MlaRopeShape g, const T* q, const T* kv, const T* k_rope, T* q_out, T* k_out,
                      T* v_out) {
  using A = Accum<T>;
  using P = Pack<T, kWidth>;
  __shared__ P staged[kStages][2][kThreads];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int at = lane * kWidth, Q = g.nope + g.rope, KV = g.nope + g.v;
  const bool turns = at >= g.nope && at < Q, moves_q = turns || (at < Q && q != q_out), moves_kv = at < KV;
  const int turned_at = at - (32 * kWidth - g.rope);  // the last lanes write the keys' positional part
  const int64_t t = blockIdx.x;
  const A* row = TableRow<A>(g, t);
  A cos_sin[kWidth];
  P turned;
  if (turned_at >= 0) {
    LoadTable<kWidth>(row, turned_at, cos_sin);
    turned = Rotated<kWidth>(LoadPack<kWidth>(k_rope + t * g.ld_rope + turned_at), cos_sin, A{1});
  }
  if (turns) LoadTable<kWidth>(row, at - g.nope, cos_sin);
  const T* q_t = q + t * g.heads * Q + at;
  const T* kv_t = kv + t * g.heads * KV + at;
  T* q_to = q_out + t * g.heads * Q + at;
  T* k_to = k_out + t * g.heads * Q;
  // A lane's pack of kv goes to the keys or to the values.
  T* kv_to = at < g.nope ? k_to + at : v_out + t * g.heads * g.v + (at - g.nope);
  const int kv_step = at < g.nope ? Q : g.v;
  k_to += g.nope + turned_at;
  const auto fetch = [&](int head, int stage) {
    if (moves_q) CopyAsync(&staged[stage][0][threadIdx.x], q_t + head * Q);
    if (moves_kv) CopyAsync(&staged[stage][1][threadIdx.x], kv_t + head * KV);
  };
  ForHeads(g.heads, fetch, [&](int head, int stage) {
    const P of_q = staged[stage][0][threadIdx.x], of_kv = staged[stage][1][threadIdx.x];
    if (moves_kv) StorePack<kWidth>(kv_to + head * kv_step, of_kv);
    if (turned_at >= 0) StorePack<kWidth>(k_to + head * Q, turned);
    if (moves_q) StorePack<kWidth>(q_to + head * Q, turns ? Rotated<kWidth>(of_q, cos_sin, A{1}) : of_q);
  });
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 4)
    UnpackByWarpsKernel(MlaRopeShape g, const T* dq_out, const T* dk_out, const T* dv_out, T* dq, T* dkv,
                        T* dk_rope) {
  using A = Accum<T>;
  using P = Pack<T, kWidth>;
  __shared__ P staged[kStages][2][kThreads];
  __shared__ A sums[kWarps][32 * kWidth];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int at = lane * kWidth, Q = g.nope + g.rope, KV = g.nope + g.v;
  const bool turns = at >= g.nope && at < Q, moves_q = turns || (at < Q && dq != dq_out), moves_kv = at < KV;
  const int summed_at = at - (32 * kWidth - g.rope);  // the last lanes add the keys' positional parts
  const int64_t t = blockIdx.x;
  const A* row = TableRow<A>(g, t);
  A mine[kWidth] = {};  // of a lane that turns: cos, sin; of one that adds: the sum. No lane does both
  if (turns) LoadTable<kWidth>(row, at - g.nope, mine);
  const T* k_t = dk_out + t * g.heads * Q;
  // Of a lane: one pack of the queries, or one that it adds; and one of the keys or the values, for dkv.
  const bool adds = summed_at >= 0;
  const T* one_t = adds ? k_t + g.nope + summed_at : dq_out + t * g.heads * Q + at;
  const T* kv_t = at < g.nope ? k_t + at : dv_out + t * g.heads * g.v + (at - g.nope);
  const int kv_step = at < g.nope ? Q : g.v;
  T* q_to = dq + t * g.heads * Q + at;
  T* kv_to = dkv + t * g.heads * KV + at;
  const auto fetch = [&](int head, int stage) {
    if (moves_q || adds) CopyAsync(&staged[stage][0][threadIdx.x], one_t + head * Q);
    if (moves_kv) CopyAsync(&staged[stage][1][threadIdx.x], kv_t + head * kv_step);
  };
  ForHeads(g.heads, fetch, [&](int head, int stage) {
    const P one = staged[stage][0][threadIdx.x], of_kv = staged[stage][1][threadIdx.x];
    if (moves_kv) StorePack<kWidth>(kv_to + head * KV, of_kv);
    if (moves_q) StorePack<kWidth>(q_to + head * Q, turns ? Rotated<kWidth>(one, mine, A{-1}) : one);
    if (!adds) return;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) mine[j] += ToAccum(one.x[j]);
  });
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sums[warp][at + j] = mine[j];
  __syncthreads();
  if (warp != 0 || summed_at < 0) return;
  for (int other = 1; other < kWarps; ++other) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) mine[j] += sums[other][at + j];
  }
  Rotate(mine, row != nullptr ? row + summed_at : nullptr, A{-1});
  StoreRounded<kWidth>(dk_rope + t * g.ld_rope + summed_at, mine);
}

bool RowsFitWarps(const MlaRopeShape& g, int width) {
  return g.nope + 2 * g.rope <= 32 * width && g.nope + g.v <= 32 * width && PacksFit(width, {g.table}, {}) &&
         g.tokens < (int64_t{1} << 31);
}

bool Fits(const MlaRopeShape& g, int width, std::initializer_list<const void*> addresses) {
  return PacksFit(width, addresses, {g.nope, g.rope, g.v, g.ld_rope});
}

}  // namespace

cudaError_t MlaRopePack(KernelType type, const MlaRopeShape& g, const void* q, const void* kv,
                        const void* k_rope, void* q_out, void* k_out, void* v_out, cudaStream_t stream) {
  if (g.tokens == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    return DispatchWidth<T>(Fits(g, kPackWidth<T>, {q, kv, k_rope, q_out, k_out, v_out}), [&]<int kWidth>() {
      if constexpr (kWidth > 1) {
        if (RowsFitWarps(g, kWidth)) {
          PackByWarpsKernel<T, kWidth><<<static_cast<unsigned>(g.tokens), kThreads, 0, stream>>>(
              g, static_cast<const T*>(q), static_cast<const T*>(kv), static_cast<const T*>(k_rope),
              static_cast<T*>(q_out), static_cast<T*>(k_out), static_cast<T*>(v_out));
          return cudaGetLastError();
        }
      }
      PackKernel<T, kWidth><<<GridFor(g.tokens), kThreads, 0, stream>>>(
          g, static_cast<const T*>(q), static_cast<const T*>(kv), static_cast<const T*>(k_rope),
          static_cast<T*>(q_out), static_cast<T*>(k_out), static_cast<T*>(v_out));
      return cudaGetLastError();
    });
  });
}

cudaError_t MlaRopeUnpack(KernelType type, const MlaRopeShape& g, const void* dq_out, const void* dk_out,
                          const void* dv_out, void* dq, void* dkv, void* dk_rope, cudaStream_t stream) {
  if (g.tokens == 0) return cudaSuccess;
  return DispatchKernelType(type, [&]<class T>() {
    return DispatchWidth<T>(
        Fits(g, kPackWidth<T>, {dq_out, dk_out, dv_out, dq, dkv, dk_rope}), [&]<int kWidth>() {
          if constexpr (kWidth > 1) {
            if (RowsFitWarps(g, kWidth)) {
              UnpackByWarpsKernel<T, kWidth><<<static_cast<unsigned>(g.tokens), kThreads, 0, stream>>>(
                  g, static_cast<const T*>(dq_out), static_cast<const T*>(dk_out),
                  static_cast<const T*>(dv_out), static_cast<T*>(dq), static_cast<T*>(dkv),
                  static_cast<T*>(dk_rope));
              return cudaGetLastError();
            }
          }
          UnpackKernel<T, kWidth><<<GridFor(g.tokens), kThreads, 0, stream>>>(
              g, static_cast<const T*>(dq_out), static_cast<const T*>(dk_out), static_cast<const T*>(dv_out),
              static_cast<T*>(dq), static_cast<T*>(dkv), static_cast<T*>(dk_rope));
          return cudaGetLastError();
        });
  });
}

}  // namespace yardmaster
