// The GPU against the cpu device in what op declarations do not cover: the update (AdamW, norm, verdict,
// router bias), plans and loads in integers, fills and conversions.
#include <cmath>
#include <cstring>
#include <limits>

#include "src/ops/adamw.h"
#include "src/ops/elementwise.h"
#include "src/ops/embedding.h"
#include "src/ops/mtp_targets.h"
#include "src/ops/permute.h"
#include "src/ops/random_normal.h"
#include "src/ops/router.h"
#include "src/ops/split_bf16.h"
#include "src/ops/step_control.h"
#include "tests/cuda/gpu.h"

namespace yardmaster::testing {
namespace {

constexpr size_t kTensorBytes = size_t{64} << 20;

std::vector<double> Read(CpuFixture&, const Tensor& t) { return ValuesOf(t); }
std::vector<double> Read(Gpu& gpu, const Tensor& t) { return gpu.Values(t); }

template <class Fixture, class S>
Tensor MakeBytes(Fixture& f, const S& s) {
  const Tensor t = f.Make(DType::kU8, {static_cast<int64_t>(sizeof(S))}, {0});
  f.device().CopyFromHost(t.data(), &s, sizeof(s));
  return t;
}
template <class Fixture>
StepState StateOf(Fixture& f, const Tensor& t) {
  StepState s;
  f.device().CopyToHost(&s, t.data(), sizeof(s));
  return s;
}

// f(fixture) returns values; both devices must agree within `tolerance` (relative L2).
template <class F>
void CheckSame(double tolerance, F&& f) {
  CpuFixture cpu;
  Gpu gpu(kTensorBytes, kTensorBytes);
  const std::vector<std::vector<double>> expected = f(cpu), got = f(gpu);
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("result " << i);
    if (tolerance == 0) {
      CHECK(got[i] == expected[i]);
    } else {
      CHECK(RelativeL2(got[i], expected[i]) <= tolerance);
    }
  }
}

TEST_CASE("gpu random normal: the bits of the cpu device") {
  YM_NEEDS_GPU();
  for (const DType type : {DType::kF32, DType::kF64}) {
    CheckSame(0, [&](auto& f) {
      const ShardSpec spec{{40, 300, 301}, {{3, 5, 7}, {33, 290, 77}}};
      const Shape shape(spec.box.extent);
      const Tensor y = f.Make(type, shape, {0}), copy = f.Make(DType::kBF16, shape, {0});
      const Tensor row = f.Make(type, {100001}, {0});
      RandomNormal(f.stream(),
                   {.seed = 5, .number_stream = ~0ull, .scale = 0.006, .spec = spec, .y = y, .copy = copy});
      RandomNormal(f.stream(), {.seed = 6, .spec = ShardSpec::Replicated({100001}), .y = row});
      return std::vector<std::vector<double>>{Read(f, y), Read(f, copy), Read(f, row)};
    });
  }
}

TEST_CASE("gpu adamw: more tensors than a launch takes, odd addresses, every type of moments, BF16 weights") {
  YM_NEEDS_GPU();
  for (const DType type : {DType::kF32, DType::kF64}) {
    for (const DType moments : {DType::kBF16, type}) {
      INFO(DTypeName(type) << ", moments " << DTypeName(moments));
      // In BF16 a moment at a rounding boundary may go either way; it is one of few.
      CheckSame(moments == DType::kBF16 ? 1e-4
                : type == DType::kF32   ? 1e-6
                                        : 1e-14,
                [&](auto& f) {
                  const int64_t n = 100, big = 40001;
                  const Tensor p = f.Make(type, {n * 7 + big}, RandomValues("p", n * 7 + big)),
                               w = f.Make(DType::kBF16, p.shape(), {0});
                  const Tensor g = f.Make(type, p.shape(), RandomValues("g", p.elements()));
                  const Tensor m = f.Make(moments, p.shape(), RandomValues("m", p.elements()));
                  const Tensor v = f.Make(moments, p.shape(), RandomValues("v", p.elements(), 0, 1));
                  Fill(f.stream(), 0, w);
                  std::vector<AdamWTensor> tensors;
                  for (int64_t i = 0; i <= n; ++i) {
                    const int64_t begin = i * 7, end = i < n ? begin + 7 : p.elements();
                    const auto part = [&](const Tensor& t) { return t.Slice(begin, end); };
                    tensors.push_back({.master = part(p),
                                       .weight = i % 3 ? part(w) : Tensor(),
                                       .grad = part(g),
                                       .m = part(m),
                                       .v = part(v),
                                       .weight_decay = i % 2 ? 0.1 : 0});
                  }
                  StepState s;
                  s.step = 2, s.learning_rate = 0.01, s.clip_factor = 0.5;
                  AdamWMulti(f.stream(), tensors, {.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-4}, MakeBytes(f, s));
                  std::vector<std::vector<double>> out;
                  for (const Tensor& t : {p, m, v, w}) out.push_back(Read(f, t));
                  s.verdict = 1;  // and no change from here
                  AdamWMulti(f.stream(), tensors, {}, MakeBytes(f, s));
                  CHECK(Read(f, p) == out[0]);
                  CHECK(Read(f, m) == out[1]);
                  return out;
                });
    }
  }
}

TEST_CASE("gpu norm: partial sums of every shape, and the same bits wherever a chunk lies") {
  YM_NEEDS_GPU();
  for (const DType type : {DType::kF32, DType::kF64}) {
    for (const Shape& shape :
         {Shape{300, 7}, Shape{3, 130, 5}, Shape{33}, Shape{256, 2}, Shape{129, 1024}, Shape{2, 200, 64}}) {
      CheckSame(1e-13, [&](auto& f) {
        const Tensor x = f.Make(type, shape, RandomValues("x", shape.elements()));
        const Tensor partials = f.Make(DType::kF64, {NumNormChunks(shape)}, {0});
        SumSquares(f.stream(), x, partials);
        return std::vector<std::vector<double>>{Read(f, partials)};
      });
    }
  }
  Gpu gpu(kTensorBytes, kTensorBytes);
  const int64_t n = 128 * 96;
  const std::vector<double> values = RandomValues("x", n);
  const Tensor at = gpu.Make(DType::kF32, {n}, values), room = gpu.Make(DType::kF32, {n + 1});
  const Tensor one = gpu.Make(DType::kF64, {1}), two = gpu.Make(DType::kF64, {1});
  Copy(gpu.stream(), at, room.Slice(1, n + 1));
  SumSquares(gpu.stream(), at.Reshape({128, 96}), one);
  SumSquares(gpu.stream(), room.Slice(1, n + 1).Reshape({128, 96}), two);
  CHECK(gpu.Bytes(one) == gpu.Bytes(two));
}

TEST_CASE("gpu norm addends: more tensors than a launch takes, a last chunk with fewer") {
  YM_NEEDS_GPU();
  CheckSame(1e-13, [&](auto& f) {
    std::vector<NormAddends> parts;
    std::vector<std::vector<double>> out;
    for (int64_t i = 0; i < 70; ++i) {
      const int64_t n = 1 + 37 * i, per_chunk = 1 + i * 7 % 50, chunks = (n + per_chunk - 1) / per_chunk;
      parts.push_back({f.Make(DType::kF64, {n}, RandomValues("a", n)), per_chunk, f.Make(DType::kF64, {chunks})});
    }
    SumNormAddends(f.stream(), parts);
    for (const NormAddends& part : parts) out.push_back(Read(f, part.partials));
    return out;
  });
}

TEST_CASE("gpu verdict: judge and finish") {
  YM_NEEDS_GPU();
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  DeviceSchedule schedule;
  schedule.num_segments = 3;
  for (int i = 0; i < 3; ++i) schedule.kind[i] = 2 - i, schedule.from[i] = 3 - i, schedule.to[i] = 1 + i;
  schedule.until_tokens[0] = 1000, schedule.until_tokens[1] = 2000, schedule.until_tokens[2] = 3000;
  struct Case {
    std::vector<double> partials;
    double loss, clip;
    int32_t overflow;
    int64_t tokens;
  };
  std::vector<double> many(5000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<double>(i % 16) / 16;
  for (const Case& c : {Case{{9, 16}, 6, 2, 0, 333},
                        {many, 1, 10, 0, 1500},
                        {{0}, 1, 1, 0, 2500},
                        {{4}, 1, 0, 0, 5000},
                        {{1, nan}, 1, 1, 0, 0},
                        {{inf}, 1, 1, 0, 0},
                        {{1}, nan, 1, 0, 0},
                        {{1}, -inf, 1, 1, 0},
                        {{}, 1, 1, 1, 7}}) {
    CpuFixture cpu;
    Gpu gpu(kTensorBytes, kTensorBytes);
    const auto run = [&](auto& f) {
      StepState s;
      s.step = 3, s.tokens = c.tokens, s.skipped = 2, s.verdict = 2, s.overflow = c.overflow;
      const Tensor state = MakeBytes(f, s);
      JudgeStep(f.stream(),
                {.partials = f.Make(DType::kF64, {static_cast<int64_t>(c.partials.size())}, c.partials),
                 .loss_sum = f.Make(DType::kF64, {1}, {c.loss}),
                 .loss_scale = 0.5,
                 .clip_norm = c.clip,
                 .learning_rate = MakeBytes(f, schedule),
                 .bias_speed = MakeBytes(f, schedule),
                 .state = state});
      FinishStep(f.stream(), 1000, state);
      return StateOf(f, state);
    };
    const StepState want = run(cpu), got = run(gpu);
    CHECK(got.verdict == want.verdict);
    CHECK(got.overflow == want.overflow);
    CHECK((got.step == want.step && got.tokens == want.tokens && got.skipped == want.skipped));
    const auto same = [](double a, double b) {
      return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) < 1e-14 * std::fabs(b);
    };
    CHECK(same(got.grad_norm, want.grad_norm));
    CHECK(same(got.clip_factor, want.clip_factor));
    CHECK(same(got.learning_rate, want.learning_rate));
    CHECK(same(got.bias_speed, want.bias_speed));
    CHECK(same(got.loss, want.loss));
  }
}

TEST_CASE("gpu router bias: signs in integers, counts far beyond 2^32, nothing on a bad verdict") {
  YM_NEEDS_GPU();
  Gpu gpu(kTensorBytes, kTensorBytes);
  const double big = std::ldexp(1.0, 50);
  for (const DType type : {DType::kF32, DType::kF64}) {
    for (const int32_t verdict : {0, 1, 2}) {
      StepState s;
      s.verdict = verdict, s.bias_speed = 0.125;
      const Tensor counts = gpu.Make(DType::kI64, {4}, {big + 1, big - 1, big, big}),
                   bias = gpu.Make(type, {4}, {1, 2, 3, 4});
      const Tensor previous = gpu.Make(DType::kI64, {4}, {7, 7, 7, 7});
      RouterBiasUpdate(gpu.stream(),
                       {.counts = counts, .state = MakeBytes(gpu, s), .bias = bias, .previous = previous});
      CHECK(gpu.Values(previous) ==
            (verdict == 0 ? std::vector<double>{big + 1, big - 1, big, big} : std::vector<double>(4, 7)));
      CHECK(gpu.Values(bias) ==
            (verdict == 0 ? std::vector<double>{0.875, 2.125, 3, 4} : std::vector<double>{1, 2, 3, 4}));
      CHECK(gpu.Values(counts) == std::vector<double>{0, 0, 0, 0});
    }
  }
}

TEST_CASE("gpu fill and copy: every type, conversions round to nearest even, strided rows") {
  YM_NEEDS_GPU();
  Gpu gpu(kTensorBytes, kTensorBytes);
  for (const DType t :
       {DType::kU8, DType::kU16, DType::kI32, DType::kI64, DType::kBF16, DType::kF32, DType::kF64}) {
    for (const double value : {0.0, 3.0}) {
      const Tensor y = gpu.Make(t, {103});
      Fill(gpu.stream(), value, y.Slice(1, 102));
      const std::vector<double> got = gpu.Values(y);
      for (size_t i = 1; i < 102; ++i) CHECK(got[i] == value);
      const std::string bytes = gpu.Bytes(y);  // and nothing beside it
      const auto size = static_cast<size_t>(DTypeBytes(t));
      CHECK(bytes.substr(0, size) == std::string(size, '\xFF'));
      CHECK(bytes.substr(102 * size) == std::string(size, '\xFF'));
    }
  }
  std::vector<double> values = RandomValues("x", 24 * 40);
  values[0] = INFINITY, values[1] = 1 + 0x1p-8, values[2] = 1 + 3 * 0x1p-8, values[3] = -0.0;
  for (const int64_t cols : {int64_t{24}, int64_t{23}}) {
    for (const DType from : {DType::kF32, DType::kF64, DType::kBF16}) {
      for (const DType to : {DType::kF32, DType::kF64, DType::kBF16}) {
        CheckSame(0, [&](auto& f) {
          const Tensor x = f.Make(from, {24, 40}, values),
                       y = f.Make(to, {24, 32}, std::vector<double>(24 * 32, 7));
          Copy(f.stream(), x.Cols(0, cols), y.Cols(0, cols));
          return std::vector<std::vector<double>>{Read(f, y)};
        });
      }
    }
  }
  const Tensor y = gpu.Make(DType::kBF16, {1});
  Copy(gpu.stream(), gpu.Make(DType::kF32, {1}, {NAN}), y);
  CHECK(std::isnan(gpu.Values(y)[0]));
}

// Widths and row distances that allow four elements at a time, and such as do not.
TEST_CASE("gpu split: terms and sums of the cpu device, bit for bit") {
  YM_NEEDS_GPU();
  for (const int64_t cols : {int64_t{1}, int64_t{7}, int64_t{8}, int64_t{32}, int64_t{1532}}) {
    for (const int64_t apart : {int64_t{0}, int64_t{1}, int64_t{8}}) {
      INFO(cols << " columns, rows " << apart << " further apart");
      const int64_t rows = 37, ld = cols + apart;
      std::vector<double> values = RandomValues("x", static_cast<size_t>(rows * ld), -3, 3);
      values[0] = 0x1p-120, values[static_cast<size_t>(ld)] = -0x1.fffffep100;
      CheckSame(0, [&](auto& f) {
        const Tensor x = f.Make(DType::kF32, {rows, ld}, values).Cols(0, cols);
        const std::vector<double> nothing(static_cast<size_t>(rows * (3 * cols + apart)), 7);
        const Tensor wide = f.Make(DType::kBF16, {rows, 3 * cols + apart}, nothing);
        const Tensor last = f.Make(DType::kBF16, {rows, cols}, std::vector<double>(static_cast<size_t>(rows * cols), 7));
        SplitBf16(f.stream(), x,
                  {{wide.Cols(0, cols), 0}, {wide.Cols(cols, 2 * cols), 1}, {wide.Cols(2 * cols, 3 * cols), 0}, {last, 2}});
        const Tensor y = f.Make(DType::kF32, {rows, ld}, values);
        AddTerms(f.stream(), {x, x, x}, 0, y.Cols(0, cols));
        const Tensor z = f.Make(DType::kF32, {rows, ld}, values);
        AddTerms(f.stream(), {x, y.Cols(0, cols)}, 0.5, z.Cols(0, cols));
        return std::vector<std::vector<double>>{Read(f, wide), Read(f, last), Read(f, y), Read(f, z)};
      });
    }
  }
}

TEST_CASE("gpu permute plan: the cpu device's rows, with parts of the experts and too few rows") {
  YM_NEEDS_GPU();
  const int64_t T = 1500, K = 3, E = 40;
  std::vector<double> idx;
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t k = 0; k < K; ++k)
      idx.push_back(static_cast<double>((t * t * 7 + k * 13 + t) % 13 + k * 13));
  }
  struct Case {
    int64_t begin, L, R;
  };
  for (const Case& c :
       {Case{0, E, T * K}, {0, E, 1000}, {10, 17, T * K}, {10, 17, 300}, {39, 1, 100}, {50, 5, 10}}) {
    CheckSame(0, [&](auto& f) {
      const Tensor offsets = f.Make(DType::kI64, {c.L + 1}, {0}), slot = f.Make(DType::kI64, {T, K}, {0});
      const Tensor source = f.Make(DType::kI64, {c.R}, std::vector<double>(static_cast<size_t>(c.R), -5));
      const Tensor overflow = f.Make(DType::kI32, {1}, {0});
      PermutePlan(f.stream(),
                  {.idx = f.Make(DType::kI32, {T, K}, idx),
                   .expert_begin = c.begin,
                   .offsets = offsets,
                   .slot = slot,
                   .source = source},
                  overflow, f.work());
      return std::vector<std::vector<double>>{Read(f, offsets), Read(f, slot), Read(f, source),
                                              Read(f, overflow)};
    });
  }
}

TEST_CASE("gpu router: ties, forced experts, loads, NaN logits") {
  YM_NEEDS_GPU();
  const auto route = [](auto& f, const RouterSpec& spec, const std::vector<double>& logits,
                        const std::vector<double>& bias, const std::vector<double>& forced) {
    const int64_t E = spec.num_experts, K = spec.top_k, T = static_cast<int64_t>(logits.size()) / E;
    RouterArgs args{.logits = f.Make(DType::kF32, {T, E}, logits),
                    .scores = f.Make(DType::kF32, {T, E}, {0}),
                    .idx = f.Make(DType::kI32, {T, K}, {0}),
                    .w = f.Make(DType::kF32, {T, K}, {0}),
                    .counts = f.Make(DType::kI64, {E}, std::vector<double>(static_cast<size_t>(E), 100))};
    if (!bias.empty()) args.bias = f.Make(DType::kF32, {E}, bias);
    if (!forced.empty()) args.forced_idx = f.Make(DType::kI32, {T, K}, forced);
    RouterForward(f.stream(), spec, args);
    return std::vector<std::vector<double>>{Read(f, args.idx), Read(f, args.counts), Read(f, args.w)};
  };
  const auto check = [&](const RouterSpec& spec, const std::vector<double>& logits,
                         const std::vector<double>& bias = {}, const std::vector<double>& forced = {}) {
    CheckSame(0, [&](auto& f) {
      auto all = route(f, spec, logits, bias, forced);
      all.pop_back();
      return all;
    });
    CheckSame(1e-6, [&](auto& f) {
      return std::vector<std::vector<double>>{route(f, spec, logits, bias, forced).back()};
    });
  };
  const std::vector<double> equal(1000 * 64, 0.5);
  check({.num_experts = 64, .top_k = 6}, equal);
  check({.num_experts = 64, .top_k = 6, .num_groups = 8, .topk_groups = 3}, equal);
  check({.num_experts = 4, .top_k = 2}, {0, 1, 0, 1});
  check({.num_experts = 6, .top_k = 2, .num_groups = 3, .topk_groups = 1}, {0, 0, 1, 1, 1, 1});
  check({.num_experts = 4, .top_k = 2, .num_groups = 2, .topk_groups = 1}, {0, 0, 0, 0}, {-2, -2, -3, -3});
  check({.num_experts = 4, .top_k = 2, .scaling = 3}, {0, 0, 0, 0, 5, 0, 0, 0}, {0, 0, 1, 1});
  check({.num_experts = 4, .top_k = 2}, {1, 2, 3, 4}, {}, {0, 2});
  check({.num_experts = 256, .top_k = 8, .num_groups = 8, .topk_groups = 4},
        RandomValues("l", 256 * 3000, -3, 3));
  check({.num_experts = 900, .top_k = 40}, RandomValues("m", 900 * 50, -3, 3));
  check({.num_experts = 60,
         .top_k = 6,
         .num_groups = 6,
         .topk_groups = 3,
         .score = RouterScore::kSoftmax,
         .group_score = GroupScore::kMax,
         .normalise = false,
         .scaling = 16},
        RandomValues("s", 60 * 500, -3, 3));
  for (const ForcedRouting force : {ForcedRouting::kBalanced, ForcedRouting::kSkewed}) {
    check({.num_experts = 48, .top_k = 5, .score = RouterScore::kSoftmax, .force = force, .force_skew = 4},
          RandomValues("f", 48 * 1000, -3, 3));
  }
  Gpu gpu(kTensorBytes, kTensorBytes);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& logits : {std::vector<double>(8, nan), {nan, 1, 2, nan, 3, nan, nan, 0}}) {
    const auto r =
        route(gpu, {.num_experts = 8, .top_k = 3, .num_groups = 4, .topk_groups = 2}, logits, {}, {})[0];
    CHECK((0 <= r[0] && r[0] < r[1] && r[1] < r[2] && r[2] < 8));
  }
  const auto bad = route(gpu, {.num_experts = 4, .top_k = 2}, {1, 2, 3, 4}, {}, {2, 0});  // not ascending
  CHECK(std::isnan(bad[2][1]));
}

TEST_CASE("gpu mtp targets and their loss scale: the cpu device's, with and without documents") {
  YM_NEEDS_GPU();
  const int64_t B = 3, S = 300;
  const std::vector<double> tokens = [&] {
    std::vector<double> t;
    for (int64_t i = 0; i < B * S; ++i) t.push_back(static_cast<double>(i * i % 97));
    return t;
  }();
  std::vector<double> targets = tokens, start;
  for (size_t i = 0; i < targets.size(); ++i) {
    targets[i] = i % 11 == 5 ? -1 : targets[i] + 1;
    start.push_back(static_cast<double>(i % 300 / 17 * 17));
  }
  DeviceSchedule schedule;
  schedule.num_segments = 1, schedule.kind[0] = 1, schedule.until_tokens[0] = 1000, schedule.from[0] = 0.5;
  for (const bool documents : {false, true}) {
    for (const int64_t depth : {int64_t{1}, int64_t{2}, int64_t{400}}) {
      CheckSame(0, [&](auto& f) {
        const Shape shape{B, S};
        MtpTargetsArgs args{.tokens = f.Make(DType::kI32, shape, tokens),
                            .targets = f.Make(DType::kI32, shape, targets),
                            .depth = depth,
                            .inputs = f.Make(DType::kI32, shape, {0}),
                            .mtp_targets = f.Make(DType::kI32, shape, {0}),
                            .valid = f.Make(DType::kI64, {1}, {0})};
        if (documents) args.document_start = f.Make(DType::kI32, shape, start);
        MtpTargets(f.stream(), args);
        StepState s;
        s.tokens = 250;
        const Tensor scale = f.Make(DType::kF64, {1}, {-1});
        MtpLossScale(f.stream(), {args.valid, MakeBytes(f, schedule), MakeBytes(f, s), scale});
        return std::vector<std::vector<double>>{Read(f, args.inputs), Read(f, args.mtp_targets),
                                                Read(f, args.valid), Read(f, scale)};
      });
    }
  }
}

TEST_CASE("gpu embedding: the gradient of a large table, one id very often, added to what is there") {
  YM_NEEDS_GPU();
  const int64_t T = 3000, V = 3001, D = 48;
  std::vector<double> ids;
  for (int64_t t = 0; t < T; ++t) ids.push_back(static_cast<double>(t % 3 == 0 ? 2999 : t * t % V));
  for (const double beta : {0.0, 1.0, 0.5}) {
    CheckSame(0, [&](auto& f) {  // in token order: the same bits
      const Tensor table = f.Make(DType::kF32, {V, D}, RandomValues("table", V * D));
      EmbeddingBackward(f.stream(), f.Make(DType::kI32, {T}, ids),
                        f.Make(DType::kF32, {T, D}, RandomValues("dx", T * D)), beta, table, f.work());
      return std::vector<std::vector<double>>{Read(f, table)};
    });
  }
}

TEST_CASE("gpu embedding: the squares that the gradient sums are those of what it wrote") {
  YM_NEEDS_GPU();
  const int64_t T = 3000, V = 3001;
  std::vector<double> ids;
  for (int64_t t = 0; t < T; ++t) ids.push_back(static_cast<double>(t % 3 == 0 ? 2999 : t * t % V));
  Gpu gpu(size_t{2} << 30, kTensorBytes);
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const int64_t D : {int64_t{48}, int64_t{1000}, int64_t{7168}, int64_t{6}}) {
      INFO(DTypeName(type) << " D " << D);
      const Tensor at = gpu.Make(DType::kI32, {T}, ids), dx = gpu.Make(type, {T, D}, RandomValues("dx", T * D));
      const Tensor table = gpu.Make(DType::kF32, {V, D}), plain = gpu.Make(DType::kF32, {V, D});
      const int64_t n = EmbeddingNormAddends(gpu.stream(), type, table);
      CHECK((n == 0) == (D == 6));
      if (n == 0) continue;
      const Tensor squares = gpu.Make(DType::kF64, {V * n});
      EmbeddingBackward(gpu.stream(), at, dx, 0, table, gpu.work(), squares);
      EmbeddingBackward(gpu.stream(), at, dx, 0, plain, gpu.work());
      CHECK(gpu.Bytes(table) == gpu.Bytes(plain));
      const int64_t chunks = NumNormChunks(table.shape());
      const Tensor partials = gpu.Make(DType::kF64, {chunks}), read = gpu.Make(DType::kF64, {chunks});
      SumNormAddends(gpu.stream(), {{squares, 128 * n, partials}});
      SumSquares(gpu.stream(), table, read);
      CHECK(RelativeL2(gpu.Values(partials), gpu.Values(read)) < 1e-14);
    }
  }
}

}  // namespace
}  // namespace yardmaster::testing
