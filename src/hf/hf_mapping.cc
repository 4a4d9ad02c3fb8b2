#include "src/hf/hf_mapping.h"

namespace yardmaster {
namespace {

// Where `name` ends in `suffix`, what is before it.
bool SplitSuffix(const std::string& name, const std::string& suffix, std::string* prefix) {
  if (name.size() < suffix.size() || name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0)
    return false;
  *prefix = name.substr(0, name.size() - suffix.size());
  return true;
}

// The hub's name in a Mixtral file.
std::string MixtralName(std::string name) {
  const auto replace = [&](const std::string& ours, const std::string& theirs) {
    const size_t at = name.find(ours);
    if (at != std::string::npos) name.replace(at, ours.size(), theirs);
  };
  replace(".mlp.gate.", ".block_sparse_moe.gate.");
  replace(".mlp.experts.", ".block_sparse_moe.experts.");
  replace(".gate_proj.", ".w1.");
  replace(".up_proj.", ".w3.");
  replace(".down_proj.", ".w2.");
  return name;
}

}  // namespace

HfNaming HfNamingOf(const std::string& model_type) {
  return model_type == "mixtral" ? HfNaming::kMixtral : HfNaming::kStandard;
}

std::vector<HfPiece> HfPieces(const std::string& name, const Shape& shape, HfNaming naming) {
  std::vector<HfPiece> pieces;
  std::string prefix;
  if (SplitSuffix(name, ".experts.gate_up_proj", &prefix)) {
    YM_CHECK_EQ(shape.rank(), 3, name);
    const int64_t E = shape[0], F = shape[1] / 2, D = shape[2];
    for (int64_t e = 0; e < E; ++e) {
      const std::string expert = StrCat(prefix, ".experts.", e);
      pieces.push_back({expert + ".gate_proj.weight", {F, D}, {{e, 0, 0}, {1, F, D}}});
      pieces.push_back({expert + ".up_proj.weight", {F, D}, {{e, F, 0}, {1, F, D}}});
    }
  } else if (SplitSuffix(name, ".experts.down_proj", &prefix)) {
    YM_CHECK_EQ(shape.rank(), 3, name);
    const int64_t E = shape[0], D = shape[1], F = shape[2];
    for (int64_t e = 0; e < E; ++e) {
      pieces.push_back({StrCat(prefix, ".experts.", e, ".down_proj.weight"), {D, F}, {{e, 0, 0}, {1, D, F}}});
    }
  } else if (SplitSuffix(name, ".gate_up_proj", &prefix)) {
    YM_CHECK_EQ(shape.rank(), 2, name);
    const int64_t I = shape[0] / 2, D = shape[1];
    pieces.push_back({prefix + ".gate_proj.weight", {I, D}, {{0, 0}, {I, D}}});
    pieces.push_back({prefix + ".up_proj.weight", {I, D}, {{I, 0}, {I, D}}});
  } else {
    pieces.push_back({name, shape, Box::Whole(shape)});
  }
  if (naming == HfNaming::kMixtral) {
    for (HfPiece& piece : pieces) piece.name = MixtralName(piece.name);
  }
  return pieces;
}

}  // namespace yardmaster
