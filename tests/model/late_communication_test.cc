// Dispatch and combine on a stream of their own (nn/context.h) may be done at any time that the
// orders between the streams allow. Here they are done as late as that: when the other stream waits
// for them, and no sooner. Whatever they read must still be there then, and nobody may have read
// what they write.
#include <array>

#include "src/comm/ep/local_dispatcher.h"
#include "tests/catch.h"
#include "tests/device/late_device.h"
#include "tests/model/tiny_model.h"

namespace yardmaster::testing {
namespace {

class LateDispatcher : public LocalDispatcher {
 public:
  LateDispatcher(const ModelConfig& c, LateDevice* device)
      : LocalDispatcher(c.n_routed_experts, c.num_experts_per_tok), device_(device) {}
  void Dispatch(const Stream& stream, const RoutingHandle& handle, const Tensor& x_TD,
                const Tensor& w_TK, const Tensor& x_RD, const Tensor& w_R, Arena& work) override {
    device_->Do(stream, [=, this, &work] {
      LocalDispatcher::Dispatch(stream, handle, x_TD, w_TK, x_RD, w_R, work);
    });
  }
  void Combine(const Stream& stream, const RoutingHandle& handle, const Tensor& y_RD,
               const Tensor& residual, const Tensor& addend, const Tensor& y_TD, const Tensor& dw_R,
               const Tensor& dw_TK, Arena& work) override {
    device_->Do(stream, [=, this, &work] {
      LocalDispatcher::Combine(stream, handle, y_RD, residual, addend, y_TD, dw_R, dw_TK, work);
    });
  }

 private:
  LateDevice* device_;
};

enum class Way { kOneStream, kLate, kLateInTurn };

struct Outcome {
  std::vector<double> gradients;
  double loss = 0, evaluated = 0;
  int deferred = 0;  // in training
};

// Forward and backward of two micro-batches, and an evaluation of both.
Outcome Run(const ModelConfig& config, ComputeTypes types, const Implementations& how, Way way) {
  constexpr int64_t B = 2, S = 7, T = B * S;
  LateDevice device;
  LateDispatcher dispatcher(config, &device);
  const auto model = MakeModel(config, {.types = types, .max_positions = S}, &dispatcher);
  struct Memory {
    // In turn, memory that is still read is given back before the turn ends, and to nobody before
    // the next: only what others write into it is wrong. Elsewhere what was given back reads as NaN
    // at once.
    Memory(const char* name, Device* d, bool poison = true) : arena(name, d) {
      arena.set_poison(poison);
      arena.Commit(size_t{4} << 20);
    }
    Arena arena;
  };
  const bool poison = way != Way::kLateInTurn;
  Memory weights("weights", &device), grads("gradients", &device), io("batch", &device),
      exchange("exchange", &device), saved0("saved", &device, poison),
      saved1("second saved", &device, poison), work0("work", &device, poison),
      work1("second work", &device, poison);
  AllocateParameters(model->registry().list(), types, weights.arena, &grads.arena);
  model->Allocate(weights.arena, device);
  InitialiseParameters(model->registry().list(), 3, device);

  const auto write = [&]<class V>(const Tensor& x, const std::vector<V>& values) {
    device.CopyFromHost(x.data(), values.data(), values.size() * sizeof(V));
  };
  StepAccumulators acc;
  acc.loss_sum = io.arena.Allocate("loss", DType::kF64, {1});
  acc.valid = io.arena.Allocate("valid", DType::kI64, {1});
  acc.sums = io.arena.Allocate("sums", DType::kF64,
                               {1 + static_cast<int64_t>(model->moe_layers().size()), kStepSums});
  acc.overflow = io.arena.Allocate("overflow", DType::kI32, {1});
  for (const Tensor& t : {acc.loss_sum, acc.valid, acc.sums, acc.overflow})
    write(t, std::vector<char>(static_cast<size_t>(t.bytes()), 0));
  std::array<MicroBatch, 2> mb;
  for (size_t i = 0; i < 2; ++i) {
    mb[i].B = B;
    mb[i].S = S;
    for (Tensor* t : {&mb[i].tokens, &mb[i].targets, &mb[i].positions})
      *t = io.arena.Allocate("batch", DType::kI32, {T});
    const Batch batch = RandomBatch(T, config.vocab_size, 5 + i);
    write(mb[i].tokens, batch.tokens);
    write(mb[i].targets, batch.targets);
    std::vector<int32_t> positions;
    for (int64_t t = 0; t < T; ++t) positions.push_back(static_cast<int32_t>(t % S));
    write(mb[i].positions, positions);
    mb[i].grad_scale = 1.0 / (2 * T);
    mb[i].saved = i == 0 || way != Way::kLateInTurn ? &saved0.arena : &saved1.arena;
  }

  const CommunicationStream side{device.AddStream(), &exchange.arena};
  const Context context{Stream(&device), work0.arena, types, how,
                        way == Way::kOneStream ? nullptr : &side};
  model->registry().list().BeginStep();
  if (way == Way::kLateInTurn) {
    Model::TwoContexts contexts{context, Context{Stream(&device), work1.arena, types, how, &side}};
    model->RunForwardInTurn(contexts, {&mb[0], &mb[1]}, acc);
    model->RunBackwardInTurn(contexts, {&mb[0], &mb[1]});
  } else {
    Context ctx = context;
    for (MicroBatch& one : mb) {
      model->RunForward(ctx, one, acc);
      model->RunBackward(ctx, one);
    }
  }
  CHECK(device.idle());
  for (const Arena* arena : {&saved0.arena, &saved1.arena, &work0.arena, &work1.arena})
    CHECK(arena->top() == 0);
  Outcome out;
  for (const auto& p : model->registry().parameters()) {
    const std::vector<double> g = Values(p->grad);
    out.gradients.insert(out.gradients.end(), g.begin(), g.end());
  }
  device.CopyToHost(&out.loss, acc.loss_sum.data(), sizeof(out.loss));
  out.deferred = device.deferred();

  write(acc.loss_sum, std::vector<double>{0});
  Context ctx = context;
  for (MicroBatch& one : mb) {
    one.training = false;
    model->RunForward(ctx, one, acc);
  }
  CHECK((device.idle() && saved0.arena.top() == 0 && work0.arena.top() == 0));
  device.CopyToHost(&out.evaluated, acc.loss_sum.data(), sizeof(out.evaluated));
  return out;
}

TEST_CASE("communication that is done as late as it may be changes no bit") {
  ModelConfig no_shared = TinyConfig();
  no_shared.n_shared_experts = 0;
  constexpr ComputeTypes kMxfp8Wire{
      DType::kF32, DType::kF32, {QuantFormat{QuantKind::kMxfp8}, true}};
  const std::vector<std::pair<const char*, ModelConfig>> configs = {
      {"shared expert", TinyConfig()},
      {"no shared expert", no_shared},
      {"qwen3_moe", TinyGqaConfig("qwen3_moe")}};
  const std::vector<std::pair<const char*, ComputeTypes>> recipes = {
      {"fp32", kFloat},
      {"mxfp8", kMxfp8},
      {"fp8_block, 8-bit rows", kFp8Wire},
      {"mxfp8, 8-bit rows", kMxfp8Wire}};
  const std::vector<std::pair<const char*, Implementations>> ways = {
      {"everything kept", {}},
      {"norms again", {.recompute = Recompute::kNorms}},
      {"8-bit inputs kept", {.saved_copies = true}}};
  for (const auto& [model, config] : configs) {
    for (const auto& [recipe, types] : recipes) {
      for (const auto& [kept, how] : ways) {
        INFO(model << ", " << recipe << ", " << kept);
        const Outcome plain = Run(config, types, how, Way::kOneStream);
        REQUIRE(std::isfinite(plain.loss));
        CHECK(plain.evaluated == plain.loss);
        CHECK(plain.deferred == 0);
        for (const Way way : {Way::kLate, Way::kLateInTurn}) {
          INFO((way == Way::kLate ? "one after the other" : "in turn"));
          const Outcome late = Run(config, types, how, way);
          // Of two MoE layers and two micro-batches: both dispatches and backward's combine; in
          // turn forward's too.
          CHECK(late.deferred == 2 * 2 * (way == Way::kLate ? 3 : 4));
          CHECK(late.loss == plain.loss);
          CHECK(late.evaluated == plain.loss);
          CHECK(SameBits(late.gradients, plain.gradients));
        }
      }
    }
  }
}

}  // namespace
}  // namespace yardmaster::testing
