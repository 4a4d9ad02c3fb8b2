#include "src/ops/embedding.h"

#include "src/ops/cpu/embedding_cpu.h"
#include "src/ops/cuda/workspaces.h"
#include "src/ops/op_args.h"
#if YM_HAVE_CUDA
#include "src/ops/cuda/embedding_cuda.h"
#endif

namespace yardmaster {

void EmbeddingForward(const Stream& stream, const Tensor& ids, const Tensor& table_VD, const Tensor& x_TD) {
  const OpArgs check(stream, "EmbeddingForward");
  check.Rank("ids", ids, 1);
  check.Rank("table_VD", table_VD, 2);
  const DType type = check.WorkType("table_VD", table_VD);
  check.Contiguous("ids", ids, DType::kI32, {ids.dim(0)});
  check.Contiguous("table_VD", table_VD, type, table_VD.shape());
  check.Contiguous("x_TD", x_TD, type, {ids.dim(0), table_VD.dim(1)});
  check.Traffic({&x_TD, &x_TD, &ids}, {x_TD.dim(0), x_TD.dim(1)});
  if (stream.dry() || x_TD.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::EmbeddingForward(stream, ids, table_VD, x_TD);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::EmbeddingForward(stream, ids, table_VD, x_TD);
#endif
  check.NoImplementation();
}

void EmbeddingBackward(const Stream& stream, const Tensor& ids, const Tensor& dx_TD, double beta, const Tensor& dtable_VD,
                       Arena& work, const Tensor& squares) {
  const OpArgs check(stream, "EmbeddingBackward");
  check.Rank("ids", ids, 1);
  check.Rank("dtable_VD", dtable_VD, 2);
  const DType type = check.WorkType("dx_TD", dx_TD);
  check.Contiguous("ids", ids, DType::kI32, {ids.dim(0)});
  check.Contiguous("dx_TD", dx_TD, type, {ids.dim(0), dtable_VD.dim(1)});
  check.Contiguous("dtable_VD", dtable_VD, OpArgs::AccumType(type), dtable_VD.shape());
  if (squares.defined()) {
    YM_CHECK_EQ(beta, 0);
    check.Contiguous("squares", squares, DType::kF64,
                     {dtable_VD.dim(0) * EmbeddingNormAddends(stream, dx_TD.dtype(), dtable_VD)});
  }
  ArenaScope scope(work);
  Tensor order, prefix, starts;  // the cpu version adds in place
  if (stream.target() == DeviceKind::kCuda) {
    const int64_t bins = cuda::EmbeddingDigits(dtable_VD.dim(0)).bins();
    order = work.Allocate("embedding order", DType::kI32, {2, ids.dim(0)});
    prefix = work.Allocate("embedding prefix sums", DType::kI64, {bins, cuda::SortChunks(ids.dim(0))});
    starts = work.Allocate("embedding starts", DType::kI64, {bins + 1});
  }
  check.Traffic({&dx_TD, &dtable_VD, &ids}, {dx_TD.dim(0), dx_TD.dim(1)});
  if (stream.dry() || dtable_VD.elements() == 0) return;
  if (stream.kind() == DeviceKind::kCpu) return cpu::EmbeddingBackward(stream, ids, dx_TD, beta, dtable_VD);
#if YM_HAVE_CUDA
  if (stream.kind() == DeviceKind::kCuda) return cuda::EmbeddingBackward(stream, ids, dx_TD, beta, dtable_VD, squares, order, prefix, starts);
#endif
  check.NoImplementation();
}

int64_t EmbeddingNormAddends(const Stream& stream, DType dx, const Tensor& dtable_VD) {
  if (stream.target() != DeviceKind::kCuda) return 0;
  return cuda::EmbeddingRowSquares(DTypeBytes(dx), dtable_VD.dim(1));
}

}  // namespace yardmaster
