// Weights of Hugging Face's directories in and out.
#include <algorithm>
#include <map>
#include <set>

#include "src/hf/hf_mapping.h"
#include "src/hf/hf_model_config.h"
#include "src/hf/hf_transfer.h"
#include "tests/base/temp_dir.h"
#include "tests/catch.h"
#include "tests/model/tiny_model.h"

namespace yardmaster {
namespace {

using namespace testing;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Source {
  Source() : device(OneThread()), model(TinyConfig(), {.types = kFloat, .B = 1, .S = 3}, *device) {
    Randomise(model, 8);
    tensors = ExportHf(model.registry(), HfSource::kWeights, *device);
  }
  HostTensor& Find(const std::string& name) {
    for (auto& [n, t] : tensors) {
      if (n == name) return t;
    }
    FAIL(name << " was not exported");
    throw std::logic_error(name);
  }
  void Write(const std::string& path) const {
    std::vector<NamedTensor> list;
    for (const auto& [name, tensor] : tensors) list.push_back({name, tensor.view()});
    WriteSafetensors(path, list, {{"format", "pt"}}, false);
  }
  std::unique_ptr<Device> device;
  StandaloneModel model;
  std::vector<std::pair<std::string, HostTensor>> tensors;
};

// Imports `directory` into a fresh model; the error's text, or "" and the states are equal.
std::string Import(const std::string& directory, Source& source, double tolerance = 0) {
  StandaloneModel model(TinyConfig(), {.types = kFloat, .B = 1, .S = 3}, *source.device);
  try {
    ImportHf(model.registry(), HfCheckpoint(directory), *source.device);
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::kCheckpoint);
    return e.what();
  }
  const auto a = model.registry().State(), b = source.model.registry().State();
  for (size_t i = 0; i < a.size(); ++i) {
    INFO(a[i].name);
    CHECK(Difference(Values(a[i].tensor), Values(b[i].tensor)) <= tolerance);
  }
  return "";
}

TEST_CASE("pieces cover each parameter exactly once") {
  const auto device = OneThread();
  StandaloneModel model(TinyConfig(), {.types = kFloat, .B = 1, .S = 3}, *device);
  std::set<std::string> names;
  for (const StateTensor& state : model.registry().State()) {
    std::vector<int> covered(static_cast<size_t>(state.spec.global_shape.elements()), 0);
    for (const HfPiece& piece : HfPieces(state.name, state.spec.global_shape)) {
      CHECK(names.insert(piece.name).second);
      CHECK(piece.box.elements() == piece.shape.elements());
      const Shape& g = state.spec.global_shape;
      for (int64_t i = 0; i < g.elements(); ++i) {
        int64_t rest = i;
        bool inside = true;
        for (int axis = g.rank() - 1; axis >= 0; --axis) {
          const int64_t at = rest % g[axis] - piece.box.begin[static_cast<size_t>(axis)];
          rest /= g[axis];
          inside = inside && at >= 0 && at < piece.box.extent[static_cast<size_t>(axis)];
        }
        covered[static_cast<size_t>(i)] += inside;
      }
    }
    INFO(state.name);
    CHECK(std::all_of(covered.begin(), covered.end(), [](int n) { return n == 1; }));
  }
  CHECK(names.count("model.layers.1.mlp.experts.5.up_proj.weight") == 1);
  CHECK(names.count("model.layers.0.mlp.gate_proj.weight") == 1);
  CHECK(names.count("model.layers.2.mlp.shared_experts.up_proj.weight") == 1);
  CHECK(names.count("model.layers.2.mlp.gate.e_score_correction_bias") == 1);
}

TEST_CASE("halves and experts land where they belong") {
  Source source;
  const Tensor fused =
      source.model.registry().list().Find("model.layers.1.mlp.experts.gate_up_proj")->master;  // [6, 8, 10]
  const float* up = source.Find("model.layers.1.mlp.experts.4.up_proj.weight").as<float>();    // [4, 10]
  CHECK(up[3 * 10 + 7] == fused.as<float>()[(4 * 8 + 4 + 3) * 10 + 7]);
  const float* gate = source.Find("model.layers.1.mlp.experts.4.gate_proj.weight").as<float>();
  CHECK(gate[3 * 10 + 7] == fused.as<float>()[(4 * 8 + 3) * 10 + 7]);
}

TEST_CASE("a single file, export and import") {
  Source source;
  const TempDir dir;
  source.Write(dir / "model.safetensors");
  CHECK(Import(dir.path(), source) == "");
}

TEST_CASE("a sharded directory and its damage") {
  Source source;
  const TempDir dir;
  std::vector<NamedTensor> shards[2];
  std::string map;
  for (size_t i = 0; i < source.tensors.size(); ++i) {
    const auto& [name, tensor] = source.tensors[i];
    shards[i % 2].push_back({name, tensor.view()});
    map += StrCat(map.empty() ? "" : ",", "\"", name, "\":\"part-", i % 2, ".safetensors\"");
  }
  for (int s : {0, 1}) WriteSafetensors(dir / StrCat("part-", s, ".safetensors"), shards[s], {}, false);
  const auto write_index = [&](const std::string& text) {
    WriteFileAtomically(dir / "model.safetensors.index.json", text);
  };
  write_index("{\"metadata\":{},\"weight_map\":{" + map + "}}");
  CHECK(Import(dir.path(), source) == "");

  write_index("{\"weight_map\":{" + map + ",\"extra\":\"part-0.safetensors\"}}");
  CHECK(Contains(Import(dir.path(), source), "extra is in the index"));
  write_index("{\"weight_map\":{" + map + ",\"extra\":\"part-2.safetensors\"}}");
  CHECK(Contains(Import(dir.path(), source), "part-2.safetensors"));
  // A tensor of part-0 that the index puts into a file which is not there: that file is at fault.
  write_index("{\"weight_map\":{\"lm_head.weight\":\"zz.safetensors\",\"extra\":\"part-0.safetensors\"}}");
  CHECK(Contains(Import(dir.path(), source), "zz.safetensors: no such file"));
  write_index("{\"weight_map\":{\"lm_head.weight\":\"../part-0.safetensors\"}}");
  CHECK(Contains(Import(dir.path(), source), "not beside it"));
  write_index("{\"weight_map\":{\"lm_head.weight\":\"part-0.safetensors\"}}");
  CHECK(Contains(Import(dir.path(), source), "not in the index"));
  write_index("{\"weight_map\":[");
  CHECK(Contains(Import(dir.path(), source), "weight_map"));
  write_index("{\"weight_map\":{\"a\":3}}");
  CHECK(Contains(Import(dir.path(), source), "names no file for a"));
}

TEST_CASE("fused experts under our own names") {
  Source source;
  const TempDir dir;
  std::vector<NamedTensor> list;
  for (const StateTensor& s : source.model.registry().State()) {
    if (Contains(s.name, ".experts.")) {
      list.push_back({s.name, s.tensor});
    }
  }
  CHECK(list.size() == 4);
  for (const auto& [name, tensor] : source.tensors) {
    if (!Contains(name, ".mlp.experts.")) list.push_back({name, tensor.view()});
  }
  WriteSafetensors(dir / "model.safetensors", list, {}, false);
  CHECK(Import(dir.path(), source) == "");
}

TEST_CASE("BF16 weights are read") {
  Source source;
  const TempDir dir;
  for (auto& [name, tensor] : source.tensors) {
    HostTensor low(DType::kBF16, tensor.shape());
    for (int64_t i = 0; i < tensor.elements(); ++i) low.as<BFloat16>()[i] = BFloat16(tensor.as<float>()[i]);
    tensor = low;
  }
  source.Write(dir / "model.safetensors");
  CHECK(Import(dir.path(), source, 0x1p-8) == "");
}

TEST_CASE("weights that do not fit are listed with tensor and file") {
  const TempDir dir;
  const std::string path = dir / "model.safetensors";
  SECTION("missing and unexpected") {
    Source source;
    for (auto& [name, tensor] : source.tensors) {
      if (name == "model.layers.1.mlp.experts.2.down_proj.weight")
        name = "model.layers.1.mlp.experts.6.down_proj.weight";
    }
    source.Write(path);
    const std::string message = Import(dir.path(), source);
    CHECK(Contains(message, "model.layers.1.mlp.experts.2.down_proj.weight [10, 4] is missing"));
    CHECK(Contains(
        message,
        "model.layers.1.mlp.experts.6.down_proj.weight in model.safetensors is not part of the model"));
  }
  SECTION("another shape") {
    Source source;
    source.Find("lm_head.weight") = HostTensor(DType::kF32, {17, 11});
    source.Write(path);
    CHECK(Contains(Import(dir.path(), source),
                   "lm_head.weight in model.safetensors has shape [17, 11], the model needs [17, 10]"));
  }
  SECTION("another type") {
    Source source;
    source.Find("model.norm.weight") = HostTensor(DType::kI32, {10});
    source.Write(path);
    CHECK(Contains(Import(dir.path(), source), "model.norm.weight in model.safetensors is I32"));
  }
  SECTION("a multi-token prediction layer") {
    Source source;
    source.tensors.emplace_back("model.layers.3.eh_proj.weight", HostTensor(DType::kF32, {10, 20}));
    source.Write(path);
    const std::string message = Import(dir.path(), source);
    CHECK(Contains(message, "model.layers.3.eh_proj.weight"));
    CHECK(Contains(message, "multi-token prediction"));
  }
  SECTION("a repeated embedding that differs") {
    ModelConfig c = TinyConfig();
    c.num_nextn_predict_layers = 1;
    const auto device = OneThread();
    StandaloneModel model(c, {.types = kFloat, .B = 1, .S = 3}, *device);
    Randomise(model, 8);
    auto tensors = ExportHf(model.registry(), HfSource::kWeights, *device);
    const auto write = [&] {
      std::vector<NamedTensor> list;
      for (const auto& [name, tensor] : tensors) list.push_back({name, tensor.view()});
      WriteSafetensors(path, list, {}, false);
    };
    write();
    StandaloneModel other(c, {.types = kFloat, .B = 1, .S = 3}, *device);
    ImportHf(other.registry(), HfCheckpoint(dir.path()), *device);
    CHECK(Values(other.registry().list().Find("model.layers.3.eh_proj.weight")->master) ==
          Values(model.registry().list().Find("model.layers.3.eh_proj.weight")->master));
    int repeated = 0;
    for (auto& [name, tensor] : tensors) {
      repeated += name == "model.layers.3.embed_tokens.weight";
      if (name == "model.layers.3.shared_head.head.weight") tensor.as<float>()[0] += 1, ++repeated;
    }
    CHECK(repeated == 2);
    write();
    try {
      ImportHf(other.registry(), HfCheckpoint(dir.path()), *device);
      FAIL("a head that differs was taken");
    } catch (const Error& e) {
      CHECK(Contains(e.what(), "model.layers.3.shared_head.head.weight differs from lm_head.weight"));
    }
  }
  SECTION("no file at all") {
    Source source;
    CHECK(Contains(Import(dir.path(), source), "model.safetensors.index.json"));
  }
}

TEST_CASE("gradients leave under the hub's names, buffers as zeros") {
  const auto device = OneThread();
  StandaloneModel model(TinyConfig(), {.types = kDouble, .B = 1, .S = 3}, *device);
  Randomise(model, 8);
  const Batch batch = RandomBatch(3, 17, 1);
  model.SetBatch(batch.tokens, batch.targets);
  model.Forward();
  model.Backward();
  std::map<std::string, std::vector<double>> gradients;
  for (const auto& [name, tensor] : ExportHf(model.registry(), HfSource::kGradients, *device))
    gradients[name] = Values(tensor.view());
  CHECK(gradients["model.layers.1.mlp.gate.e_score_correction_bias"] == std::vector<double>(6, 0.0));
  CHECK(gradients["model.norm.weight"] == Values(model.registry().list().Find("model.norm.weight")->grad));
}

TEST_CASE("a configuration without q_lora_rank is completed from the weights") {
  Source source;
  const TempDir dir;
  source.Write(dir / "model.safetensors");
  const std::string config =
      R"({"model_type":"deepseek_v3","vocab_size":17,"hidden_size":10,"num_hidden_layers":3,
    "first_k_dense_replace":1,"intermediate_size":7,"max_position_embeddings":64,"rms_norm_eps":1e-6,
    "num_attention_heads":2,"kv_lora_rank":4,"qk_nope_head_dim":3,"qk_rope_head_dim":4,"v_head_dim":5,
    "n_routed_experts":6,"num_experts_per_tok":2,"n_shared_experts":2,"moe_intermediate_size":4,"n_group":3,
    "topk_group":2,"norm_topk_prob":true,"num_nextn_predict_layers":1,"routed_scaling_factor":2.5})";
  WriteFileAtomically(dir / "config.json", config);
  const ModelConfig c = LoadHfModelConfig(HfCheckpoint(dir.path()));
  CHECK(c.q_lora_rank == 5);
  CHECK(c.num_nextn_predict_layers == 0);

  for (auto& [name, tensor] : source.tensors) {
    if (name == "model.layers.0.self_attn.q_a_proj.weight") name = "model.layers.0.self_attn.q_proj.weight";
  }
  source.Write(dir / "model.safetensors");
  CHECK(LoadHfModelConfig(HfCheckpoint(dir.path())).q_lora_rank == 0);
}

}  // namespace
}  // namespace yardmaster
