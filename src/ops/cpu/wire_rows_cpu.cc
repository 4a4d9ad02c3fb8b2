#include "src/ops/cpu/wire_rows_cpu.h"

#include <cstring>

#include "src/device/cpu_parallel.h"
#include "src/tensor/small_float.h"

namespace yardmaster::cpu {

void Interleave(const Stream& stream, const PackRowsArgs& g, const Quantized& rows) {
  const int64_t T = g.x.dim(0), D = g.x.dim(1), W = g.wire.dim(1), runs = (D + g.format.run() - 1) / g.format.run();
  const bool blocks = g.format.kind == QuantKind::kFp8Block;
  ParallelFor(stream, T, GrainFor(T, 16), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      uint8_t* out = g.wire.as<uint8_t>() + t * W;
      std::memset(out, 0, static_cast<size_t>(W));
      std::memcpy(out, rows.codes.as<uint8_t>() + t * D, static_cast<size_t>(D));
      uint8_t* scales = out + WireScales(D);
      for (int64_t run = 0; run < runs; ++run) {
        if (blocks) {
          std::memcpy(scales + run * 4, rows.scales.as<float>() + run * rows.scales.ld() + t, sizeof(float));
        } else {
          scales[run] = rows.scales.as<uint8_t>()[run * rows.scales.ld() + t];
        }
      }
    }
  });
}

void DecodeWire(const Stream& stream, const UnpackRowsArgs& g, const Tensor& values) {
  const int64_t D = g.D, W = g.wire.dim(1), run = g.format.run();
  const bool blocks = g.format.kind == QuantKind::kFp8Block;
  const int64_t rows = g.offsets.defined() ? g.offsets.as<int64_t>()[g.offsets.dim(0) - 1] : g.wire.dim(0);
  ParallelFor(stream, rows, GrainFor(rows, 16), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const uint8_t* wire = g.wire.as<uint8_t>() + r * W;
      const uint8_t* scales = wire + WireScales(D);
      float* out = values.as<float>() + r * D;
      for (int64_t d = 0; d < D; ++d) {
        float scale;
        if (blocks) {
          std::memcpy(&scale, scales + d / run * 4, sizeof(scale));
        } else {
          scale = E8m0ToFloat(scales[d / run]);
        }
        out[d] = E4m3ToFloat(wire[d]) * scale;
      }
    }
  });
}

}  // namespace yardmaster::cpu
