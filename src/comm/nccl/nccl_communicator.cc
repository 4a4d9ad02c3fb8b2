#include "src/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <exception>
#include <functional>

#include "kernels/reduce/ordered_reduce.h"
#include "src/base/check.h"
#include "src/comm/nccl/copy_collectives.h"
#include "src/comm/nccl/nccl_communicator_impl.h"
#include "src/comm/nccl/nccl_library.h"
#include "src/comm/nccl/ranges.h"
#include "src/comm/nccl/reduce_type.h"
#include "src/device/cuda/cuda_stream.h"

namespace yardmaster {
namespace {

using Transfer = NcclCommunicator::Transfer;

// Below: one exchange of everything beats two of parts. Times the ranks, at most the working memory.
constexpr int64_t kGatherAllBytes = int64_t{1} << 20;

// Whether there is anything to do; checks what every call must hold.
bool Ready(const NcclCommunicator& comm, const Stream& stream, const Tensor& x) {
  YM_CHECK(x.contiguous(), comm.name(), ": collective on a strided tensor ", x.shape());
  if (stream.dry()) return false;
  YM_CHECK(stream.kind() == DeviceKind::kCuda, comm.name(), ": NCCL moves a GPU's memory, not that of the ",
           DeviceKindName(stream.kind()), " device");
  return x.elements() > 0 && comm.size() > 1;
}

void CheckBounds(const NcclCommunicator& comm, const Tensor& x, const std::vector<int64_t>& bounds) {
  YM_CHECK_EQ(bounds.size(), static_cast<size_t>(comm.size()) + 1, comm.name());
  YM_CHECK(bounds.front() >= 0 && bounds.back() <= x.elements(), comm.name(), ": bounds ", bounds.front(),
           "..", bounds.back(), " of ", x.shape());
  YM_CHECK(std::is_sorted(bounds.begin(), bounds.end()), comm.name(), ": bounds are not ascending");
}

std::vector<int64_t> EvenBounds(int64_t n, int size) {
  std::vector<int64_t> bounds(static_cast<size_t>(size) + 1);
  for (int r = 0; r <= size; ++r) bounds[r] = n / size * r + std::min<int64_t>(r, n % size);
  return bounds;
}

// This rank's range of x = op over ranks, in segments that fit into the scratch: one row for each other rank.
void ReduceScatter(NcclCommunicator& comm, const Stream& stream, char* scratch, const Tensor& x,
                   const std::vector<int64_t>& bounds, bool maximum, double* squares, const char* what) {
  const int size = comm.size(), rank = comm.rank();
  const int64_t width = DTypeBytes(x.dtype()), segment = SegmentBytes(kNcclScratchBytes / (size - 1)) / width;
  char* data = static_cast<char*>(x.data());
  const int64_t longest = LongestRange(bounds);
  for (int64_t done = 0; done < longest; done += segment) {
    const int64_t own = LengthInSegment(bounds, rank, done, segment);
    char* own_data = data + (bounds[rank] + done) * width;
    std::vector<Transfer> sends, receives;
    for (int i = 1; i < size; ++i) {
      const int to = (rank + i) % size, from = (rank + size - i) % size;
      sends.push_back(
          {to, data + (bounds[to] + done) * width, LengthInSegment(bounds, to, done, segment) * width});
      receives.push_back({from, scratch + (from - (from > rank)) * segment * width, own * width});
    }
    comm.Exchange(stream, sends, receives, what);
    YM_CUDA_CHECK(stream, what,
                  OrderedReduce({.type = ReduceTypeOf(x.dtype(), comm.name()),
                                 .maximum = maximum,
                                 .parts = scratch,
                                 .stride = segment,
                                 .ranks = size,
                                 .own = rank,
                                 .own_values = own_data,
                                 .out = own_data,
                                 .n = own,
                                 .squares = SquaresAt(squares, done)},
                                CudaStream(stream)));
  }
}

void GatherRanges(NcclCommunicator& comm, const Stream& stream, const Tensor& x,
                  const std::vector<int64_t>& bounds, const char* what) {
  const int size = comm.size(), rank = comm.rank();
  const int64_t width = DTypeBytes(x.dtype());
  char* data = static_cast<char*>(x.data());
  std::vector<Transfer> sends, receives;
  for (int i = 1; i < size; ++i) {
    const int to = (rank + i) % size, from = (rank + size - i) % size;
    sends.push_back({to, data + bounds[rank] * width, (bounds[rank + 1] - bounds[rank]) * width});
    receives.push_back({from, data + bounds[from] * width, (bounds[from + 1] - bounds[from]) * width});
  }
  comm.Exchange(stream, sends, receives, what);
}

void AllReduce(NcclCommunicator& comm, const Stream& stream, char* scratch, const Tensor& x, bool maximum,
               const char* what) {
  const int size = comm.size(), rank = comm.rank();
  const int64_t n = x.elements(), bytes = x.bytes(), stride = (bytes + 255) / 256 * 256;
  if (bytes > kGatherAllBytes || stride * (size - 1) > kNcclScratchBytes) {
    const std::vector<int64_t> bounds = EvenBounds(n, size);
    ReduceScatter(comm, stream, scratch, x, bounds, maximum, nullptr, what);
    GatherRanges(comm, stream, x, bounds, what);
    return;
  }
  std::vector<Transfer> sends, receives;
  for (int i = 1; i < size; ++i) {
    const int to = (rank + i) % size, from = (rank + size - i) % size;
    sends.push_back({to, x.data(), bytes});
    receives.push_back({from, scratch + (from - (from > rank)) * stride, bytes});
  }
  comm.Exchange(stream, sends, receives, what);
  YM_CUDA_CHECK(stream, what,
                OrderedReduce({.type = ReduceTypeOf(x.dtype(), comm.name()),
                               .maximum = maximum,
                               .parts = scratch,
                               .stride = stride / DTypeBytes(x.dtype()),
                               .ranks = size,
                               .own = rank,
                               .own_values = x.data(),
                               .out = x.data(),
                               .n = n},
                              CudaStream(stream)));
}

}  // namespace

NcclLink::NcclLink(CudaDevice* device_in)
    : device(device_in), exceptions_at_start(std::uncaught_exceptions()) {
  device->Check(cudaMalloc(scratch.address(), kNcclScratchBytes), "working memory of collectives",
                "cudaMalloc");
}

bool NcclCommunicator::Impl::CopiesFor(const Tensor& x) const {
  return link->copies && CopyCollectives::Takes(x);
}

// After an error the other ranks may be anywhere: aborting waits for none of them.
NcclLink::~NcclLink() {
  if (comm == nullptr) return;
  static_cast<void>(cudaSetDevice(device->index()));
  static_cast<void>(std::uncaught_exceptions() > exceptions_at_start ? Nccl().CommAbort(comm)
                                                                     : Nccl().CommDestroy(comm));
}

NcclCommunicator::NcclCommunicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NcclCommunicator::~NcclCommunicator() = default;
int NcclCommunicator::rank() const { return impl_->rank; }
int NcclCommunicator::size() const { return impl_->size; }
const char* NcclCommunicator::name() const { return impl_->name.c_str(); }
int NcclCommunicator::world_rank(int group_rank) const { return impl_->ranks[group_rank]; }

void NcclCommunicator::Exchange(const Stream& stream, const std::vector<Transfer>& sends,
                                const std::vector<Transfer>& receives, const char* what) {
  int64_t bytes = 0;
  const auto check = [&](const Transfer& t) {
    YM_CHECK(0 <= t.peer && t.peer < size() && t.bytes >= 0, what, ": ", t.bytes, " bytes to or from rank ",
             t.peer, " of ", name());
    if (t.peer != rank()) bytes += t.bytes;
  };
  for (const Transfer& t : sends) check(t);
  for (const Transfer& t : receives) check(t);
  const cudaStream_t s = CudaStream(stream);

  // Own blocks are copied first: kernels of the exchange need not wait for them.
  auto from = sends.begin();
  for (const Transfer& to : receives) {
    if (to.peer != rank() || to.bytes == 0) continue;
    from =
        std::find_if(from, sends.end(), [&](const Transfer& t) { return t.peer == rank() && t.bytes > 0; });
    YM_CHECK(from != sends.end() && from->bytes == to.bytes, what, " in ", name(), ": rank ", rank(),
             " expects ", to.bytes, " bytes from itself that it does not send");
    YM_CUDA_CHECK(
        stream, what,
        cudaMemcpyAsync(to.data, from->data, static_cast<size_t>(to.bytes), cudaMemcpyDeviceToDevice, s));
    ++from;
  }
  // Numbered on every rank, also where it has nothing to do: numbers are compared when somebody is missing.
  const Operation operation(*impl_->log, s, name(), what, bytes);
  if (bytes == 0) return;
  const NcclLibrary& nccl = Nccl();
  const auto text = [&] { return StrCat(what, " in group ", name()); };
  nccl.Check(nccl.GroupStart(), "ncclGroupStart", text());
  for (const Transfer& t : receives) {
    if (t.peer == rank() || t.bytes == 0) continue;
    nccl.Check(nccl.Recv(t.data, static_cast<size_t>(t.bytes), ncclUint8, t.peer, impl_->link->comm, s),
               "ncclRecv", text());
  }
  for (const Transfer& t : sends) {
    if (t.peer == rank() || t.bytes == 0) continue;
    nccl.Check(nccl.Send(t.data, static_cast<size_t>(t.bytes), ncclUint8, t.peer, impl_->link->comm, s),
               "ncclSend", text());
  }
  nccl.Check(nccl.GroupEnd(), "ncclGroupEnd", text());
}

void NcclCommunicator::AllReduceSum(const Stream& stream, const Tensor& x) {
  ReduceTypeOf(x.dtype(), name());
  if (!Ready(*this, stream, x)) return;
  AllReduce(*this, stream, static_cast<char*>(impl_->link->scratch.get()), x, false, "all-reduce");
}

void NcclCommunicator::AllReduceMax(const Stream& stream, const Tensor& x) {
  ReduceTypeOf(x.dtype(), name());
  if (!Ready(*this, stream, x)) return;
  AllReduce(*this, stream, static_cast<char*>(impl_->link->scratch.get()), x, true, "all-reduce (maximum)");
}

void NcclCommunicator::ReduceScatterSum(const Stream& stream, const Tensor& x,
                                        const std::vector<int64_t>& bounds) {
  ReduceTypeOf(x.dtype(), name());
  CheckBounds(*this, x, bounds);
  if (Ready(*this, stream, x)) ReduceRanges(stream, x, bounds, nullptr);
}

bool NcclCommunicator::sums_squares(DType type) const {
  return size() > 1 && kNcclScratchBytes / (size() - 1) >= kRunBytes &&
         (type == DType::kF32 || type == DType::kF64);
}

void NcclCommunicator::ReduceScatterSumAndSquares(const Stream& stream, const Tensor& x,
                                                  const std::vector<int64_t>& bounds, const Tensor& squares) {
  YM_CHECK(sums_squares(x.dtype()), name(), ": no squares of sums of ", DTypeName(x.dtype()), " of ", size(),
           " ranks");
  CheckBounds(*this, x, bounds);
  const int64_t own = bounds[rank() + 1] - bounds[rank()];
  YM_CHECK(squares.contiguous() && squares.dtype() == DType::kF64, name(), ": squares in ",
           DTypeName(squares.dtype()));
  YM_CHECK_EQ(squares.elements(), (own + kSquaresRun - 1) / kSquaresRun, name(), ": squares of ", own);
  if (Ready(*this, stream, x)) ReduceRanges(stream, x, bounds, squares.as<double>());
}

void NcclCommunicator::ReduceRanges(const Stream& stream, const Tensor& x, const std::vector<int64_t>& bounds,
                                    double* squares) {
  constexpr const char* kOp = "reduce-scatter";
  if (impl_->CopiesFor(x)) {
    const Operation operation(*impl_->log, CudaStream(stream), name(), kOp, x.bytes());
    return impl_->link->copies->ReduceScatterSum(stream, x, bounds, squares);
  }
  ReduceScatter(*this, stream, static_cast<char*>(impl_->link->scratch.get()), x, bounds, false, squares,
                kOp);
}

void NcclCommunicator::AllGather(const Stream& stream, const Tensor& x, const std::vector<int64_t>& bounds) {
  CheckBounds(*this, x, bounds);
  if (!Ready(*this, stream, x)) return;
  if (impl_->CopiesFor(x)) {
    const Operation operation(*impl_->log, CudaStream(stream), name(), "all-gather", x.bytes());
    return impl_->link->copies->AllGather(stream, x, bounds);
  }
  GatherRanges(*this, stream, x, bounds, "all-gather");
}

void NcclCommunicator::Broadcast(const Stream& stream, const Tensor& x, int root) {
  YM_CHECK(0 <= root && root < size(), name(), ": broadcast from rank ", root, " of ", size());
  if (!Ready(*this, stream, x)) return;
  const cudaStream_t s = CudaStream(stream);
  const Operation operation(*impl_->log, s, name(), "broadcast", x.bytes());
  Nccl().Check(Nccl().Broadcast(x.data(), x.data(), static_cast<size_t>(x.bytes()), ncclUint8, root,
                                impl_->link->comm, s),
               "ncclBroadcast", StrCat("broadcast in group ", name()));
}

}  // namespace yardmaster
