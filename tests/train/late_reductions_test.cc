// Reductions of gradients and gathers of weights on a stream of their own (engine.h), done as late
// as the orders between the streams allow: whole steps have the bits of those on one stream.
#include <cmath>
#include <cstdlib>

#include "src/comm/communicator.h"
#include "src/comm/ep/local_dispatcher.h"
#include "src/train/engine.h"
#include "tests/catch.h"
#include "tests/device/late_device.h"
#include "tests/train/small_run.h"

namespace yardmaster::testing {
namespace {

// A group of two of which the other rank has the absolute values of what this one has: not a
// multiple, which AdamW would divide out again. In F32 it squares what it reduces, as NCCL's groups
// do. With zero 1 the rows that only the other has, which are gathered, are those of before, a
// little smaller.
class WithAbsolutes : public Communicator {
 public:
  explicit WithAbsolutes(LateDevice* device) : device_(device) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  const char* name() const override { return "with absolutes"; }
  void AllReduceSum(const Stream& stream, const Tensor& x) override { Sum(stream, x); }
  void AllReduceMax(const Stream&, const Tensor&) override {}
  void ReduceScatterSum(const Stream& stream, const Tensor& x,
                        const std::vector<int64_t>&) override {
    Sum(stream, x);
  }
  bool sums_squares(DType type) const override { return type == DType::kF32; }
  void ReduceScatterSumAndSquares(const Stream& stream, const Tensor& x,
                                  const std::vector<int64_t>& bounds,
                                  const Tensor& squares) override {
    Sum(stream, x);
    if (stream.dry()) return;
    device_->Do(stream, [x, squares, n = bounds[1]] {
      double* const runs = squares.as<double>();
      for (int64_t i = 0; i < squares.elements(); ++i) runs[i] = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double v = x.as<float>()[i];
        runs[i / kSquaresRun] += v * v;
      }
    });
  }
  void AllGather(const Stream& stream, const Tensor& x,
                 const std::vector<int64_t>& bounds) override {
    if (stream.dry() || x.dtype() != DType::kF32) return;
    device_->Do(stream, [x, from = bounds[1], to = bounds[2]] {
      for (int64_t i = from; i < to; ++i) x.as<float>()[i] *= 0.96875f;
    });
  }
  void Broadcast(const Stream&, const Tensor&, int) override {}

 private:
  void Sum(const Stream& stream, const Tensor& x) {
    if (stream.dry()) return;
    const auto sum = [x]<class T>(T* values) {
      for (int64_t i = 0; i < x.elements(); ++i) values[i] += std::abs(values[i]);
    };
    device_->Do(stream, [x, sum] {
      switch (x.dtype()) {
        case DType::kF32:
          return sum(x.as<float>());
        case DType::kF64:
          return sum(x.as<double>());
        default:
          return sum(x.as<int64_t>());
      }
    });
  }
  LateDevice* device_;
};

struct Outcome {
  std::string state;  // every byte of it
  std::vector<double> norms;
  int deferred = 0;
};

Outcome Steps(std::vector<std::string> settings, bool overlap) {
  settings.insert(settings.end(), {"runtime.device=cpu", "train.global_batch_size=16",
                                   StrCat("runtime.overlap=", overlap ? "true" : "false")});
  const Config config = SmallRun("nowhere", "run", settings).loaded.config;
  LateDevice device;
  WithAbsolutes group(&device);
  const Groups groups{&group, &group, &group};
  LocalDispatcher dispatcher(config.model.n_routed_experts, config.model.num_experts_per_tok);
  Engine engine(EngineMode::kTraining, config, groups, &dispatcher, &device,
                Engine::Plan(EngineMode::kTraining, config, groups, &dispatcher, DeviceKind::kCpu));
  engine.Initialise(7);
  const int64_t S = config.train.sequence_length, T = engine.micro_batch_tokens();
  const int64_t micro_batches = engine.max_micro_batches();
  CHECK(micro_batches == 4);
  Outcome out;
  for (uint64_t step = 0; step < 3; ++step) {
    HostBatch batch;
    batch.micro_batches = micro_batches;
    for (int64_t i = 0; i < micro_batches * T; ++i) {
      batch.tokens.push_back(
          static_cast<int32_t>(Philox4x32(step, 1, static_cast<uint64_t>(i))[0] % 257));
      batch.targets.push_back(
          static_cast<int32_t>(Philox4x32(step, 2, static_cast<uint64_t>(i))[0] % 257));
      batch.positions.push_back(static_cast<int32_t>(i % S));
      batch.document_start.push_back(0);
    }
    engine.Stage(batch);
    engine.Step(micro_batches, 2 * micro_batches * T);
    const StepState state = engine.TakeReports().at(0).state;
    CHECK(state.verdict == static_cast<int32_t>(StepVerdict::kOk));
    CHECK(device.idle());
    out.norms.push_back(state.grad_norm);
  }
  for (const StateTensor& t : engine.LoadedState())
    out.state.append(static_cast<const char*>(t.tensor.data()),
                     static_cast<size_t>(t.tensor.bytes()));
  out.deferred = device.deferred();
  return out;
}

TEST_CASE("reductions that are done as late as they may be change no bit") {
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {"precision.compute=fp32", "parallel.zero=0"},
           {"precision.compute=fp32", "parallel.zero=1"},
           {"precision.compute=mxfp8", "parallel.zero=0", "ep.payload=recipe"},
           {"precision.compute=fp32", "parallel.zero=0", "model.num_nextn_predict_layers=1",
            "train.mtp_loss_weight=0.3"},
           {"precision.compute=fp32", "parallel.zero=1", "runtime.two_batch_overlap=true"},
           {"precision.compute=fp64", "parallel.zero=0", "model.n_shared_experts=0"}}) {
    INFO(StrJoin(settings, ", "));
    const Outcome plain = Steps(settings, false), late = Steps(settings, true);
    CHECK(plain.deferred == 0);
    CHECK(late.deferred > 3 * 20);  // of every parameter in every step
    CHECK((late.state == plain.state));
    CHECK(late.norms == plain.norms);
    CHECK(!plain.state.empty());
  }
}

}  // namespace
}  // namespace yardmaster::testing
