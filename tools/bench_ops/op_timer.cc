#include "tools/bench_ops/op_timer.h"

#include <algorithm>

#include "src/device/cuda/cuda_device.h"
#include "src/ops/gemm.h"
#include "tools/bench_ops/op_execution.h"

namespace yardmaster {
namespace {

constexpr size_t kFlushBytes = size_t{256} << 20;  // several times the largest L2
constexpr size_t kCopyBytes = size_t{1} << 30;

// One large dense product.
BenchOp SquareProduct(DType type) {
  const int64_t n = type == DType::kBF16 ? 8192 : 4096;
  BenchOp op;
  op.buffers = {{.name = "a", .shape = {n, n}, .scale = 1},
                {.name = "b", .shape = {n, n}, .scale = 0.02},
                {.name = "d", .shape = {n, n}}};
  op.calls = {{.name = "product",
               .run =
                   [](const BenchRun& r) {
                     Gemm(r.stream(), {.a = r["a"], .b = r["b"], .d = r["d"], .trans_b = true});
                   },
               .outputs = {},
               .moves = {},
               .flops = 2.0 * static_cast<double>(n * n * n)}};
  return op;
}

}  // namespace

struct OpTimer::Events {
  explicit Events(CudaDevice& d) : device(d) {
    Check(cudaEventCreate(begin.address()));
    Check(cudaEventCreate(end.address()));
  }
  void Check(cudaError_t result) const { device.Check(result, "bench", "timing"); }
  CudaDevice& device;
  CudaEvent begin, end;
};

OpTimer::OpTimer(Device& device, int repeats) : device_(device), repeats_(repeats), flush_(nullptr) {
  YM_CHECK(device.kind() == DeviceKind::kCuda, "timing on the ", DeviceKindName(device.kind()), " device");
  events_ = std::make_unique<Events>(static_cast<CudaDevice&>(device));
  flush_ = device.Allocate(kFlushBytes);
}

OpTimer::~OpTimer() { device_.Free(flush_); }

double OpTimer::Elapsed(const std::function<void()>& call) {
  const cudaStream_t stream = events_->device.compute_stream();
  events_->Check(cudaEventRecord(events_->begin.get(), stream));
  call();
  events_->Check(cudaEventRecord(events_->end.get(), stream));
  events_->Check(cudaEventSynchronize(events_->end.get()));
  float ms = 0;
  events_->Check(cudaEventElapsedTime(&ms, events_->begin.get(), events_->end.get()));
  return static_cast<double>(ms);
}

double OpTimer::MedianMs(const std::function<void()>& call, double warm_seconds) {
  for (int i = 0; i < 2; ++i) call();
  for (double spent = 0; spent < 1000 * warm_seconds;) {
    spent += Elapsed([&] {
      for (int i = 0; i < 5; ++i) call();
    });
  }
  std::vector<double> times;
  for (int i = 0; i < repeats_; ++i) {
    events_->Check(cudaMemsetAsync(flush_, i, kFlushBytes, events_->device.compute_stream()));
    times.push_back(Elapsed(call));
  }
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  return n % 2 == 1 ? times[n / 2] : 0.5 * (times[n / 2 - 1] + times[n / 2]);
}

BenchCeilings OpTimer::Ceilings(DType work, double warm_seconds) {
  BenchCeilings c;
  {
    void* from = device_.Allocate(kCopyBytes);
    void* to = device_.Allocate(kCopyBytes);
    const cudaStream_t stream = events_->device.compute_stream();
    const double ms = MedianMs(
        [&] { events_->Check(cudaMemcpyAsync(to, from, kCopyBytes, cudaMemcpyDeviceToDevice, stream)); });
    c.bytes_per_s = 2.0 * static_cast<double>(kCopyBytes) / (ms * 1e-3);
    device_.Free(from);
    device_.Free(to);
  }
  const BenchOp op = SquareProduct(work);
  OpExecution product(op, work, device_, /*seed=*/1);
  c.flops_per_s = op.calls[0].flops / (MedianMs([&] { product.Run(op.calls[0]); }, warm_seconds) * 1e-3);
  return c;
}

}  // namespace yardmaster
