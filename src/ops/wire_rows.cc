#include "src/ops/wire_rows.h"

#include "src/ops/cpu/wire_rows_cpu.h"
#include "src/ops/quantize_checks.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/wire_rows_cuda.h"
#endif

namespace yardmaster {
namespace {

void CheckFormat(const QuantFormat& format) {
  YM_CHECK(format.kind == QuantKind::kMxfp8 || format.power_of_two, "rows travel with scales that are powers of two");
}

}  // namespace

void PackRows(const Stream& stream, const PackRowsArgs& g, Arena& work) {
  const OpArgs check(stream, "PackRows");
  check.Rank("x", g.x, 2);
  const int64_t T = g.x.dim(0), D = g.x.dim(1);
  CheckFormat(g.format);
  CheckColumns(stream, D);
  check.Contiguous("x", g.x, RecipeWorkType(stream), {T, D});
  check.Contiguous("wire", g.wire, DType::kU8, {T, WireBytes(g.format, D)});
  check.Traffic({&g.x, &g.wire}, {T, D});
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::PackRows(stream, g);
#endif
  if (stream.target() == DeviceKind::kCuda) return;  // the dry device that plans for it: no workspace
  ArenaScope scope(work);
  const Quantized rows = AllocateQuantized(work, "wire/rows", g.format, {T, D});
  QuantizeRows(stream, {.format = g.format, .x = g.x, .rows = rows});
  if (!stream.dry()) cpu::Interleave(stream, g, rows);
}

void UnpackRows(const Stream& stream, const UnpackRowsArgs& g, Arena& work) {
  const OpArgs check(stream, "UnpackRows");
  check.Rank("wire", g.wire, 2);
  const int64_t R = g.wire.dim(0), L = CheckOffsets(check, g.offsets);
  CheckFormat(g.format);
  check.Contiguous("wire", g.wire, DType::kU8, {R, WireBytes(g.format, g.D)});
  CheckCopies(stream, check, g.format, g.rows, g.cols, R, g.D, L);
  check.Traffic({&g.wire, &g.rows.codes, &g.cols.codes}, {R, g.D});
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::UnpackRows(stream, g);
#endif
  if (stream.target() == DeviceKind::kCuda) return;
  ArenaScope scope(work);
  const Tensor values = work.Allocate("wire/values", DType::kF32, {R, g.D});
  if (!stream.dry()) cpu::DecodeWire(stream, g, values);
  QuantizeRows(stream,
               {.format = g.format, .x = values, .offsets = g.offsets, .rows = g.rows, .cols = g.cols});
}

}  // namespace yardmaster
