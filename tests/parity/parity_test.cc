// The whole model against Hugging Face's own numbers (tests/golden/README.md).
#include "src/train/parity.h"

#include <cstring>
#include <map>

#include "src/base/error.h"
#include "src/train/parity_report.h"
#include "tests/base/temp_dir.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

using testing::TempDir;

const std::string kGolden = "tests/golden/";

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A directory with the reference's files, one of its configurations as config.json.
void CopyCase(const std::string& from, const std::string& config, const std::string& to) {
  for (const std::string& name : ListDirectory(from)) {
    const std::string source = name == "config.json" ? config : name;
    WriteFileAtomically(JoinPath(to, name), ReadFile(JoinPath(from, source)));
  }
}

int Run(const std::string& dir, const std::string& out, const std::string& precision = "fp32",
        const std::string& route_from = "") {
  return RunParity(
      {.hf_dir = dir, .out = out, .precision = precision, .route_from = route_from, .threads = 1});
}

// The entries of a file, to be changed and written again.
struct Entries {
  explicit Entries(const std::string& path) {
    const SafetensorsFile file(path);
    for (const std::string& name : file.names()) {
      const Tensor t = file.Get(name);
      HostTensor copy(t.dtype(), t.shape());
      std::memcpy(copy.view().data(), t.data(), static_cast<size_t>(t.bytes()));
      tensors.emplace(name, std::move(copy));
    }
  }
  void Write(const std::string& path) const {
    std::vector<NamedTensor> list;
    for (const auto& [name, t] : tensors) list.push_back({name, t.view()});
    WriteSafetensors(path, list, {}, false);
  }
  std::map<std::string, HostTensor> tensors;
};

TEST_CASE("parity with the DeepSeek-V3 case, both styles of configuration") {
  for (const char* config : {"config.json", "config.v5.json"}) {
    INFO(config);
    const TempDir dir;
    CopyCase(kGolden + "deepseek_v3", config, dir.path());
    const std::string out = dir / "ours.safetensors";
    CHECK(Run(dir.path(), out) == 0);
    const SafetensorsFile ours(out), expected(dir / "expected.safetensors"),
        weights(dir / "model.safetensors");
    CHECK(ours.Get("logits").shape() == expected.Get("logits").shape());
    CHECK(ours.Get("loss").shape() == Shape{1});
    CHECK(ours.Get("routing.2").dtype() == DType::kI32);
    CHECK(ours.Get("routing_weight.2").shape() == Shape{48, 4});
    CHECK(ours.Get("hidden.0").shape() == Shape{2, 24, 64});
    CHECK(ours.Get("adamw.grad_norm").shape() == Shape{8});
    for (const std::string& name : weights.names()) CHECK(ours.Has("grad." + name));
  }
}

TEST_CASE("parity with the other families, both styles of configuration") {
  for (const char* family : {"deepseek_v2_lite", "qwen3_moe", "mixtral"}) {
    for (const char* config : {"config.json", "config.v5.json"}) {
      INFO(family << " " << config);
      const TempDir dir;
      CopyCase(kGolden + family, config, dir.path());
      const std::string out = dir / "ours.safetensors";
      CHECK(Run(dir.path(), out) == 0);
      const SafetensorsFile ours(out), weights(dir / "model.safetensors");
      for (const std::string& name : weights.names()) CHECK(ours.Has("grad." + name));
    }
  }
}

TEST_CASE("parity with multi-token prediction, both inputs") {
  const std::string dir = kGolden + "deepseek_v3_mtp";
  for (const char* input : {"post_norm", "pre_norm"}) {
    INFO(input);
    const TempDir out;
    const auto run = [&](const std::string& path, const std::string& mtp_input,
                         const std::string& route_from = "") {
      return RunParity({.hf_dir = path,
                        .out = out / "ours",
                        .route_from = route_from,
                        .mtp_input = mtp_input,
                        .threads = 1});
    };
    CHECK(run(dir, input, dir + "/expected.safetensors") == 0);  // each input has a routing of its own
    CHECK(run(dir, input) == 0);
    const SafetensorsFile ours(out / "ours");
    CHECK(ours.Get(std::string("mtp.") + input + ".logits").shape() == Shape{2, 24, 128});
    CHECK(ours.Has(std::string("mtp.") + input + ".loss"));
    CHECK(ours.Has("routing.2"));
    CHECK(ours.Has("routing.2.pre_norm") == (std::string(input) == "pre_norm"));
    CHECK(ours.Has("grad.model.layers.2.eh_proj.weight"));
    // The references differ: one under the other's name must fail.
    CopyCase(dir, "config.json", out.path());
    Entries expected(out / "expected.safetensors");
    std::swap(expected.tensors.at("mtp.post_norm.logits"), expected.tensors.at("mtp.pre_norm.logits"));
    expected.Write(out / "expected.safetensors");
    CHECK(run(out.path(), input) == 1);
  }
}

TEST_CASE("parity with Hugging Face's balance loss") {
  const TempDir out;
  CHECK(Run(kGolden + "mixtral_aux", out / "ours") == 0);
  const SafetensorsFile ours(out / "ours");
  CHECK(ours.Get("aux.per_layer").shape() == Shape{2});
  CHECK(ours.Has("total"));
  CopyCase(kGolden + "mixtral_aux", "config.json", out.path());
  Entries expected(out / "expected.safetensors");
  expected.tensors.at("aux.per_layer").as<float>()[1] += 1e-3f;
  expected.Write(out / "expected.safetensors");
  CHECK(Run(out.path(), out / "ours") == 1);
}

TEST_CASE("parity in double, where only the reference rounds") {
  const TempDir dir;
  CHECK(Run(kGolden + "deepseek_v3", dir / "ours.safetensors", "fp64") == 0);
  CHECK(SafetensorsFile(dir / "ours.safetensors").Get("logits").dtype() == DType::kF64);
}

TEST_CASE("parity of odd shapes") {
  const std::vector<std::string> shapes = ListDirectory(kGolden + "shapes");
  CHECK(shapes.size() >= 17);
  for (const std::string& shape : shapes) {
    for (const char* config : {"config.json", "config.v5.json"}) {
      INFO(shape << " " << config);
      const TempDir dir;
      CopyCase(kGolden + "shapes/" + shape, config, dir.path());
      CHECK(Run(dir.path(), dir / "ours.safetensors") == 0);
      const SafetensorsFile ours(dir / "ours.safetensors"), weights(dir / "model.safetensors");
      for (const std::string& name : weights.names()) CHECK(ours.Has("grad." + name));
    }
  }
}

TEST_CASE("the groups of DeepSeek-V2 matter: without them its reference is not met") {
  const TempDir dir;
  const std::string from = kGolden + "shapes/v2_grouped";
  CopyCase(from, "config.json", dir.path());
  std::string config = ReadFile(dir / "config.json");
  const std::string groups = "\"topk_group\": 2";
  REQUIRE(Contains(config, groups));
  config.replace(config.find(groups), groups.size(), "\"topk_group\": 4");
  WriteFileAtomically(dir / "config.json", config);
  CHECK(Run(dir.path(), dir / "ours.safetensors") == 1);
}

TEST_CASE("a wrong weight, a missing entry and another routing are noticed") {
  const std::string shape = kGolden + "shapes/one_group_direct_q";
  const TempDir dir;
  CopyCase(shape, "config.json", dir.path());
  const std::string out = dir / "ours.safetensors";

  Entries weights(dir / "model.safetensors");
  weights.tensors.at("model.layers.1.mlp.experts.3.up_proj.weight").as<float>()[5] += 0.01f;
  weights.Write(dir / "model.safetensors");
  CHECK(Run(dir.path(), out) == 1);

  CopyCase(shape, "config.json", dir.path());
  Entries expected(dir / "expected.safetensors");
  expected.tensors.emplace("hidden.7", HostTensor(DType::kF32, {1}));
  expected.Write(dir / "expected.safetensors");
  CHECK(Run(dir.path(), out) == 1);

  CopyCase(shape, "config.json", dir.path());
  RemoveTree(dir / "grads.safetensors");
  CHECK(Run(dir.path(), out) == 0);                                        // skipped, visibly
  CHECK(Run(dir.path(), out, "fp32", dir / "expected.safetensors") == 0);  // routed as the reference
  Entries routing(out);
  for (int64_t t = 0; t < 34; ++t) {
    int32_t* idx = routing.tensors.at("routing.1").as<int32_t>() + 3 * t;
    idx[0] = 0, idx[1] = 1, idx[2] = 2;
  }
  routing.Write(dir / "routing.safetensors");
  CHECK(Run(dir.path(), out, "fp32", dir / "routing.safetensors") == 1);
  CHECK(SafetensorsFile(out).Get("routing.1").as<int32_t>()[4] == 1);
}

TEST_CASE("what cannot be run says so") {
  const TempDir dir;
  const std::string shape = kGolden + "shapes/every_expert", out = dir / "ours.safetensors";
  const auto error = [&](const ParityOptions& options) -> std::string {
    try {
      RunParity(options);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(Contains(error({.hf_dir = shape, .out = out, .device = "cuda"}), "cuda"));
  CHECK(Contains(error({.hf_dir = shape, .out = out, .precision = "bf16"}), "bf16"));
  CHECK(Contains(error({.hf_dir = dir / "nowhere", .out = out}), "nowhere"));
  CHECK(Contains(error({.hf_dir = shape, .out = out, .steps = -1}), "--steps"));
  CopyCase(shape, "config.json", dir.path());
  Entries expected(dir / "expected.safetensors");
  expected.tensors.at("tokens").as<int32_t>()[3] = 61;  // the vocabulary has 61
  expected.Write(dir / "expected.safetensors");
  CHECK(Contains(error({.hf_dir = dir.path(), .out = out}), "tokens holds 61 at 3"));
  RemoveTree(dir / "config.json");
  CHECK(Contains(error({.hf_dir = dir.path(), .out = out}), "config.json"));
}

TEST_CASE("NaN fails wherever it is, ours or the reference's; hidden states and weights have tolerances") {
  const std::vector<std::string> names = {"loss",           "logits",     "hidden.0",  "routing_weight.0",
                                          "mtp.post_norm.logits", "adamw.loss", "adamw.grad_norm", "total"};
  const TempDir dir;
  // Two elements of 2 for every name; `changed` has its last one replaced, on one side.
  const auto failed = [&](const std::string& changed, double value, bool reference,
                          const ParityTolerances& tolerances) {
    std::vector<HostTensor> memory;
    memory.reserve(2 * names.size() + 2);
    const auto tensor = [&](const std::string& name, bool change) {
      memory.emplace_back(DType::kF64, Shape{2});
      double* x = memory.back().as<double>();
      x[0] = x[1] = 2;
      if (change && name == changed) x[1] = value;
      return memory.back().view();
    };
    std::vector<NamedTensor> ours, theirs;
    for (const std::string& name : names) {
      ours.push_back({name, tensor(name, !reference)});
      theirs.push_back({name, tensor(name, reference)});
    }
    ours.push_back({"grad.a", tensor("a", !reference)});
    WriteSafetensors(dir / "expected", theirs, {}, false);
    WriteSafetensors(dir / "grads", {{"a", tensor("a", reference)}}, {}, false);
    const SafetensorsFile expected(dir / "expected"), grads(dir / "grads");
    std::vector<std::string> out;
    for (const ParityRow& row : CompareParity(ours, expected, &grads, tolerances)) {
      if (row.failed && row.what != "all gradients") out.push_back(row.what);
    }
    return out;
  };
  using Names = std::vector<std::string>;
  CHECK(failed("", 0, false, {}) == Names{});
  std::vector<std::string> all = names;
  all.push_back("a");
  for (const std::string& name : all) {
    for (const bool reference : {false, true}) {
      for (const ParityTolerances& tolerances : {ParityTolerances(), ParityTolerances::Bf16()}) {
        INFO(name << (reference ? " of the reference" : " of ours"));
        CHECK(failed(name, NAN, reference, tolerances) == Names{name == "a" ? "grad.a" : name});
      }
    }
  }
  for (const char* name : {"hidden.0", "routing_weight.0"}) {
    CHECK(failed(name, 2 + 1e-6, false, {}) == Names{});
    CHECK(failed(name, 2 + 1e-4, false, {}) == Names{name});
    CHECK(failed(name, 2 + 1e-4, false, ParityTolerances::OtherDevice()) == Names{});
    CHECK(failed(name, 2.1, false, ParityTolerances::Bf16()) == Names{});
  }
}

TEST_CASE("the comparison: zero gradients, NaN, order, missing entries") {
  const TempDir dir;
  HostTensor one(DType::kF32, {1}), grads(DType::kF32, {2}), zero(DType::kF32, {2}), nan(DType::kF32, {2});
  one.as<float>()[0] = 2;
  grads.as<float>()[0] = 1;
  nan.as<float>()[1] = NAN;
  WriteSafetensors(dir / "expected",
                   {{"loss", one.view()},
                    {"logits", one.view()},
                    {"adamw.loss", one.view()},
                    {"adamw.grad_norm", one.view()},
                    {"tokens", one.view()}},
                   {}, false);
  WriteSafetensors(dir / "grads", {{"a", grads.view()}, {"z", zero.view()}}, {}, false);
  const SafetensorsFile expected(dir / "expected"), reference(dir / "grads");
  const auto failed = [&](const Tensor& loss, const Tensor& a, const Tensor& z) {
    std::vector<std::string> names;
    const std::vector<NamedTensor> ours = {
        {"loss", loss}, {"logits", one.view()}, {"adamw.loss", one.view()}, {"adamw.grad_norm", one.view()},
        {"grad.a", a},  {"grad.z", z}};
    for (const ParityRow& row : CompareParity(ours, expected, &reference, {})) {
      if (row.failed) names.push_back(row.what);
    }
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(failed(one.view(), grads.view(), zero.view()) == Names{});
  CHECK(failed(one.view(), nan.view(), zero.view()) == Names{"all gradients", "grad.a"});
  CHECK(failed(one.view(), grads.view(), nan.view()) == Names{"all gradients", "grad.z"});
  HostTensor noise(DType::kF32, {2}), off(DType::kF32, {1});
  noise.as<float>()[0] = 1e-12f;  // rounding where the reference is zero
  CHECK(failed(one.view(), grads.view(), noise.view()) == Names{});
  noise.as<float>()[0] = 1e-6f;
  CHECK(failed(one.view(), grads.view(), noise.view()) == Names{"grad.z"});
  off.as<float>()[0] = 2.0001f;
  CHECK(failed(off.view(), grads.view(), zero.view()) == Names{"loss"});
  off.as<float>()[0] = NAN;
  CHECK(failed(off.view(), grads.view(), zero.view()) == Names{"loss"});

  const std::vector<ParityRow> rows = CompareParity({{"loss", one.view()}}, expected, nullptr, {});
  const std::string table = ParityTable(rows);
  CHECK(Contains(table, "SKIPPED"));
  CHECK(Contains(table, "not computed here"));
  CHECK(Contains(table, "parity: FAIL"));
}

TEST_CASE("parity refuses impossible steps and to write over its reference") {
  const TempDir dir;
  CopyCase(kGolden + "deepseek_v3", "config.json", dir.path());
  for (const char* name : {"model.safetensors", "expected.safetensors", "grads.safetensors", "config.json"}) {
    CHECK_THROWS_AS(Run(dir.path(), dir / name), Error);
  }
  ParityOptions options;
  options.hf_dir = dir.path();
  options.out = dir / "ours.safetensors";
  for (const int64_t steps : {int64_t{-1}, int64_t{10001}, int64_t{1} << 61}) {
    options.steps = steps;
    CHECK_THROWS_AS(RunParity(options), Error);
  }
}

}  // namespace
}  // namespace yardmaster
