#include "src/comm/nccl/copy_collectives.h"

#include <cudaTypedefs.h>

#include "kernels/reduce/ordered_reduce.h"
#include "src/base/check.h"
#include "src/comm/nccl/ranges.h"
#include "src/comm/nccl/reduce_type.h"
#include "src/device/cuda/cuda_stream.h"

namespace yardmaster {
namespace {

constexpr int kSlots = 2;
constexpr int64_t kFlagBytes = 4096;  // full [ranks][kSlots], credit [ranks][kSlots], uint32; the rows follow
static_assert(2 * PeerTable::kMaxPeers * kSlots * sizeof(uint32_t) <= kFlagBytes);

PFN_cuStreamBatchMemOp_v11070 MemoryOperations() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &function, 11070, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<PFN_cuStreamBatchMemOp_v11070>(function);
}

}  // namespace

void CopyCollectives::Batch::Await(const char* flag) {
  CUstreamBatchMemOpParams wait{}, reset{};
  wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait.waitValue.address = reinterpret_cast<CUdeviceptr>(flag);
  wait.waitValue.value = 1;
  wait.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  reset.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  reset.writeValue.address = reinterpret_cast<CUdeviceptr>(flag);
  reset.writeValue.value = 0;
  ops_.insert(ops_.end(), {wait, reset});
}

void CopyCollectives::Batch::Raise(const char* flag) {
  CUstreamBatchMemOpParams write{};
  write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.writeValue.address = reinterpret_cast<CUdeviceptr>(flag);
  write.writeValue.value = 1;
  write.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  ops_.push_back(write);
}

CUresult CopyCollectives::Batch::TryRun(cudaStream_t stream) const {
  static const PFN_cuStreamBatchMemOp_v11070 run = MemoryOperations();
  if (run == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return run(stream, static_cast<unsigned>(ops_.size()),
             const_cast<CUstreamBatchMemOpParams*>(ops_.data()), 0);
}

void CopyCollectives::Batch::Run(const CudaDevice& device, cudaStream_t stream, const char* what) const {
  const CUresult result = TryRun(stream);
  if (result != CUDA_SUCCESS)
    device.Fail(StrCat("error ", static_cast<int>(result)), what, "cuStreamBatchMemOp", ExitCode::kInternal);
}

// By doing what a transfer does, once: the driver has no attribute that promises it.
std::string CopyCollectives::WhyNoMemoryOperations(CudaDevice* device) {
  constexpr const char* kOp = "trying memory operations of streams";
  DeviceBuffer memory;
  device->Check(cudaMalloc(memory.address(), sizeof(uint32_t)), kOp, "cudaMalloc");
  const auto* flag = static_cast<const char*>(memory.get());
  const cudaStream_t stream = device->compute_stream();
  uint32_t value = 7;
  device->CopyFromHost(memory.get(), &value, sizeof(value));
  Batch batch;
  batch.Raise(flag);
  batch.Await(flag);
  const CUresult result = batch.TryRun(stream);
  if (result != CUDA_SUCCESS)
    return StrCat("its driver refuses memory operations of streams (cuStreamBatchMemOp: error ",
                  static_cast<int>(result), ")");
  device->Check(cudaStreamSynchronize(stream), kOp, "cudaStreamSynchronize");
  device->CopyToHost(&value, memory.get(), sizeof(value));
  return value == 0 ? "" : StrCat("memory operations of its streams leave ", value, " where 0 was written");
}

std::string CopyCollectives::WhyNot(CudaDevice* device, MpiCommunicator* control, const std::string& host) {
  if (control->size() > PeerTable::kMaxPeers)
    return StrCat(control->name(), " has more than ", PeerTable::kMaxPeers, " ranks");
  const std::string unreachable = IpcPeers::WhyNot(device, control, host);
  return unreachable.empty() ? IpcPeers::FirstTrouble(control, WhyNoMemoryOperations(device)) : unreachable;
}

CopyCollectives::CopyCollectives(CudaDevice* device, std::unique_ptr<MpiCommunicator> control,
                                 int64_t staging_bytes)
    : device_(device),
      control_(std::move(control)),
      peers_(device, control_.get(),
             {.what = "staging memory of copies between ranks",
              .setting = "runtime.copy_engines",
              .hint = "set runtime.copy_engines to false: NCCL carries everything then"}),
      rank_(control_->rank()),
      size_(control_->size()),
      row_bytes_(SegmentBytes(staging_bytes / (kSlots * (size_ - 1)))) {
  YM_CHECK_GE(row_bytes_, kRunBytes, control_->name(), ": staging of ", staging_bytes, " bytes for ", size_, " ranks");
  constexpr const char* kOp = "start of copies between ranks";
  peers_.Allocate(static_cast<size_t>(kFlagBytes + staging_bytes));
  const std::vector<uint32_t> free(static_cast<size_t>(size_ * kSlots), 1);
  device->CopyFromHost(FlagAt(rank_, kCredit, 0, 0), free.data(), free.size() * sizeof(uint32_t));
  device->Check(cudaStreamCreateWithFlags(pusher_.address(), cudaStreamNonBlocking), kOp,
                "cudaStreamCreateWithFlags");
  for (CudaEvent* event : {&fork_, &sent_, &taken_[0], &taken_[1], &join_})
    device->Check(cudaEventCreateWithFlags(event->address(), cudaEventDisableTiming), kOp,
                  "cudaEventCreateWithFlags");
}

CopyCollectives::~CopyCollectives() = default;

char* CopyCollectives::FlagAt(int at, Flag flag, int other, int slot) const {
  const int index = (static_cast<int>(flag) * size_ + other) * kSlots + slot;
  return peers_.region(0).base[static_cast<size_t>(at)] + static_cast<int64_t>(sizeof(uint32_t)) * index;
}

// Rows of a slot lie one after the other, by sender without the owner: what OrderedReduce reads.
char* CopyCollectives::Row(int at, int from, int slot) const {
  const int64_t row = slot * (size_ - 1) + from - (from > at);
  return peers_.region(0).base[static_cast<size_t>(at)] + kFlagBytes + row * row_bytes_;
}

void CopyCollectives::ForSegments(cudaStream_t stream, int64_t longest, int64_t segment, const char* what,
                                  const std::function<void(int64_t, int)>& push,
                                  const std::function<void(int64_t, int)>& take) {
  const auto record = [&](const CudaEvent& event, cudaStream_t s) {
    device_->Check(cudaEventRecord(event.get(), s), what, "cudaEventRecord");
  };
  const auto wait = [&](cudaStream_t s, const CudaEvent& event) {
    device_->Check(cudaStreamWaitEvent(s, event.get(), 0), what, "cudaStreamWaitEvent");
  };
  record(fork_, stream);
  wait(pusher_.get(), fork_);
  int slot = 0;
  for (int64_t done = 0; done < longest; done += segment, slot = 1 - slot) {
    if (done >= kSlots * segment) wait(pusher_.get(), taken_[slot]);
    push(done, slot);
    record(sent_, pusher_.get());
    wait(stream, sent_);
    take(done, slot);
    record(taken_[slot], stream);
  }
  record(join_, pusher_.get());
  wait(stream, join_);
}

void CopyCollectives::Push(int to, int slot, const void* from, int64_t bytes, const char* what) {
  Batch before, after;
  before.Await(FlagAt(rank_, kCredit, to, slot));
  before.Run(*device_, pusher_.get(), what);
  device_->Check(cudaMemcpyAsync(Row(to, rank_, slot), from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                                 pusher_.get()),
                 what, "cudaMemcpyAsync");
  after.Raise(FlagAt(to, kFull, rank_, slot));
  after.Run(*device_, pusher_.get(), what);
}

void CopyCollectives::Take(cudaStream_t stream, const std::vector<int>& from, int slot, const char* what) {
  Batch batch;
  for (const int r : from) batch.Await(FlagAt(rank_, kFull, r, slot));
  batch.Run(*device_, stream, what);
}

void CopyCollectives::Give(cudaStream_t stream, const std::vector<int>& from, int slot, const char* what) {
  Batch batch;
  for (const int r : from) batch.Raise(FlagAt(r, kCredit, rank_, slot));
  batch.Run(*device_, stream, what);
}

void CopyCollectives::ReduceScatterSum(const Stream& stream, const Tensor& x,
                                       const std::vector<int64_t>& bounds, double* squares) {
  constexpr const char* kOp = "reduce-scatter";
  const cudaStream_t s = CudaStream(stream);
  const int64_t width = DTypeBytes(x.dtype()), segment = Segment(width);
  char* data = static_cast<char*>(x.data());
  const auto at = [&](int r, int64_t done) { return data + (bounds[static_cast<size_t>(r)] + done) * width; };
  std::vector<int> others;
  for (int i = 1; i < size_; ++i) others.push_back((rank_ + i) % size_);
  ForSegments(
      s, LongestRange(bounds), segment, kOp,
      [&](int64_t done, int slot) {
        for (const int to : others) {
          const int64_t n = LengthInSegment(bounds, to, done, segment);
          if (n > 0) Push(to, slot, at(to, done), n * width, kOp);
        }
      },
      [&](int64_t done, int slot) {
        const int64_t own = LengthInSegment(bounds, rank_, done, segment);
        if (own == 0) return;
        Take(s, others, slot, kOp);
        YM_CUDA_CHECK(stream, kOp,
                      OrderedReduce({.type = ReduceTypeOf(x.dtype(), control_->name()),
                                     .parts = Row(rank_, rank_ == 0 ? 1 : 0, slot),
                                     .stride = row_bytes_ / width,
                                     .ranks = size_,
                                     .own = rank_,
                                     .own_values = at(rank_, done),
                                     .out = at(rank_, done),
                                     .n = own,
                                     .squares = SquaresAt(squares, done)},
                                    s));
        Give(s, others, slot, kOp);
      });
}

void CopyCollectives::AllGather(const Stream& stream, const Tensor& x, const std::vector<int64_t>& bounds) {
  constexpr const char* kOp = "all-gather";
  const cudaStream_t s = CudaStream(stream);
  const int64_t width = DTypeBytes(x.dtype()), segment = Segment(width);
  char* data = static_cast<char*>(x.data());
  const auto at = [&](int r, int64_t done) { return data + (bounds[static_cast<size_t>(r)] + done) * width; };
  ForSegments(
      s, LongestRange(bounds), segment, kOp,
      [&](int64_t done, int slot) {
        const int64_t own = LengthInSegment(bounds, rank_, done, segment);
        for (int i = 1; i < size_ && own > 0; ++i)
          Push((rank_ + i) % size_, slot, at(rank_, done), own * width, kOp);
      },
      [&](int64_t done, int slot) {
        for (int i = 1; i < size_; ++i) {
          const int from = (rank_ + size_ - i) % size_;
          const int64_t n = LengthInSegment(bounds, from, done, segment);
          if (n == 0) continue;
          Take(s, {from}, slot, kOp);
          YM_CUDA_CHECK(stream, kOp,
                        cudaMemcpyAsync(at(from, done), Row(rank_, from, slot), static_cast<size_t>(n * width),
                                        cudaMemcpyDeviceToDevice, s));
          Give(s, {from}, slot, kOp);
        }
      });
}

}  // namespace yardmaster
