#include "src/ops/quantize.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <tuple>

#include "src/ops/adamw.h"
#include "src/ops/quantize_fused.h"
#include "src/ops/quantize_nvfp4.h"
#include "src/ops/rmsnorm.h"
#include "src/ops/step_control.h"
#include "src/ops/swiglu.h"
#include "src/ops/wire_rows.h"
#include "src/tensor/safetensors.h"
#include "tests/cuda/gpu.h"

namespace yardmaster::testing {
namespace {

constexpr QuantFormat kMx{QuantKind::kMxfp8};
constexpr QuantFormat kPow2{QuantKind::kFp8Block, true};
constexpr QuantFormat kExact{QuantKind::kFp8Block, false};

// A pair of tensors of one shape, on the host and on the GPU, both full of 0xFF: what an op leaves alone stays so on both.
struct Pair {
  HostTensor host;
  Tensor gpu;
  Tensor cpu() const { return host.view(); }
};
Pair MakePair(Gpu& gpu, DType type, const Shape& shape) {
  Pair p{HostTensor(type, shape), gpu.Make(type, shape)};
  if (shape.elements()) std::memset(p.cpu().data(), 0xFF, static_cast<size_t>(p.cpu().bytes()));
  return p;
}
Pair MakePair(Gpu& gpu, const Tensor& source) {  // contiguous, on the host
  Pair p = MakePair(gpu, source.dtype(), source.shape());
  if (source.elements() == 0) return p;
  std::memcpy(p.cpu().data(), source.data(), static_cast<size_t>(source.bytes()));
  gpu.device().CopyFromHost(p.gpu.data(), source.data(), static_cast<size_t>(source.bytes()));
  return p;
}

// The first byte that differs, or -1.
int64_t FirstDifference(Gpu& gpu, const Pair& p) {
  if (p.cpu().elements() == 0) return -1;
  const std::string there = gpu.Bytes(p.gpu);
  const char* here = static_cast<const char*>(p.cpu().data());
  for (size_t i = 0; i < there.size(); ++i)
    if (there[i] != here[i]) return static_cast<int64_t>(i);
  return -1;
}

// Values, a NaN being any NaN.
int64_t DifferentValues(Gpu& gpu, const Pair& p) {
  const std::vector<double> a = ValuesOf(p.cpu()), b = gpu.Values(p.gpu);
  int64_t n = 0;
  for (size_t i = 0; i < a.size(); ++i) n += !(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])));
  return n;
}

struct Copy {
  Pair codes, scales;
  Quantized cpu() const { return {codes.cpu(), scales.cpu()}; }
  Quantized gpu() const { return {codes.gpu, scales.gpu}; }
};
Copy MakeCopy(Gpu& gpu, const QuantFormat& f, const Shape& codes) {
  return {MakePair(gpu, DType::kU8, codes),
          MakePair(gpu, f.scale_type(), ScalesOf(f, codes))};
}
void CheckSame(Gpu& gpu, const Copy& c) {
  CHECK(FirstDifference(gpu, c.codes) == -1);
  CHECK(FirstDifference(gpu, c.scales) == -1);
}

// Ordinary values, and rows of every other kind.
HostTensor Source(DType type, int64_t R, int64_t C, bool specials) {
  std::vector<double> v = RandomValues("source", R * C);
  const auto row = [&](int64_t r, auto&& f) {
    for (int64_t c = 0; c < C && r < R; ++c) f(v[static_cast<size_t>(r * C + c)], c);
  };
  if (specials) {
    row(1, [](double& x, int64_t) { x *= 1e30; });
    row(2, [](double& x, int64_t) { x *= 1e-37; });  // subnormals
    row(3, [](double& x, int64_t) { x = 0; });
    row(5, [](double& x, int64_t) { x *= std::ldexp(1.0, -95); });
    row(6, [](double& x, int64_t c) { x = c % 5 ? -448 : 449; });
    row(7, [](double& x, int64_t) { x = -0.0; });
    row(70, [](double& x, int64_t c) { x = std::ldexp(static_cast<double>(c % 31), static_cast<int>(c % 40) - 20); });
    row(100, [](double& x, int64_t c) { if (c == 37) x = NAN; });
    row(140, [](double& x, int64_t c) { if (c == 90) x = -INFINITY; });
  }
  HostTensor t(type, {R, C});
  SetValues(t.view(), v);
  return t;
}

void CheckRows(const QuantFormat& format, DType type, const std::vector<int64_t>& counts, int64_t tail, int64_t C, int64_t extra = 0) {
  INFO(QuantName(format) << " " << format.power_of_two << " " << DTypeName(type) << " groups " << counts.size() << " C " << C);
  Gpu gpu(size_t{1} << 30, size_t{1} << 20);
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  const Stream cpu(device.get());
  std::vector<double> offsets = {0};
  for (const int64_t n : counts) offsets.push_back(offsets.back() + static_cast<double>(n));
  const auto L = static_cast<int64_t>(counts.size());
  const int64_t R = static_cast<int64_t>(offsets.back()) + tail;
  const Pair wide = MakePair(gpu, Source(type, R, C + extra, true).view());
  HostTensor off_host(DType::kI64, {L + 1});
  SetValues(off_host.view(), offsets);
  const Pair off = MakePair(gpu, off_host.view());
  const Copy rows = MakeCopy(gpu, format, {R, C}), cols = MakeCopy(gpu, format, {C, PaddedRows(R, L)});
  QuantizeRows(cpu, {.format = format, .x = wide.cpu().Cols(extra, C + extra), .offsets = off.cpu(), .rows = rows.cpu(), .cols = cols.cpu()});
  QuantizeRows(gpu.stream(), {.format = format, .x = wide.gpu.Cols(extra, C + extra), .offsets = off.gpu, .rows = rows.gpu(), .cols = cols.gpu()});
  CheckSame(gpu, rows);
  CheckSame(gpu, cols);
  // One copy alone is the same.
  const Copy one = MakeCopy(gpu, format, {R, C}), other = MakeCopy(gpu, format, {C, PaddedRows(R, L)});
  QuantizeRows(gpu.stream(), {.format = format, .x = wide.gpu.Cols(extra, C + extra), .offsets = off.gpu, .rows = one.gpu()});
  QuantizeRows(gpu.stream(), {.format = format, .x = wide.gpu.Cols(extra, C + extra), .offsets = off.gpu, .cols = other.gpu()});
  CHECK(gpu.Bytes(one.codes.gpu) == gpu.Bytes(rows.codes.gpu));
  CHECK(gpu.Bytes(other.codes.gpu) == gpu.Bytes(cols.codes.gpu));
  for (const DType out : {DType::kBF16, DType::kF32}) {
    const Pair a = MakePair(gpu, out, {R, C}), b = MakePair(gpu, out, {R, C});
    Dequantize(cpu, {.format = format, .rows = rows.cpu(), .offsets = off.cpu(), .out = a.cpu()});
    Dequantize(gpu.stream(), {.format = format, .rows = rows.gpu(), .offsets = off.gpu, .out = a.gpu});
    Dequantize(cpu, {.format = format, .cols = cols.cpu(), .offsets = off.cpu(), .out = b.cpu()});
    Dequantize(gpu.stream(), {.format = format, .cols = cols.gpu(), .offsets = off.gpu, .out = b.gpu});
    CHECK(DifferentValues(gpu, a) == 0);
    CHECK(DifferentValues(gpu, b) == 0);
  }
  if (format.kind == QuantKind::kMxfp8) {
    const Pair tiles = MakePair(gpu, DType::kU8, TileScaleShape(R, L, (C + 31) / 32));
    ScalesToTiles(cpu, rows.scales.cpu(), R, off.cpu(), tiles.cpu());
    ScalesToTiles(gpu.stream(), rows.scales.gpu, R, off.gpu, tiles.gpu);
    CHECK(FirstDifference(gpu, tiles) == -1);
    const Pair of_columns = MakePair(gpu, DType::kU8, TileColumnScaleShape(R, L, C));
    ColumnScalesToTiles(cpu, cols.scales.cpu(), C, R, off.cpu(), of_columns.cpu());
    ColumnScalesToTiles(gpu.stream(), cols.scales.gpu, C, R, off.gpu, of_columns.gpu);
    CHECK(FirstDifference(gpu, of_columns) == -1);
  }
}

// Ragged counts as a router makes them, skewed ones included, and widths whose last tile is cut in both
// directions.
TEST_CASE("quantize on the GPU: scales into tiles, byte for byte") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 30, size_t{1} << 20);
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  const Stream cpu(device.get());
  const auto random = [&](const Shape& shape) {
    HostTensor t(DType::kU8, shape);
    const std::vector<double> values = RandomValues("scales", shape.elements(), 0, 256);
    for (size_t i = 0; i < values.size(); ++i) t.view().as<uint8_t>()[i] = static_cast<uint8_t>(values[i]);
    return MakePair(gpu, t.view());
  };
  std::vector<int64_t> many;  // 83 groups: more than a warp looks at once
  for (int64_t l = 0; l < 83; ++l) many.push_back(l * 53 % 211);
  const std::vector<std::vector<int64_t>> routed = {
      {1}, {0, 0}, {5, 0, 127, 128, 129, 1009, 0}, {7000, 1, 0, 13}, many};
  for (const auto& counts : routed) {
    std::vector<double> offsets = {0};
    for (const int64_t n : counts) offsets.push_back(offsets.back() + static_cast<double>(n));
    const auto L = static_cast<int64_t>(counts.size());
    HostTensor off_host(DType::kI64, {L + 1});
    SetValues(off_host.view(), offsets);
    const Pair off = MakePair(gpu, off_host.view());
    const int64_t R = static_cast<int64_t>(offsets.back()) + 37;
    for (const int64_t C : {16, 144, 2048, 4736}) {
      INFO("groups " << L << " rows " << R << " columns " << C);
      const Pair rows = random(ScaleShape(kMx, R, C)),
                 rows_tiles = MakePair(gpu, DType::kU8, TileScaleShape(R, L, (C + 31) / 32));
      ScalesToTiles(cpu, rows.cpu(), R, off.cpu(), rows_tiles.cpu());
      ScalesToTiles(gpu.stream(), rows.gpu, R, off.gpu, rows_tiles.gpu);
      CHECK(FirstDifference(gpu, rows_tiles) == -1);
      const Pair cols = random(ScaleShape(kMx, C, PaddedRows(R, L))),
                 cols_tiles = MakePair(gpu, DType::kU8, TileColumnScaleShape(R, L, C));
      ColumnScalesToTiles(cpu, cols.cpu(), C, R, off.cpu(), cols_tiles.cpu());
      ColumnScalesToTiles(gpu.stream(), cols.gpu, C, R, off.gpu, cols_tiles.gpu);
      CHECK(FirstDifference(gpu, cols_tiles) == -1);
      // Without offsets: one group.
      const Pair one = MakePair(gpu, DType::kU8, TileColumnScaleShape(R, 1, C)),
                 dense = random(ScaleShape(kMx, C, PaddedRows(R, 1)));
      ColumnScalesToTiles(cpu, dense.cpu(), C, R, {}, one.cpu());
      ColumnScalesToTiles(gpu.stream(), dense.gpu, C, R, {}, one.gpu);
      CHECK(FirstDifference(gpu, one) == -1);
    }
  }
  for (const auto& [L, N, K] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 16, 16}, {3, 144, 2080}, {70, 256, 48}, {2, 4096, 7168}}) {
    INFO("weights " << L << " " << N << " " << K);
    const Pair w = random(WeightScaleShape(kMx, L, N, K)),
               tiles = MakePair(gpu, DType::kU8, TileWeightScaleShape(L, N, (K + 31) / 32));
    WeightScalesToTiles(cpu, w.cpu(), tiles.cpu());
    WeightScalesToTiles(gpu.stream(), w.gpu, tiles.gpu);
    CHECK(FirstDifference(gpu, tiles) == -1);
  }
}

TEST_CASE("quantize on the GPU: ragged rows, both copies, byte for byte") {
  YM_NEEDS_GPU();
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const QuantFormat& format : {kMx, kPow2, kExact}) {
      CheckRows(format, type, {200}, 0, 128);
      CheckRows(format, type, {3, 0, 131, 1, 128, 0, 129}, 5, 384);
      CheckRows(format, type, {0, 0, 257}, 0, 256, 16);
      CheckRows(format, type, {0, 0}, 4, 128);
      CheckRows(format, type, {3, 0, 131, 1, 128}, 5, 16);
      CheckRows(format, type, {3, 0, 131, 1, 128}, 5, 304);
    }
  }
}

// With exact scales a code depends on the significands of value and amax (7 bits of each) and on how far apart their exponents are:
// every one of these pairs, at small, ordinary and large amax, in a run of its own row; in the transposed copy, by chance.
TEST_CASE("quantize on the GPU: exact scales, every pair of significands of BF16") {
  YM_NEEDS_GPU();
  constexpr int kBinades = 18;  // under amax; what is smaller has code 0
  const int64_t C = 256;        // two runs of 128: amax and 127 values
  std::vector<double> values;
  int exponent = 0;
  for (int a = 128; a < 256; ++a) {
    for (int below = 0; below < kBinades; ++below) {
      for (int x = 128; x < 256; ++x) {
        if (values.size() % 128 == 0) {
          exponent = std::array{-126, -120, -90, -3, 0, 60, 120}[values.size() / 128 % 7];
          values.push_back(std::ldexp(a, exponent - 7));
        }
        const bool larger = below == 0 && x > a;
        values.push_back((x % 3 ? 1 : -1) * (larger ? 0.0 : std::ldexp(x, exponent - below - 7)));
      }
      while (values.size() % 128 != 0) values.push_back(0);  // the next pairs have an amax of their own
    }
  }
  while (values.size() % static_cast<size_t>(C) != 0) values.push_back(0);
  const auto R = static_cast<int64_t>(values.size()) / C;
  Gpu gpu(size_t{1} << 28, size_t{1} << 20);
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  HostTensor host(DType::kBF16, {R, C});
  SetValues(host.view(), values);
  const Pair x = MakePair(gpu, host.view());
  const Copy rows = MakeCopy(gpu, kExact, {R, C}), cols = MakeCopy(gpu, kExact, {C, PaddedRows(R, 1)});
  QuantizeRows(Stream(device.get()), {.format = kExact, .x = x.cpu(), .rows = rows.cpu(), .cols = cols.cpu()});
  QuantizeRows(gpu.stream(), {.format = kExact, .x = x.gpu, .rows = rows.gpu(), .cols = cols.gpu()});
  CheckSame(gpu, rows);
  CheckSame(gpu, cols);
}

TEST_CASE("quantize on the GPU: many groups, wide rows") {
  YM_NEEDS_GPU();
  std::vector<int64_t> counts;
  for (int64_t l = 0; l < 70; ++l) counts.push_back(l * 37 % 61);
  for (const QuantFormat& format : {kMx, kPow2, kExact}) CheckRows(format, DType::kBF16, counts, 9, 1024);
}

TEST_CASE("quantize on the GPU: dense, without offsets; the golden values") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 28, size_t{1} << 20);
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  const Stream cpu(device.get());
  const SafetensorsFile file("tests/golden/quant/quant.safetensors");
  for (const char* name : {"x", "tile.x"}) {
    const Pair x = MakePair(gpu, file.Get(name));
    const int64_t R = x.gpu.dim(0), C = x.gpu.dim(1);
    for (const QuantFormat& format : {kMx, kPow2, kExact}) {
      const Copy rows = MakeCopy(gpu, format, {R, C}), cols = MakeCopy(gpu, format, {C, PaddedRows(R, 1)});
      QuantizeRows(cpu, {.format = format, .x = x.cpu(), .rows = rows.cpu(), .cols = cols.cpu()});
      QuantizeRows(gpu.stream(), {.format = format, .x = x.gpu, .rows = rows.gpu(), .cols = cols.gpu()});
      CheckSame(gpu, rows);
      CheckSame(gpu, cols);
      if (format == kMx && name[0] == 'x') CHECK(gpu.Bytes(rows.codes.gpu) == BytesOf(file.Get("mxfp8.row.data")));
    }
  }
}

TEST_CASE("quantize on the GPU: weights, both copies, byte for byte") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 29, size_t{1} << 20);
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  const Stream cpu(device.get());
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const QuantFormat& format : {kMx, kPow2, kExact}) {
      for (const auto& [L, N, K] : {std::array<int64_t, 3>{1, 128, 128}, {3, 256, 384}, {2, 160, 96}, {2, 144, 336}}) {
        HostTensor host(type, {L, N, K});
        std::memcpy(host.view().data(), Source(type, L * N, K, true).view().data(), static_cast<size_t>(host.view().bytes()));
        const Pair w = MakePair(gpu, host.view());
        const Copy rows = MakeCopy(gpu, format, {L, N, K}), cols = MakeCopy(gpu, format, {L, K, N});
        QuantizeWeights(cpu, {.format = format, .w = w.cpu(), .rows = rows.cpu(), .cols = cols.cpu()});
        QuantizeWeights(gpu.stream(), {.format = format, .w = w.gpu, .rows = rows.gpu(), .cols = cols.gpu()});
        CheckSame(gpu, rows);
        CheckSame(gpu, cols);
        if (type == DType::kF32) {  // of masters: the copies of their BF16 weights
          HostTensor weights(DType::kBF16, {L, N, K});
          SetValues(weights.view(), ValuesOf(w.cpu()));
          const Copy r = MakeCopy(gpu, format, {L, N, K}), c = MakeCopy(gpu, format, {L, K, N});
          QuantizeWeights(cpu, {.format = format, .w = weights.view(), .rows = r.cpu(), .cols = c.cpu()});
          QuantizeWeights(gpu.stream(), {.format = format, .rows = r.gpu(), .cols = c.gpu()}, w.gpu);
          CheckSame(gpu, r);
          CheckSame(gpu, c);
        }
        for (const DType out : {DType::kBF16, DType::kF32}) {
          const Pair a = MakePair(gpu, out, {L, N, K}), b = MakePair(gpu, out, {L, N, K});
          DequantizeWeights(cpu, {.format = format, .w = {}, .rows = rows.cpu()}, a.cpu());
          DequantizeWeights(gpu.stream(), {.format = format, .w = {}, .rows = rows.gpu()}, a.gpu);
          DequantizeWeights(cpu, {.format = format, .w = {}, .cols = cols.cpu()}, b.cpu());
          DequantizeWeights(gpu.stream(), {.format = format, .w = {}, .cols = cols.gpu()}, b.gpu);
          CHECK(DifferentValues(gpu, a) == 0);
          CHECK(DifferentValues(gpu, b) == 0);
        }
      }
    }
  }
}

TEST_CASE("nvfp4 on the GPU: byte for byte") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 28, size_t{1} << 20);
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  const Stream cpu(device.get());
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const bool specials : {false, true}) {
      const Pair x = MakePair(gpu, Source(type, 150, 208, specials).view());
      const Pair amax = MakePair(gpu, DType::kF32, {1});
      AbsMax(cpu, x.cpu(), amax.cpu());
      AbsMax(gpu.stream(), x.gpu, amax.gpu);
      CHECK(DifferentValues(gpu, amax) == 0);
      for (const double given : {0.0, 1.0, 1e38}) {  // 0: the tensor's own
        if (given > 0) {
          amax.cpu().as<float>()[0] = static_cast<float>(given);
          gpu.device().CopyFromHost(amax.gpu.data(), amax.cpu().data(), 4);
        }
        const Pair codes = MakePair(gpu, DType::kU8, {150, 104}), scales = MakePair(gpu, DType::kU8, {150, 13});
        const Nvfp4Args on_cpu{.x = x.cpu(), .amax = amax.cpu(), .codes = codes.cpu(), .scales = scales.cpu()};
        const Nvfp4Args on_gpu{.x = x.gpu, .amax = amax.gpu, .codes = codes.gpu, .scales = scales.gpu};
        QuantizeNvfp4(cpu, on_cpu);
        QuantizeNvfp4(gpu.stream(), on_gpu);
        CHECK(FirstDifference(gpu, codes) == -1);
        CHECK(FirstDifference(gpu, scales) == -1);
        const Pair back = MakePair(gpu, type, {150, 208});
        DequantizeNvfp4(cpu, on_cpu, back.cpu());
        DequantizeNvfp4(gpu.stream(), on_gpu, back.gpu);
        CHECK(DifferentValues(gpu, back) == 0);
      }
    }
  }
}

TEST_CASE("quantize on the GPU: fused with SwiGLU and RMSNorm, the bytes of the ops one after the other") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 29, size_t{1} << 20);
  const int64_t R = 300, C = 384, L = 3;
  const Tensor off = gpu.Make(DType::kI64, {L + 1}, {0, 130, 130, 290});
  const Tensor gate_up = gpu.Make(DType::kBF16, {R, 2 * C}, RandomValues("gate_up", R * 2 * C, -6, 6));
  const Tensor w = gpu.Make(DType::kF32, {R}, RandomValues("w", R, 0, 1)), act = gpu.Make(DType::kBF16, {R, C});
  SwigluForward(gpu.stream(), {.gate_up = gate_up, .w = w, .num_rows = off.Slice(L, L + 1), .act = act});
  const Tensor x = gpu.Make(DType::kBF16, {R, C}, RandomValues("x", R * C, -3, 3));
  const Tensor weight = gpu.Make(DType::kBF16, {C}, RandomValues("weight", C)), y = gpu.Make(DType::kBF16, {R, C});
  const Tensor rstd = gpu.Make(DType::kF32, {R});
  RmsNormForward(gpu.stream(), {.x = x, .w = weight, .y = y, .rstd = rstd});
  for (const QuantFormat& format : {kMx, kPow2, kExact}) {
    const Copy a_rows = MakeCopy(gpu, format, {R, C}), a_cols = MakeCopy(gpu, format, {C, PaddedRows(R, L)});
    const Copy b_rows = MakeCopy(gpu, format, {R, C}), b_cols = MakeCopy(gpu, format, {C, PaddedRows(R, L)});
    const auto check = [&] {
      for (const auto& [a, b] : {std::pair{&a_rows, &b_rows}, {&a_cols, &b_cols}}) {
        CHECK(gpu.Bytes(a->codes.gpu) == gpu.Bytes(b->codes.gpu));
        CHECK(gpu.Bytes(a->scales.gpu) == gpu.Bytes(b->scales.gpu));
        gpu.Poison(a->codes.gpu), gpu.Poison(b->codes.gpu), gpu.Poison(a->scales.gpu), gpu.Poison(b->scales.gpu);
      }
    };
    QuantizeRows(gpu.stream(), {.format = format, .x = act, .offsets = off, .rows = a_rows.gpu(), .cols = a_cols.gpu()});
    QuantizeSwiglu(gpu.stream(), {.format = format, .gate_up = gate_up, .w = w, .offsets = off, .rows = b_rows.gpu(), .cols = b_cols.gpu()},
                   gpu.work());
    check();
    QuantizeRows(gpu.stream(), {.format = format, .x = y, .offsets = off, .rows = a_rows.gpu(), .cols = a_cols.gpu()});
    QuantizeNormed(gpu.stream(), {.format = format, .h = x, .rstd = rstd, .weight = weight, .offsets = off, .rows = b_rows.gpu(), .cols = b_cols.gpu()},
                   gpu.work());
    check();
  }
}

TEST_CASE("wire rows on the GPU: packed and unpacked as on the cpu device") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 29, size_t{1} << 20);
  CpuFixture cpu;
  for (const QuantFormat& format : {kMx, kPow2}) {
    for (const auto& [R, D] : {std::pair<int64_t, int64_t>{300, 384}, {300, 304}, {140, 7168}}) {
      INFO(QuantName(format) << " " << R << " x " << D);
      const Pair x = MakePair(gpu, Source(DType::kBF16, R, D, false).view());
      const int64_t W = WireBytes(format, D), L = 4;
      const Tensor x_cpu = cpu.Make(DType::kF32, {R, D}, ValuesOf(x.cpu()));
      const Pair wire = MakePair(gpu, DType::kU8, {R, W});
      PackRows(cpu.stream(), {.format = format, .x = x_cpu, .wire = wire.cpu()}, cpu.work());
      PackRows(gpu.stream(), {.format = format, .x = x.gpu, .wire = wire.gpu}, gpu.work());
      const std::string there = gpu.Bytes(wire.gpu);
      const int64_t used = WireScales(D) + (D + format.run() - 1) / format.run() * DTypeBytes(format.scale_type());
      int64_t different = 0;
      for (int64_t r = 0; r < R; ++r)
        for (int64_t i = 0; i < used; ++i)
          different += static_cast<uint8_t>(there[static_cast<size_t>(r * W + i)]) != wire.cpu().as<uint8_t>()[r * W + i];
      CHECK(different == 0);
      HostTensor off_host(DType::kI64, {L + 1});
      SetValues(off_host.view(), {0, 7, 7, 135, static_cast<double>(R - 3)});
      const Pair off = MakePair(gpu, off_host.view());
      const Copy rows = MakeCopy(gpu, format, {R, D}), cols = MakeCopy(gpu, format, {D, PaddedRows(R, L)});
      UnpackRows(cpu.stream(), {.format = format, .D = D, .wire = wire.cpu(), .offsets = off.cpu(), .rows = rows.cpu(), .cols = cols.cpu()}, cpu.work());
      UnpackRows(gpu.stream(), {.format = format, .D = D, .wire = wire.gpu, .offsets = off.gpu, .rows = rows.gpu(), .cols = cols.gpu()}, gpu.work());
      CheckSame(gpu, rows);
      CheckSame(gpu, cols);
    }
  }
}

struct Update {
  Tensor master, grad, m, v, weight, state;
};
Update MakeUpdate(Gpu& gpu, DType moments, const Shape& shape) {
  const int64_t n = shape.elements();
  StepState s;
  s.step = 4, s.clip_factor = 0.7, s.learning_rate = 0.01;
  Update u{.master = gpu.Make(DType::kF32, shape, RandomValues("p", n)),
           .grad = gpu.Make(DType::kF32, shape, RandomValues("g", n)),
           .m = gpu.Make(moments, shape, RandomValues("m", n)),
           .v = gpu.Make(moments, shape, RandomValues("v", n, 0, 1)),
           .weight = gpu.Make(DType::kBF16, shape, {0}),
           .state = gpu.Make(DType::kU8, {static_cast<int64_t>(sizeof(s))}, {0})};
  gpu.device().CopyFromHost(u.state.data(), &s, sizeof(s));
  return u;
}

TEST_CASE("adamw on the GPU: 8-bit copies in the same pass, the bits of update and quantisation apart") {
  YM_NEEDS_GPU();
  for (const DType moments : {DType::kBF16, DType::kF32}) {
    for (const QuantFormat& format : {kMx, kPow2, kExact}) {
      for (const auto& [L, N, K] : {std::array<int64_t, 3>{1, 128, 128}, {3, 256, 384}, {2, 144, 336}}) {
        Gpu gpu(size_t{1} << 27, size_t{1} << 20);
        const Update apart = MakeUpdate(gpu, moments, {L, N, K}), fused = MakeUpdate(gpu, moments, {L, N, K});
        const Copy a_rows = MakeCopy(gpu, format, {L, N, K}), a_cols = MakeCopy(gpu, format, {L, K, N});
        const Copy f_rows = MakeCopy(gpu, format, {L, N, K}), f_cols = MakeCopy(gpu, format, {L, K, N});
        AdamWTensor tensor{.master = apart.master, .weight = apart.weight, .grad = apart.grad, .m = apart.m, .v = apart.v, .weight_decay = 0.1};
        AdamWMulti(gpu.stream(), {tensor}, {}, apart.state);
        QuantizeWeights(gpu.stream(), {.format = format, .rows = a_rows.gpu(), .cols = a_cols.gpu()}, apart.weight);
        AdamWTensor one_pass{.master = fused.master, .grad = fused.grad, .m = fused.m, .v = fused.v, .weight_decay = 0.1,
                             .copies = {format, f_rows.gpu(), f_cols.gpu()}};
        const auto check = [&] {
          CHECK(gpu.Bytes(apart.master) == gpu.Bytes(fused.master));
          CHECK(gpu.Bytes(apart.m) == gpu.Bytes(fused.m));
          CHECK(gpu.Bytes(apart.v) == gpu.Bytes(fused.v));
          CHECK(gpu.Bytes(a_rows.codes.gpu) == gpu.Bytes(f_rows.codes.gpu));
          CHECK(gpu.Bytes(a_cols.codes.gpu) == gpu.Bytes(f_cols.codes.gpu));
          CHECK(gpu.Bytes(a_rows.scales.gpu) == gpu.Bytes(f_rows.scales.gpu));
          CHECK(gpu.Bytes(a_cols.scales.gpu) == gpu.Bytes(f_cols.scales.gpu));
        };
        AdamWMulti(gpu.stream(), {one_pass}, {}, fused.state);
        check();
        const int32_t bad = 1;  // the verdict: nothing changes
        gpu.device().CopyFromHost(static_cast<char*>(fused.state.data()) + offsetof(StepState, verdict), &bad, sizeof(bad));
        AdamWMulti(gpu.stream(), {one_pass}, {}, fused.state);
        check();
      }
    }
  }
}

}  // namespace
}  // namespace yardmaster::testing
