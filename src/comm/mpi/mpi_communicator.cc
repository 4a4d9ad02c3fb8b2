#include "src/comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/base/check.h"
#include "src/comm/mpi/mpi_communicator_impl.h"

namespace yardmaster {
namespace {

constexpr int kTag = 1;  // one tag: messages between two ranks of a group keep their order
constexpr int64_t kScratchBytes = int64_t{1} << 25;
constexpr int64_t kLeastSegmentBytes = 4096, kMostSegmentBytes = int64_t{1} << 20;
constexpr int64_t kGatherAllBytes = int64_t{1}
                                    << 18;  // below: one exchange of everything beats two of parts

struct Sum {
  template <class T>
  static T Of(T a, T b) {
    return a + b;
  }
};
struct Max {
  template <class T>
  static T Of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(b)) return b;
      if (std::isnan(a)) return a;
    }
    return a > b ? a : b;
  }
};

template <class Op, class T>
void Accumulate(T* to, const T* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = Op::Of(to[i], from[i]);
}

// to = op(to, from) for n values.
template <class Op>
void Accumulate(DType dtype, void* to, const void* from, int64_t n) {
  switch (dtype) {
    case DType::kF32:
      return Accumulate<Op>(static_cast<float*>(to), static_cast<const float*>(from), n);
    case DType::kF64:
      return Accumulate<Op>(static_cast<double*>(to), static_cast<const double*>(from), n);
    case DType::kI32:
      return Accumulate<Op>(static_cast<int32_t*>(to), static_cast<const int32_t*>(from), n);
    case DType::kI64:
      return Accumulate<Op>(static_cast<int64_t*>(to), static_cast<const int64_t*>(from), n);
    default:
      YM_CHECK(false, "no reduction of ", DTypeName(dtype));
  }
}

// Whether there is anything to do; checks what every call must hold.
bool Ready(const MpiCommunicator& comm, const MpiState& state, const Stream& stream,
           const Tensor& x) {
  YM_CHECK(x.contiguous(), comm.name(), ": collective on a strided tensor ", x.shape());
  if (stream.dry()) return false;
  YM_CHECK(stream.kind() == DeviceKind::kCpu, comm.name(), ": MPI moves host memory, not ",
           DeviceKindName(stream.kind()));
  MpiCheckUsable(state);
  return x.elements() > 0;
}

void CheckBounds(const MpiCommunicator& comm, const Tensor& x, const std::vector<int64_t>& bounds) {
  YM_CHECK_EQ(bounds.size(), static_cast<size_t>(comm.size()) + 1, comm.name());
  YM_CHECK(bounds.front() >= 0 && bounds.back() <= x.elements(), comm.name(), ": bounds ",
           bounds.front(), "..", bounds.back(), " of ", x.shape());
  YM_CHECK(std::is_sorted(bounds.begin(), bounds.end()), comm.name(), ": bounds are not ascending");
}

std::vector<int64_t> EvenBounds(int64_t n, int size) {
  std::vector<int64_t> bounds(static_cast<size_t>(size) + 1);
  for (int r = 0; r <= size; ++r) bounds[r] = n / size * r + std::min<int64_t>(r, n % size);
  return bounds;
}

// This rank's range of x = op over ranks, in segments that bound the working memory.
template <class Op>
void ReduceScatter(MpiCommunicator& comm, char* scratch, const Tensor& x,
                   const std::vector<int64_t>& bounds, int64_t segment, const char* what) {
  const int size = comm.size(), rank = comm.rank();
  const int64_t width = DTypeBytes(x.dtype());
  char* data = static_cast<char*>(x.data());
  int64_t longest = 0;
  for (int r = 0; r < size; ++r) longest = std::max(longest, bounds[r + 1] - bounds[r]);
  for (int64_t done = 0; done < longest; done += segment) {
    const auto length = [&](int r) {
      return std::clamp<int64_t>(bounds[r + 1] - bounds[r] - done, 0, segment);
    };
    const int64_t own = length(rank);
    char* own_data = data + (bounds[rank] + done) * width;
    // Rows of scratch: one for each rank, this rank's own unused, then the sum.
    const auto row = [&](int r) { return scratch + r * segment * width; };
    std::vector<MpiCommunicator::Transfer> sends, receives;
    for (int i = 1; i < size; ++i) {
      const int to = (rank + i) % size, from = (rank + size - i) % size;
      sends.push_back({to, data + (bounds[to] + done) * width, length(to) * width});
      receives.push_back({from, row(from), own * width});
    }
    comm.Exchange(sends, receives, what);
    if (own == 0) continue;
    const auto values = [&](int r) { return r == rank ? own_data : row(r); };
    std::memcpy(row(size), values(0), static_cast<size_t>(own * width));
    for (int r = 1; r < size; ++r) Accumulate<Op>(x.dtype(), row(size), values(r), own);
    std::memcpy(own_data, row(size), static_cast<size_t>(own * width));
  }
}

void GatherRanges(MpiCommunicator& comm, const Tensor& x, const std::vector<int64_t>& bounds,
                  const char* what) {
  const int size = comm.size(), rank = comm.rank();
  const int64_t width = DTypeBytes(x.dtype());
  char* data = static_cast<char*>(x.data());
  std::vector<MpiCommunicator::Transfer> sends, receives;
  for (int i = 1; i < size; ++i) {
    const int to = (rank + i) % size, from = (rank + size - i) % size;
    sends.push_back({to, data + bounds[rank] * width, (bounds[rank + 1] - bounds[rank]) * width});
    receives.push_back(
        {from, data + bounds[from] * width, (bounds[from + 1] - bounds[from]) * width});
  }
  comm.Exchange(sends, receives, what);
}

int64_t SegmentBytes(int size) {
  return std::clamp(kScratchBytes / (size + 1), kLeastSegmentBytes, kMostSegmentBytes) / 8 * 8;
}

}  // namespace

MpiCommunicator::Impl::Impl(std::shared_ptr<MpiState> state_in, MPI_Comm comm_in,
                            std::vector<int> ranks_in, std::string name_in)
    : state(std::move(state_in)),
      comm(comm_in),
      ranks(std::move(ranks_in)),
      name(std::move(name_in)) {
  YM_MPI(MPI_Comm_rank(comm, &rank));
  YM_MPI(MPI_Comm_size(comm, &size));
  YM_CHECK_EQ(static_cast<size_t>(size), ranks.size(), name);
}

MpiCommunicator::Impl::~Impl() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (!finalised && !state->broken) MPI_Comm_free(&comm);
}

char* MpiCommunicator::Impl::Scratch(int64_t bytes) {
  if (static_cast<int64_t>(scratch.size()) < bytes) scratch.resize(static_cast<size_t>(bytes));
  return scratch.data();
}

std::string MpiCommunicator::Impl::PeerName(int peer) const {
  return StrCat("rank ", peer, " of ", name, " (world rank ", ranks[peer], ")");
}

std::string MpiCommunicator::Impl::What(const char* what) const {
  return StrCat(what, " in group ", name);
}

MpiCommunicator::MpiCommunicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MpiCommunicator::~MpiCommunicator() = default;
int MpiCommunicator::rank() const { return impl_->rank; }
int MpiCommunicator::size() const { return impl_->size; }
const char* MpiCommunicator::name() const { return impl_->name.c_str(); }
int MpiCommunicator::world_rank(int group_rank) const { return impl_->ranks[group_rank]; }

void MpiCommunicator::Exchange(const std::vector<Transfer>& sends,
                               const std::vector<Transfer>& receives, const char* what) {
  MpiCheckUsable(*impl_->state);
  const int64_t most = impl_->state->max_message_bytes;
  impl_->requests.clear();
  impl_->peers.clear();
  const auto post = [&](const Transfer& t, bool send) {
    YM_CHECK(0 <= t.peer && t.peer < size() && t.bytes >= 0, what, ": ", t.bytes,
             " bytes to or from rank ", t.peer, " of ", name());
    for (int64_t done = 0; done < t.bytes; done += most) {
      char* data = static_cast<char*>(t.data) + done;
      const int bytes = static_cast<int>(std::min(most, t.bytes - done));
      impl_->requests.emplace_back(MPI_REQUEST_NULL);
      impl_->peers.push_back(t.peer);
      if (send) {
        YM_MPI(
            MPI_Isend(data, bytes, MPI_BYTE, t.peer, kTag, impl_->comm, &impl_->requests.back()));
      } else {
        YM_MPI(
            MPI_Irecv(data, bytes, MPI_BYTE, t.peer, kTag, impl_->comm, &impl_->requests.back()));
      }
    }
  };
  for (const Transfer& t : receives) {
    if (t.peer != rank()) post(t, false);
  }
  for (const Transfer& t : sends) {
    if (t.peer != rank()) post(t, true);
  }
  // Own blocks are copied while the others travel.
  auto from = sends.begin();
  for (const Transfer& to : receives) {
    if (to.peer != rank() || to.bytes == 0) continue;
    from = std::find_if(from, sends.end(),
                        [&](const Transfer& t) { return t.peer == rank() && t.bytes > 0; });
    YM_CHECK(from != sends.end() && from->bytes == to.bytes, what, " in ", name(), ": rank ",
             rank(), " expects ", to.bytes, " bytes from itself that it does not send");
    std::memcpy(to.data, from->data, static_cast<size_t>(to.bytes));
    ++from;
  }
  if (!impl_->requests.empty()) {
    MpiWait(*impl_->state, impl_->requests, impl_->What(what),
            [&](size_t i) { return impl_->PeerName(impl_->peers[i]); });
  }
}

namespace {

template <class Op>
void AllReduce(MpiCommunicator& comm, const Tensor& x, const char* what,
               const std::function<char*(int64_t)>& scratch) {
  const int size = comm.size();
  const int64_t n = x.elements(), width = DTypeBytes(x.dtype());
  if (size == 1) return;
  if (n * width * size <= kGatherAllBytes) {
    char* all = scratch(n * width * size);
    std::vector<MpiCommunicator::Transfer> sends, receives;
    for (int r = 0; r < size; ++r) {
      sends.push_back({r, x.data(), n * width});
      receives.push_back({r, all + r * n * width, n * width});
    }
    comm.Exchange(sends, receives, what);
    std::memcpy(x.data(), all, static_cast<size_t>(n * width));
    for (int r = 1; r < size; ++r) Accumulate<Op>(x.dtype(), x.data(), all + r * n * width, n);
    return;
  }
  const std::vector<int64_t> bounds = EvenBounds(n, size);
  ReduceScatter<Op>(comm, scratch(SegmentBytes(size) * (size + 1)), x, bounds,
                    SegmentBytes(size) / width, what);
  GatherRanges(comm, x, bounds, what);
}

bool Reducible(DType t) {
  return t == DType::kF32 || t == DType::kF64 || t == DType::kI32 || t == DType::kI64;
}

}  // namespace

void MpiCommunicator::AllReduceSum(const Stream& stream, const Tensor& x) {
  YM_CHECK(Reducible(x.dtype()), name(), ": no sum of ", DTypeName(x.dtype()));
  if (!Ready(*this, *impl_->state, stream, x)) return;
  AllReduce<Sum>(*this, x, "all-reduce", [&](int64_t bytes) { return impl_->Scratch(bytes); });
}

void MpiCommunicator::AllReduceMax(const Stream& stream, const Tensor& x) {
  YM_CHECK(Reducible(x.dtype()), name(), ": no maximum of ", DTypeName(x.dtype()));
  if (!Ready(*this, *impl_->state, stream, x)) return;
  AllReduce<Max>(*this, x, "all-reduce (maximum)",
                 [&](int64_t bytes) { return impl_->Scratch(bytes); });
}

void MpiCommunicator::ReduceScatterSum(const Stream& stream, const Tensor& x,
                                       const std::vector<int64_t>& bounds) {
  YM_CHECK(Reducible(x.dtype()), name(), ": no sum of ", DTypeName(x.dtype()));
  CheckBounds(*this, x, bounds);
  if (!Ready(*this, *impl_->state, stream, x) || size() == 1) return;
  ReduceScatter<Sum>(*this, impl_->Scratch(SegmentBytes(size()) * (size() + 1)), x, bounds,
                     SegmentBytes(size()) / DTypeBytes(x.dtype()), "reduce-scatter");
}

void MpiCommunicator::AllGather(const Stream& stream, const Tensor& x,
                                const std::vector<int64_t>& bounds) {
  CheckBounds(*this, x, bounds);
  if (!Ready(*this, *impl_->state, stream, x) || size() == 1) return;
  GatherRanges(*this, x, bounds, "all-gather");
}

void MpiCommunicator::Broadcast(const Stream& stream, const Tensor& x, int root) {
  YM_CHECK(0 <= root && root < size(), name(), ": broadcast from rank ", root, " of ", size());
  if (!Ready(*this, *impl_->state, stream, x) || size() == 1) return;
  const int64_t most = impl_->state->max_message_bytes;
  for (int64_t done = 0; done < x.bytes(); done += most) {
    impl_->requests.assign(1, MPI_REQUEST_NULL);
    YM_MPI(MPI_Ibcast(static_cast<char*>(x.data()) + done,
                      static_cast<int>(std::min(most, x.bytes() - done)), MPI_BYTE, root,
                      impl_->comm, impl_->requests.data()));
    MpiWait(*impl_->state, impl_->requests, impl_->What("broadcast"),
            [&](size_t) { return impl_->PeerName(root); });
  }
}

}  // namespace yardmaster
