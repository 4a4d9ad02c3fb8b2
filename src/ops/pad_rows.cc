#include "src/ops/pad_rows.h"

#include "src/ops/cpu/pad_rows_cpu.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/pad_rows_cuda.h"
#endif

namespace yardmaster {
namespace {

void Check(const OpArgs& check, const PadRowsArgs& g) {
  check.Rank("offsets", g.offsets, 1);
  const int64_t L = g.offsets.dim(0) - 1;
  YM_CHECK_GE(L, 1, "padding: offsets has L + 1 entries");
  check.Contiguous("offsets", g.offsets, DType::kI64, {L + 1});
  YM_CHECK(g.ragged.defined() && g.padded.defined(), "padding: undefined rows");
  check.Contiguous("ragged", g.ragged, g.padded.dtype(), g.ragged.shape());
  check.Contiguous("padded", g.padded, g.ragged.dtype(), g.padded.shape());
  YM_CHECK(g.padded.dim(0) % L == 0 &&
               g.ragged.elements() * g.padded.dim(0) == g.padded.elements() * g.ragged.dim(0),
           "padding: ", g.ragged.shape(), " and ", g.padded.shape(), " for ", L, " experts");
}

}  // namespace

void PadRows(const Stream& stream, const PadRowsArgs& g) {
  const OpArgs check(stream, "PadRows");
  Check(check, g);
  if (stream.dry() || g.padded.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::PadRows(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::PadRows(stream, g);
#endif
  check.NoImplementation();
}

void UnpadRows(const Stream& stream, const PadRowsArgs& g) {
  const OpArgs check(stream, "UnpadRows");
  Check(check, g);
  if (stream.dry() || g.padded.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::UnpadRows(stream, g);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::UnpadRows(stream, g);
#endif
  check.NoImplementation();
}

void PaddedOffsets(const Stream& stream, int64_t rows, const Tensor& offsets) {
  const OpArgs check(stream, "PaddedOffsets");
  check.Rank("offsets", offsets, 1);
  check.Contiguous("offsets", offsets, DType::kI64, offsets.shape());
  if (stream.dry()) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::PaddedOffsets(rows, offsets);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::PaddedOffsets(stream, rows, offsets);
#endif
  check.NoImplementation();
}

}  // namespace yardmaster
