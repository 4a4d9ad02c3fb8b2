#include "src/ops/cpu/quantize_cpu.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "src/device/cpu_parallel.h"
#include "src/ops/cpu/ragged_blocks.h"
#include "src/tensor/small_float.h"

namespace yardmaster::cpu {
namespace {

// f.template operator()<T>() with T the type that is quantised.
template <class F>
void DispatchSource(DType t, F&& f) {
  t == DType::kF32 ? f.template operator()<float>() : f.template operator()<BFloat16>();
}

template <class T>
T Rounded(float v) {
  return T(v);
}

// The largest magnitude as bits of an FP32: in this order infinity is above every finite value and a NaN
// above infinity.
template <class T>
uint32_t MagnitudeBits(T v) {
  return std::bit_cast<uint32_t>(static_cast<float>(v)) & 0x7FFFFFFFu;
}

// How a block is stored and encoded.
struct BlockScale {
  float inverse;  // of a power of two: a code is E4M3(x * inverse), which is E4M3(x / scale). Else 0
  float scale;    // a code stands for code * scale
  uint8_t e8m0;   // the same scale, in mxfp8
  bool nan;       // an element is infinite or NaN: so are the scale and every code
};

BlockScale ScaleOf(const QuantFormat& format, uint32_t amax_bits) {
  if (amax_bits >= 0x7F800000u) return {0, std::bit_cast<float>(0x7FFFFFFFu), kE8m0Nan, true};
  const float amax = std::bit_cast<float>(amax_bits);
  if (format.kind == QuantKind::kMxfp8) {
    const uint8_t code = E8m0ForAmax(amax);
    return {E8m0Inverse(code), E8m0ToFloat(code), code, false};
  }
  if (amax == 0) return {1, 1, 0, false};
  // Not below the smallest normal number, so that an inverse is finite.
  const float scale =
      std::max(format.power_of_two ? E8m0ToFloat(E8m0ForAmax(amax)) : amax / kE4m3Max, 0x1p-126f);
  return {format.power_of_two ? 1.0f / scale : 0.0f, scale, 0, false};
}

uint8_t Encode(float v, const BlockScale& s) {
  if (s.nan) return kE4m3Nan;
  return E4m3FromFloat(s.inverse != 0 ? v * s.inverse : v / s.scale);
}

// Where the scale of (row, run) of codes [rows, K] lies.
class ScaleStore {
 public:
  ScaleStore(const QuantFormat& format, const Tensor& scales)
      : f32_(format.kind == QuantKind::kFp8Block ? scales.as<float>() : nullptr),
        u8_(format.kind == QuantKind::kMxfp8 ? scales.as<uint8_t>() : nullptr),
        ld_(scales.ld()) {}
  void Put(int64_t row, int64_t run, const BlockScale& s) const {
    if (f32_ != nullptr) {
      f32_[run * ld_ + row] = s.scale;
    } else {
      u8_[run * ld_ + row] = s.e8m0;
    }
  }
  float Get(int64_t row, int64_t run) const {
    return f32_ != nullptr ? f32_[run * ld_ + row] : E8m0ToFloat(u8_[run * ld_ + row]);
  }

 private:
  float* f32_;
  uint8_t* u8_;
  int64_t ld_;
};

// Codes and scales of x's rows [row0, row0 + rows), scales per run of a row.
template <class T>
void QuantizeAlongRows(const QuantFormat& format, const T* x, int64_t ld, int64_t row0, int64_t rows,
                       int64_t C, uint8_t* codes, const ScaleStore& scales) {
  for (int64_t r = row0; r < row0 + rows; ++r) {
    for (int64_t c0 = 0; c0 < C; c0 += format.run()) {
      const int64_t c1 = std::min(C, c0 + format.run());
      uint32_t amax = 0;
      for (int64_t c = c0; c < c1; ++c) amax = std::max(amax, MagnitudeBits(x[r * ld + c]));
      const BlockScale s = ScaleOf(format, amax);
      scales.Put(r, c0 / format.run(), s);
      for (int64_t c = c0; c < c1; ++c) codes[r * C + c] = Encode(static_cast<float>(x[r * ld + c]), s);
    }
  }
}

// The transposed copy of x's rows [row0, row0 + rows): codes[c * ld_codes + i] for i in [0, padded), zeros
// from `rows` on. Scales go to run_base + i / run.
template <class T>
void QuantizeAlongColumns(const QuantFormat& format, const T* x, int64_t ld, int64_t row0, int64_t rows,
                          int64_t C, int64_t padded, uint8_t* codes, int64_t ld_codes,
                          const ScaleStore& scales, int64_t run_base) {
  for (int64_t c = 0; c < C; ++c) {
    for (int64_t i0 = 0; i0 < padded; i0 += format.run()) {
      const int64_t i1 = std::min(rows, i0 + format.run());
      uint32_t amax = 0;
      for (int64_t i = i0; i < i1; ++i) amax = std::max(amax, MagnitudeBits(x[(row0 + i) * ld + c]));
      const BlockScale s = ScaleOf(format, amax);
      scales.Put(c, run_base + i0 / format.run(), s);
      uint8_t* out = codes + c * ld_codes;
      for (int64_t i = i0; i < std::min(padded, i0 + format.run()); ++i) {
        // A pad row is a row of zeros, which a NaN scale does not change: the run is lost either way.
        out[i] = i < i1  ? Encode(static_cast<float>(x[(row0 + i) * ld + c]), s)
                 : s.nan ? kE4m3Nan
                         : uint8_t{0};
      }
    }
  }
}

template <class T>
void QuantizeBlocks(const Stream& stream, const QuantizeWeightsArgs& g) {
  const int64_t L = g.w.dim(0), N = g.w.dim(1), K = g.w.dim(2), run = g.format.run();
  const int64_t nb = (N + run - 1) / run, kb = (K + run - 1) / run;
  ParallelFor(stream, L * nb, 1, [&](int64_t task, int64_t) {
    const int64_t l = task / nb, n0 = task % nb * run, n1 = std::min(N, n0 + run);
    const T* w = g.w.as<T>() + l * N * K;
    for (int64_t k0 = 0; k0 < K; k0 += run) {
      const int64_t k1 = std::min(K, k0 + run);
      uint32_t amax = 0;
      for (int64_t n = n0; n < n1; ++n)
        for (int64_t k = k0; k < k1; ++k) amax = std::max(amax, MagnitudeBits(w[n * K + k]));
      const BlockScale s = ScaleOf(g.format, amax);
      const int64_t i = n0 / run, j = k0 / run;
      if (g.rows.defined()) g.rows.scales.template as<float>()[(l * nb + i) * kb + j] = s.scale;
      if (g.cols.defined()) g.cols.scales.template as<float>()[(l * kb + j) * nb + i] = s.scale;
      for (int64_t n = n0; n < n1; ++n) {
        for (int64_t k = k0; k < k1; ++k) {
          const uint8_t code = Encode(static_cast<float>(w[n * K + k]), s);
          if (g.rows.defined()) g.rows.codes.template as<uint8_t>()[(l * N + n) * K + k] = code;
          if (g.cols.defined()) g.cols.codes.template as<uint8_t>()[(l * K + k) * N + n] = code;
        }
      }
    }
  });
}

// Each expert's matrix as ragged rows of its own: the runs of mxfp8 know no 2-D blocks.
template <class T>
void QuantizeRunsOfWeights(const Stream& stream, const QuantizeWeightsArgs& g) {
  const int64_t L = g.w.dim(0), N = g.w.dim(1), K = g.w.dim(2);
  const int64_t per_expert = (N + kGroupAlignment - 1) / kGroupAlignment;
  ParallelFor(stream, L * per_expert, 1, [&](int64_t task, int64_t) {
    const int64_t l = task / per_expert, n0 = task % per_expert * kGroupAlignment;
    const int64_t n = std::min(kGroupAlignment, N - n0);
    const T* w = g.w.as<T>() + l * N * K;
    if (g.rows.defined()) {
      QuantizeAlongRows(g.format, w, K, n0, n, K, g.rows.codes.as<uint8_t>() + l * N * K,
                        ScaleStore(g.format, g.rows.scales.At(l)));
    }
    if (g.cols.defined()) {
      QuantizeAlongColumns(g.format, w, K, n0, n, K, n, g.cols.codes.as<uint8_t>() + l * K * N + n0, N,
                           ScaleStore(g.format, g.cols.scales.At(l)), n0 / g.format.run());
    }
  });
}

// A tile of 128 rows x 4 runs, of which there are `rows` and `runs`. The scale of row r, run c is
// from[c * ld + r].
void WriteTile(const uint8_t* from, int64_t ld, int64_t rows, int64_t runs, uint8_t* tile) {
  std::memset(tile, 0, 512);
  for (int64_t r = 0; r < std::min<int64_t>(rows, 128); ++r) {
    for (int64_t c = 0; c < std::min<int64_t>(runs, 4); ++c)
      tile[r % 32 * 16 + r / 32 * 4 + c] = from[c * ld + r];
  }
}

}  // namespace

void QuantizeRows(const Stream& stream, const QuantizeRowsArgs& g) {
  const int64_t R = g.x.dim(0), C = g.x.dim(1), ld = g.x.ld();
  const RaggedGroups groups(g.offsets, R);
  DispatchSource(g.x.dtype(), [&]<class T>() {
    const T* x = g.x.as<T>();
    ParallelFor(stream, groups.blocks(), 1, [&](int64_t index, int64_t) {
      const RaggedBlock b = groups.Block(index);
      if (g.rows.defined()) {
        QuantizeAlongRows(g.format, x, ld, b.row0, b.rows, C, g.rows.codes.as<uint8_t>(),
                          ScaleStore(g.format, g.rows.scales));
      }
      if (g.cols.defined()) {
        QuantizeAlongColumns(g.format, x, ld, b.row0, b.rows, C, kGroupAlignment,
                             g.cols.codes.as<uint8_t>() + b.padded_row0, g.cols.codes.ld(),
                             ScaleStore(g.format, g.cols.scales), b.padded_row0 / g.format.run());
      }
    });
  });
}

void QuantizeWeights(const Stream& stream, const QuantizeWeightsArgs& g) {
  if (g.through_bf16 && g.w.dtype() == DType::kF32) {
    const HostTensor rounded(DType::kBF16, g.w.shape());
    for (int64_t i = 0; i < rounded.elements(); ++i) rounded.as<BFloat16>()[i] = BFloat16(g.w.as<float>()[i]);
    QuantizeWeightsArgs of_rounded = g;
    of_rounded.w = rounded.view();
    return cpu::QuantizeWeights(stream, of_rounded);
  }
  DispatchSource(g.w.dtype(), [&]<class T>() {
    g.format.kind == QuantKind::kFp8Block ? QuantizeBlocks<T>(stream, g)
                                          : QuantizeRunsOfWeights<T>(stream, g);
  });
}

void Dequantize(const Stream& stream, const DequantizeArgs& g) {
  const int64_t R = g.out.dim(0), C = g.out.dim(1), run = g.format.run();
  const RaggedGroups groups(g.offsets, R);
  const bool transposed = g.cols.defined();
  const Quantized& from = transposed ? g.cols : g.rows;
  const auto* codes = from.codes.as<uint8_t>();
  const ScaleStore scales(g.format, from.scales);
  DispatchSource(g.out.dtype(), [&]<class T>() {
    T* out = g.out.as<T>();
    ParallelFor(stream, groups.blocks(), 1, [&](int64_t index, int64_t) {
      const RaggedBlock b = groups.Block(index);
      for (int64_t i = 0; i < b.rows; ++i) {
        const int64_t r = b.row0 + i, p = b.padded_row0 + i;
        for (int64_t c = 0; c < C; ++c) {
          const float value = transposed
                                  ? E4m3ToFloat(codes[c * from.codes.ld() + p]) * scales.Get(c, p / run)
                                  : E4m3ToFloat(codes[r * C + c]) * scales.Get(r, c / run);
          out[r * C + c] = Rounded<T>(value);
        }
      }
    });
  });
}

void DequantizeWeights(const Stream& stream, const QuantizeWeightsArgs& g, const Tensor& out_LNK) {
  const int64_t L = out_LNK.dim(0), N = out_LNK.dim(1), K = out_LNK.dim(2), run = g.format.run();
  const bool transposed = g.cols.defined(), blocks = g.format.kind == QuantKind::kFp8Block;
  const Quantized& from = transposed ? g.cols : g.rows;
  const auto* codes = from.codes.as<uint8_t>();
  const int64_t ld = from.scales.ld();
  DispatchSource(out_LNK.dtype(), [&]<class T>() {
    T* out = out_LNK.as<T>();
    ParallelFor(stream, L * N, GrainFor(L * N, 16), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t l = row / N, n = row % N;
        const Tensor scales = from.scales.At(l);
        for (int64_t k = 0; k < K; ++k) {
          const int64_t i = transposed ? k : n, j = transposed ? n : k;  // of the stored matrix
          const float scale = blocks ? scales.as<float>()[i / run * ld + j / run]
                                     : E8m0ToFloat(scales.as<uint8_t>()[j / run * ld + i]);
          const uint8_t code = transposed ? codes[(l * K + k) * N + n] : codes[row * K + k];
          out[row * K + k] = Rounded<T>(E4m3ToFloat(code) * scale);
        }
      }
    });
  });
}

void ScalesToTiles(const Stream& stream, const Tensor& scales, int64_t rows, const Tensor& offsets,
                   const Tensor& tiles) {
  const int64_t runs = scales.dim(0), ld = scales.ld(), tile_columns = tiles.dim(1);
  const RaggedGroups groups(offsets, rows);
  const auto* from = scales.as<uint8_t>();
  auto* to = tiles.as<uint8_t>();
  ParallelFor(stream, groups.blocks(), 1, [&](int64_t index, int64_t) {
    const RaggedBlock b = groups.Block(index);
    for (int64_t column = 0; column < tile_columns; ++column) {
      WriteTile(from + column * 4 * ld + b.row0, ld, b.rows, runs - column * 4,
                to + (index * tile_columns + column) * 512);
    }
  });
}

void WeightScalesToTiles(const Stream& stream, const Tensor& scales_LRN, const Tensor& tiles) {
  const int64_t L = scales_LRN.dim(0), runs = scales_LRN.dim(1), N = scales_LRN.dim(2);
  const int64_t row_tiles = (N + 127) / 128, tile_columns = tiles.dim(1);
  const auto* from = scales_LRN.as<uint8_t>();
  auto* to = tiles.as<uint8_t>();
  ParallelFor(stream, L * row_tiles, 1, [&](int64_t index, int64_t) {
    const int64_t l = index / row_tiles, row0 = index % row_tiles * 128;
    for (int64_t column = 0; column < tile_columns; ++column) {
      WriteTile(from + (l * runs + column * 4) * N + row0, N, N - row0, runs - column * 4,
                to + (index * tile_columns + column) * 512);
    }
  });
}

void ColumnScalesToTiles(const Stream& stream, const Tensor& scales, int64_t C, int64_t rows,
                         const Tensor& offsets, const Tensor& tiles) {
  const int64_t ld = scales.ld(), row_tiles = tiles.dim(1);
  const RaggedGroups groups(offsets, rows);
  const auto* from = scales.as<uint8_t>();
  auto* to = tiles.as<uint8_t>();
  std::vector<int64_t> first = {0};  // by group: its first block of the aligned row space
  for (int64_t l = 0; l < groups.count(); ++l)
    first.push_back(first.back() + RaggedGroups::Aligned(groups.rows(l)) / 128);
  ParallelFor(stream, groups.blocks(), 1, [&](int64_t index, int64_t) {
    const auto group = static_cast<size_t>(groups.Block(index).group);
    const int64_t blocks = first[group + 1] - first[group];
    for (int64_t tile = 0; tile < row_tiles; ++tile) {
      WriteTile(from + index * 4 * ld + tile * 128, ld, C - tile * 128, 4,
                to + (first[group] * row_tiles + tile * blocks + index - first[group]) * 512);
    }
  });
}

}  // namespace yardmaster::cpu
