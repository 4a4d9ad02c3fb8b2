// What ends a step: the gradient norm and the verdict, the update, the router's bias; and the targets of
// multi-token prediction.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/base/strings.h"
#include "src/ops/adamw.h"
#include "src/ops/elementwise.h"
#include "src/ops/mtp_targets.h"
#include "src/ops/step_control.h"
#include "tools/bench_ops/ops/op_cases.h"
#include "tools/bench_ops/ops/random_inputs.h"

namespace yardmaster {
namespace {

template <class T>
std::vector<double> BytesOf(const T& object) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &object, sizeof(T));
  return {bytes, bytes + sizeof(T)};
}

std::vector<double> StateValues(const void* bytes) {
  StepState s;
  std::memcpy(&s, bytes, sizeof(s));
  return {static_cast<double>(s.step),
          static_cast<double>(s.tokens),
          static_cast<double>(s.skipped),
          static_cast<double>(s.verdict),
          static_cast<double>(s.overflow),
          s.grad_norm,
          s.clip_factor,
          s.learning_rate,
          s.bias_speed,
          s.loss};
}

BenchBuffer State() {
  StepState s;
  s.step = 9;
  s.tokens = 12345;
  s.clip_factor = 0.7;
  s.learning_rate = 0.5;
  s.bias_speed = 0.25;
  return {.name = "state",
          .shape = {static_cast<int64_t>(sizeof(s))},
          .type = BenchType::kU8,
          .values = BytesOf(s),
          .decode = StateValues};
}

BenchBuffer Schedule(const char* name, double value) {
  DeviceSchedule s;
  s.num_segments = 1;
  s.until_tokens[0] = std::numeric_limits<int64_t>::max();
  s.from[0] = s.to[0] = value;
  return {
      .name = name, .shape = {static_cast<int64_t>(sizeof(s))}, .type = BenchType::kU8, .values = BytesOf(s)};
}

}  // namespace

BenchOp BenchMtpTargets(const BenchSizes& s) {
  const Shape samples{s.B, s.S};
  std::vector<double> tokens, targets, starts;
  for (int64_t b = 0; b < s.B; ++b) {
    for (int64_t i = 0; i < s.S; ++i) {
      tokens.push_back(static_cast<double>((7 * i + b) % s.vocab));
      targets.push_back(i % 11 == 5 ? -1.0 : static_cast<double>((7 * (i + 1) + b) % s.vocab));
      starts.push_back(static_cast<double>(i - i % 19));
    }
  }
  BenchOp op;
  op.sizes = StrCat(s.B, " x ", s.S, ", depth 1");
  op.buffers = {
      {.name = "tokens", .shape = samples, .type = BenchType::kI32, .values = tokens},
      {.name = "targets", .shape = samples, .type = BenchType::kI32, .values = targets},
      {.name = "document_start", .shape = samples, .type = BenchType::kI32, .values = starts},
      {.name = "inputs", .shape = samples, .type = BenchType::kI32},
      {.name = "mtp_targets", .shape = samples, .type = BenchType::kI32},
      {.name = "valid", .shape = {1}, .type = BenchType::kI64, .values = {0}},
  };
  op.calls = {{.name = "targets",
               .run =
                   [](const BenchRun& r) {
                     MtpTargets(r.stream(), {.tokens = r["tokens"],
                                             .targets = r["targets"],
                                             .document_start = r["document_start"],
                                             .inputs = r["inputs"],
                                             .mtp_targets = r["mtp_targets"],
                                             .valid = r["valid"]});
                   },
               .outputs = {"inputs", "mtp_targets", "valid"},
               .moves = {{"tokens"}, {"targets"}, {"document_start"}, {"inputs"}, {"mtp_targets"}}}};
  return op;
}

// Squares of the gradients of the experts' gate and up projections, and the verdict.
BenchOp BenchNorm(const BenchSizes& s) {
  const Shape shape{s.experts, 2 * s.ffn, s.hidden};
  BenchOp op;
  op.sizes = StrCat(s.experts, " x ", 2 * s.ffn, " x ", s.hidden);
  op.buffers = {
      {.name = "grad", .shape = shape, .type = BenchType::kAccum, .scale = 1},
      {.name = "partials", .shape = {NumNormChunks(shape)}, .type = BenchType::kF64},
      {.name = "partials of many", .shape = {NumNormChunks(shape)}, .type = BenchType::kF64},
      {.name = "partials of tiles", .shape = {NumNormChunks(shape)}, .type = BenchType::kF64},
      {.name = "addends", .shape = {NumNormChunks(shape) * (1 + s.hidden / 32)}, .type = BenchType::kF64},
      {.name = "loss_sum", .shape = {1}, .type = BenchType::kF64, .values = {123}},
      Schedule("learning_rate", 1e-3),
      Schedule("bias_speed", 1e-4),
      State(),
  };
  op.calls = {
      {.name = "squares",
       .run = [](const BenchRun& r) { SumSquares(r.stream(), r["grad"], r["partials"]); },
       .outputs = {"partials"},
       .moves = {{"grad"}, {"partials"}},
       .tolerance_bf16 = 1e-5},
      {.name = "squares of many",
       .run =
           [](const BenchRun& r) {
             std::vector<SumSquaresPart> parts;
             const Tensor grad = r["grad"], partials = r["partials of many"];
             const int64_t chunks = partials.dim(0) / grad.dim(0);
             for (int64_t e = 0; e < grad.dim(0); ++e)
               parts.push_back({grad.At(e), partials.Slice(e * chunks, (e + 1) * chunks)});
             SumSquaresMulti(r.stream(), parts);
           },
       .outputs = {"partials of many"},
       .moves = {{"grad"}, {"partials of many"}},
       .tolerance_bf16 = 1e-5},
      // As the experts' weight gradients sum them (ops/grouped_gemm.h): of a gradient in several parts. Sizes that make
      // no whole tiles, and the reference, have no such order.
      {.name = "squares of tiles",
       .run =
           [](const BenchRun& r) {
             const Tensor grad = r["grad"], partials = r["partials of tiles"];
             const int64_t K = grad.dim(2);
             const bool tiles = r.stream().target() == DeviceKind::kCuda && grad.dtype() == DType::kF32 &&
                                grad.dim(1) % 128 == 0 && K % 256 == 0;
             const int64_t per_chunk = tiles ? K / 32 : 1;
             const Tensor addends = r["addends"].Slice(0, partials.elements() * per_chunk);
             tiles ? SumTileSquares(r.stream(), grad, per_chunk, addends) : SumSquares(r.stream(), grad, addends);
             SumNormAddends(r.stream(), {{addends, per_chunk, partials}});
           },
       .outputs = {"partials of tiles"},
       .moves = {{"grad"}, {"partials of tiles"}},
       .tolerance_bf16 = 1e-5},
      {.name = "verdict",
       .run =
           [](const BenchRun& r) {
             JudgeStep(r.stream(), {.partials = r["partials"],
                                    .loss_sum = r["loss_sum"],
                                    .loss_scale = 0.01,
                                    .clip_norm = 1,
                                    .learning_rate = r["learning_rate"],
                                    .bias_speed = r["bias_speed"],
                                    .state = r["state"]});
           },
       .outputs = {"state"},
       .moves = {{"partials"}, {"state"}},
       .tolerance_bf16 = 1e-5},
  };
  return op;
}

// F32 masters and main gradients, moments of the work type.
BenchOp BenchAdamW(const BenchSizes& s) {
  const Shape matrix{2 * s.ffn, s.hidden}, vector{s.hidden};
  const int64_t matrices = (s.experts + 3) / 4;
  BenchOp op;
  op.sizes = StrCat(matrices, " x ", 2 * s.ffn, " x ", s.hidden, " and ", matrices, " x ", s.hidden);
  std::vector<std::string> outputs;
  std::vector<BenchMove> moves = {{"state"}};
  for (int64_t i = 0; i < 2 * matrices; ++i) {
    const Shape& shape = i % 2 == 0 ? matrix : vector;
    const auto name = [i](const char* what) { return StrCat(what, i); };
    std::vector<double> positive;  // repeated where it is shorter than the tensor
    for (const double x :
         UniformValues(s, name("v").c_str(), std::min<int64_t>(shape.elements(), 1'000'003), 0.01, 1))
      positive.push_back(x);
    op.buffers.push_back({.name = name("master"), .shape = shape, .type = BenchType::kAccum, .scale = 0.02});
    op.buffers.push_back({.name = name("weight"), .shape = shape});
    op.buffers.push_back({.name = name("grad"), .shape = shape, .type = BenchType::kAccum, .scale = 1});
    op.buffers.push_back({.name = name("m"), .shape = shape, .scale = 1});
    op.buffers.push_back({.name = name("v"), .shape = shape, .values = positive});
    for (const char* what : {"master", "m", "v"}) {
      outputs.push_back(name(what));
      moves.push_back({name(what)});
      moves.push_back({name(what)});
    }
    outputs.push_back(name("weight"));
    moves.push_back({name("weight")});
    moves.push_back({name("grad")});
  }
  op.buffers.push_back(State());
  op.calls = {{.name = "update",
               .run =
                   [matrices](const BenchRun& r) {
                     std::vector<AdamWTensor> tensors;
                     const bool rounds = r["weight0"].dtype() != r["master0"].dtype();
                     for (int64_t i = 0; i < 2 * matrices; ++i) {
                       const auto at = [&](const char* what) { return r[StrCat(what, i)]; };
                       tensors.push_back({.master = at("master"),
                                          .weight = rounds ? at("weight") : Tensor(),
                                          .grad = at("grad"),
                                          .m = at("m"),
                                          .v = at("v"),
                                          .weight_decay = i % 2 == 0 ? 0.1 : 0.0});
                     }
                     AdamWMulti(r.stream(), tensors, {}, r["state"]);
                     for (int64_t i = 0; !rounds && i < 2 * matrices; ++i)
                       Copy(r.stream(), r[StrCat("master", i)], r[StrCat("weight", i)]);
                   },
               .outputs = outputs,
               .moves = moves}};
  return op;
}

BenchOp BenchRouterBias(const BenchSizes& s) {
  std::vector<double> counts;
  for (const double x : UniformValues(s, "counts", s.experts, 0, 1000)) counts.push_back(std::floor(x));
  BenchOp op;
  op.sizes = StrCat(s.experts, " experts");
  op.buffers = {
      {.name = "counts", .shape = {s.experts}, .type = BenchType::kI64, .values = counts},
      {.name = "bias", .shape = {s.experts}, .type = BenchType::kAccum, .scale = 0.1},
      {.name = "previous", .shape = {s.experts}, .type = BenchType::kI64},
      State(),
  };
  op.calls = {
      {.name = "update",
       .run =
           [](const BenchRun& r) {
             RouterBiasUpdate(
                 r.stream(),
                 {.counts = r["counts"], .state = r["state"], .bias = r["bias"], .previous = r["previous"]});
           },
       .outputs = {"counts", "bias", "previous"},
       .moves = {{"counts"}, {"counts"}, {"bias"}, {"bias"}, {"previous"}},
       .tolerance_bf16 = 1e-5}};
  return op;
}

}  // namespace yardmaster
