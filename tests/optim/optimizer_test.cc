// The optimizer on two ranks: which copies of weights agree after an update, and which streams it
// uses. The update itself is seen in whole runs (tests/parallel) and on GPUs
// (tests/cuda/update_test.cc).
#include "src/optim/optimizer.h"

#include <cmath>
#include <map>
#include <set>

#include "src/base/error.h"
#include "src/comm/communicator.h"
#include "src/train/replica_check.h"
#include "tests/catch.h"
#include "tests/comm/mpi_fixture.h"

namespace yardmaster::testing {
namespace {

constexpr ComputeTypes kFp32{DType::kF32, DType::kF32}, kBf16{DType::kBF16, DType::kF32};
constexpr ComputeTypes kMxfp8OnCpu{DType::kF32, DType::kF32, {QuantFormat{QuantKind::kMxfp8}}};
// As on cuda devices, where values in the compute type are not kept beside the copies.
constexpr ComputeTypes kMxfp8OnCuda{DType::kBF16, DType::kF32, {QuantFormat{QuantKind::kMxfp8}}};
constexpr ComputeTypes kFp8BlockOnCuda{
    DType::kBF16, DType::kF32, {QuantFormat{QuantKind::kFp8Block, true}}};

// Some parameters, an optimizer over all ranks of the world, and one update from the same gradients
// on all of them.
struct Updated {
  Updated(ComputeTypes types, int64_t zero, Communicator* group)
      : weights("weights", &device()),
        grads("gradients", &device()),
        state("optimizer", &device()),
        work("work", &device()),
        context{CpuStream(), work, types} {
    for (Arena* arena : {&weights, &grads, &state, &work}) arena->Commit(size_t{8} << 20);
    list.Add("matrix", {384, 256}, DecayClass::kMatrix, InitKind::kNormal, 0.1)->in_recipe =
        true;  // cut by ZeRO
    list.Add("small", {16, 32}, DecayClass::kMatrix, InitKind::kNormal, 0.1)->in_recipe =
        true;  // whole
    list.Add("norm", {256}, DecayClass::kNorm, InitKind::kOnes, 0);
    list.AddExpert("experts", {4, 256, 128}, 0, 4, 0.1)->in_recipe = true;
    list.Add("narrow", {200, 24}, DecayClass::kMatrix, InitKind::kNormal, 0.1);
    list.Add("tall", {777, 336}, DecayClass::kMatrix, InitKind::kNormal,
             0.1);  // its last chunk is short
    list.AddExpert("low", {4, 96, 32}, 0, 4, 0.1);
    list.AddExpert("three", {3, 256, 128}, 0, 3, 0.1);  // cut within a matrix
    AllocateParameters(list, types, weights, &grads);
    InitialiseParameters(list, 11, device());
    optimizer = std::make_unique<Optimizer>(OptimizerConfig(), zero, Registry(&list), types,
                                            OptimizerGroups{group, group, group});
    optimizer->Allocate(state, CpuStream());
    step_state = work.Allocate("state", DType::kU8, {static_cast<int64_t>(sizeof(StepState))});
    StepState judged;
    judged.learning_rate = 0.05;
    device().CopyFromHost(step_state.data(), &judged, sizeof(judged));
    for (const auto& p : list.parameters()) {
      for (int64_t i = 0; i < p->grad.elements(); ++i) p->grad.as<float>()[i] = Value<float>(3, i);
      p->TakeGradBeta();
    }
    optimizer->ReduceGradients(CpuStream());
    optimizer->Update(context, step_state, CpuStream());
  }
  static Device& device() { return CpuStream().device(); }

  // What the comparison of replicas says, or "".
  std::string Differences(const std::vector<ReplicaTensor>& replicas) const {
    const std::unique_ptr<Agreement> agreement = World().MakeAgreement();
    try {
      CheckReplicas(replicas, 1, device(), *agreement);
    } catch (const Error& e) {
      CHECK(e.code() == ExitCode::kCorruption);
      return e.what();
    }
    return "";
  }
  // And where one rank has another first byte of the tensor than the others.
  std::string WithAnotherByte(const Tensor& t) const {
    if (World().rank() == 1) t.as<unsigned char>()[0] ^= 1;
    const std::string differences = Differences(optimizer->ReplicatedState());
    if (World().rank() == 1) t.as<unsigned char>()[0] ^= 1;
    return differences;
  }

  ParameterList list;
  Arena weights, grads, state, work;
  Context context;
  std::unique_ptr<Optimizer> optimizer;
  Tensor step_state;
};

Tensor Bytes(const Tensor& t) { return Tensor(t.data(), DType::kU8, {t.bytes()}); }

std::unique_ptr<MpiCommunicator> AllRanks() {
  std::vector<int64_t> ranks;
  for (int r = 0; r < World().size(); ++r) ranks.push_back(r);
  return World().Group(ranks, "dp");
}

TEST_CASE("replicas agree after an update in every precision, though masters need not") {
  const auto group = AllRanks();
  for (const int64_t zero : {0, 1}) {
    for (const ComputeTypes& types : {kFp32, kBf16, kMxfp8OnCpu, kMxfp8OnCuda, kFp8BlockOnCuda}) {
      INFO("zero " << zero << ", weights " << DTypeName(types.compute)
                   << (types.recipe.format ? ", 8-bit copies" : ""));
      const Updated run(types, zero, group.get());
      CHECK(run.Differences(run.optimizer->ReplicatedState()) == "");
      // The rows of a master that another rank owns are those of before the update.
      const bool stale = zero == 1 && types.compute == DType::kBF16;
      std::vector<ReplicaTensor> masters;
      for (const auto& p : run.list.parameters())
        masters.push_back({p->name, p->master, p->spec.box});
      CHECK((run.Differences(masters) != "") == stale);
    }
  }
}

TEST_CASE(
    "a difference in whatever is computed with is found, and where state is replicated in that "
    "too") {
  const auto group = AllRanks();
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  for (const int64_t zero : {0, 1}) {
    INFO("zero " << zero);
    const Updated values(kBf16, zero, group.get());
    for (const auto& p : values.list.parameters()) {
      INFO(p->name);
      CHECK(contains(values.WithAnotherByte(Bytes(p->value)), p->name.c_str()));
      CHECK(contains(values.WithAnotherByte(Bytes(p->master)), "(master)") == (zero == 0));
    }
    const Updated copies(kFp8BlockOnCuda, zero, group.get());
    const Parameter& p = *copies.list.Find("experts");
    CHECK(contains(copies.WithAnotherByte(Bytes(p.copies.rows.codes)), "experts (8-bit copy)"));
    CHECK(contains(copies.WithAnotherByte(Bytes(p.copies.rows.scales)),
                   "experts (scales of the 8-bit copy)"));
    CHECK(contains(copies.WithAnotherByte(Bytes(p.copies.cols.codes)),
                   "experts (transposed 8-bit copy)"));
    CHECK(contains(copies.WithAnotherByte(Bytes(p.copies.cols.scales)),
                   "experts (scales of the transposed 8-bit copy)"));
    for (const StateTensor& s : copies.optimizer->LoadedState()) {
      if (!s.name.starts_with("adamw.") || zero == 1) continue;
      CHECK(contains(copies.WithAnotherByte(Bytes(s.tensor)), s.name.c_str()));
    }
  }
}

// A group that squares what it reduces, where `on`: as NCCL's does on GPUs.
class Squaring : public Communicator {
 public:
  Squaring(Communicator* group, bool on) : group_(group), on_(on) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const char* name() const override { return group_->name(); }
  void AllReduceSum(const Stream& stream, const Tensor& x) override {
    group_->AllReduceSum(stream, x);
  }
  void AllReduceMax(const Stream& stream, const Tensor& x) override {
    group_->AllReduceMax(stream, x);
  }
  void ReduceScatterSum(const Stream& stream, const Tensor& x,
                        const std::vector<int64_t>& bounds) override {
    group_->ReduceScatterSum(stream, x, bounds);
  }
  bool sums_squares(DType type) const override { return on_ && type == DType::kF32; }
  void ReduceScatterSumAndSquares(const Stream& stream, const Tensor& x,
                                  const std::vector<int64_t>& bounds,
                                  const Tensor& squares) override {
    group_->ReduceScatterSum(stream, x, bounds);
    const int64_t begin = bounds[rank()], end = bounds[rank() + 1];
    REQUIRE(squares.elements() == (end - begin + kSquaresRun - 1) / kSquaresRun);
    for (int64_t i = 0; i < squares.elements(); ++i) squares.as<double>()[i] = 0;
    for (int64_t i = begin; i < end; ++i) {
      const double v = x.as<float>()[i];
      squares.as<double>()[(i - begin) / kSquaresRun] += v * v;
    }
    reduced += x.elements();
  }
  void AllGather(const Stream& stream, const Tensor& x,
                 const std::vector<int64_t>& bounds) override {
    group_->AllGather(stream, x, bounds);
  }
  void Broadcast(const Stream& stream, const Tensor& x, int root) override {
    group_->Broadcast(stream, x, root);
  }
  int64_t reduced = 0;  // elements, with their squares

 private:
  Communicator* group_;
  bool on_;
};

TEST_CASE("squares that come out of the reduction make the norm of squares that do not") {
  const auto group = AllRanks();
  if (group->size() == 1) YM_SKIP("one rank reduces nothing");
  std::vector<double> first;
  for (const int64_t zero : {0, 1}) {
    INFO("zero " << zero);
    std::vector<std::vector<double>> norms;
    for (const bool on : {false, true}) {
      Squaring squaring(group.get(), on);
      Updated run(kFp32, zero, &squaring);
      if (on) {  // all but `narrow`, whose chunks end within runs, and `low`, whose matrices do
        int64_t elements = 0;
        for (const auto& p : run.list.parameters())
          if (p->name != "narrow" && p->name != "low") elements += p->grad.elements();
        CHECK(squaring.reduced == elements);
      }
      run.optimizer->Norm(run.context, CpuStream());
      const Tensor& partials = run.optimizer->partials();
      norms.emplace_back(partials.as<double>(), partials.as<double>() + partials.elements());
    }
    double most = 0;
    for (size_t i = 0; i < norms[0].size(); ++i) {
      CHECK(norms[0][i] > 0);
      most = std::max(most, std::abs(norms[1][i] - norms[0][i]) / norms[0][i]);
    }
    CHECK(most < 1e-13);
    if (first.empty()) first = norms[1];
    CHECK(norms[1] == first);  // bits, whatever a rank keeps
  }
}

TEST_CASE("a plan for GPUs made by processes without them has room for squares, and goes through") {
  const auto group = AllRanks();
  if (group->size() == 1) YM_SKIP("one rank reduces nothing");
  std::map<DeviceKind, int64_t> planned;
  for (const DeviceKind target : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const std::unique_ptr<Device> dry = MakeDryDevice(target);
    Arena weights("weights", dry.get()), grads("gradients", dry.get()), state("state", dry.get()),
        work("work", dry.get());
    ParameterList list;
    list.Add("matrix", {384, 256}, DecayClass::kMatrix, InitKind::kNormal, 0.1);
    AllocateParameters(list, kFp32, weights, &grads);
    Optimizer optimizer(OptimizerConfig(), 1, Registry(&list), kFp32,
                        OptimizerGroups{group.get(), group.get(), group.get()});
    const Stream stream(dry.get());
    optimizer.Allocate(state, stream);
    planned[target] = state.top();
    optimizer.ReduceGradients(stream);
    Context context{stream, work, kFp32};
    optimizer.Norm(context, stream);
  }
  const int64_t own = 128 * 256;  // at least: rows of a chunk
  CHECK(planned[DeviceKind::kCuda] >= planned[DeviceKind::kCpu] + own / kSquaresRun * 8);
}

// Which streams ops are given to.
class StreamsSeen : public Timeline {
 public:
  StepTimes Take() override { return {}; }
  std::set<void*> seen;

 protected:
  void Start(void* stream) override { seen.insert(stream); }
  void Stop(void*) noexcept override {}
};

TEST_CASE("gradients that no rank shares are cleared and squared on one stream") {
  const auto self = MakeSelfCommunicator("self");
  Updated run(kFp32, 1, self.get());
  run.list.BeginStep();  // the gradients are left from the step before, and no part of the model
                         // writes them
  int other = 0;
  const Stream side(&Updated::device(), &other);
  StreamsSeen streams;
  Updated::device().set_timeline(&streams);
  run.optimizer->ReduceGradients(side);
  run.optimizer->Norm(run.context, side);
  Updated::device().set_timeline(nullptr);
  CHECK(streams.seen == std::set<void*>{CpuStream().handle()});
  for (const auto& p : run.list.parameters()) {
    for (int64_t i = 0; i < p->grad.elements(); ++i) REQUIRE(p->grad.as<float>()[i] == 0);
  }
  const Tensor& partials = run.optimizer->partials();
  for (int64_t i = 0; i < partials.elements(); ++i) CHECK(partials.as<double>()[i] == 0);
}

TEST_CASE(
    "the norm takes squares from who wrote a gradient, where they are those of the gradient") {
  const auto self = MakeSelfCommunicator("self");
  Updated run(kFp32, 1, self.get());
  const auto partials = [&] {
    run.optimizer->Norm(run.context, CpuStream());
    const double* p = run.optimizer->partials().as<double>();
    return std::vector<double>(p, p + run.optimizer->partials().elements());
  };
  const std::vector<double> read = partials();
  CHECK(read.size() ==
        3 + 1 + 1 + 8 + 2 + 7 + 4 + 6);  // matrix, small, norm, experts, narrow, tall, low, three
  Parameter& experts = *run.list.Find("experts");
  REQUIRE(experts.squares.elements() == 8);
  CHECK_FALSE(run.list.Find("matrix")->squares.defined());  // a dense product sums none
  CHECK_FALSE(run.list.Find("norm")->squares.defined());
  const auto write_all = [&](bool once) {
    run.list.BeginStep(once);
    for (const auto& p : run.list.parameters()) p->TakeGradWrite();
  };
  write_all(false);
  CHECK(partials() == read);
  write_all(true);
  for (int i = 0; i < 8; ++i) experts.squares.as<double>()[i] = 100 + i;
  std::vector<double> expected = read;
  for (int i = 0; i < 8; ++i) expected[static_cast<size_t>(5 + i)] = 100 + i;
  CHECK(partials() == expected);
  experts.TakeGradBeta();  // something is added
  CHECK(partials() == read);

  const auto group = AllRanks();  // sums over ranks are others' too
  const Updated shared(kFp32, 1, group.get());
  if (group->size() > 1) CHECK_FALSE(shared.list.Find("experts")->squares.defined());
}

}  // namespace
}  // namespace yardmaster::testing
