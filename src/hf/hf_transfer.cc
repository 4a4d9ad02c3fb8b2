#include "src/hf/hf_transfer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "src/hf/hf_mapping.h"

namespace yardmaster {
namespace {

double ReadElement(const Tensor& x, int64_t i) {
  switch (x.dtype()) {
    case DType::kF32: {
      float v;
      std::memcpy(&v, static_cast<const char*>(x.data()) + i * 4, 4);
      return v;
    }
    case DType::kF64: {
      double v;
      std::memcpy(&v, static_cast<const char*>(x.data()) + i * 8, 8);
      return v;
    }
    case DType::kBF16: {
      BFloat16 v;
      std::memcpy(&v.bits, static_cast<const char*>(x.data()) + i * 2, 2);
      return static_cast<float>(v);
    }
    default: break;
  }
  YM_CHECK(false, "weights of ", DTypeName(x.dtype()));
  return 0;
}

void WriteElement(const Tensor& x, int64_t i, double v) {
  switch (x.dtype()) {
    case DType::kF32: x.as<float>()[i] = static_cast<float>(v); return;
    case DType::kF64: x.as<double>()[i] = v; return;
    case DType::kBF16: x.as<BFloat16>()[i] = BFloat16(static_cast<float>(v)); return;
    default: break;
  }
  YM_CHECK(false, "weights of ", DTypeName(x.dtype()));
}

// Index of a global position in a tensor that holds `box`, row-major.
int64_t IndexIn(const Box& box, const std::vector<int64_t>& at) {
  int64_t index = 0;
  for (size_t i = 0; i < at.size(); ++i) index = index * box.extent[i] + at[i] - box.begin[i];
  return index;
}

// Copies what two boxes of one global tensor have in common, a row of the last axis at a time, with
// conversion.
void CopyCommon(const Tensor& from, const Box& from_box, const Tensor& to, const Box& to_box) {
  const Box common = Intersect(from_box, to_box);
  const size_t rank = common.extent.size();
  if (common.elements() == 0) return;
  const int64_t row = common.extent[rank - 1];
  std::vector<int64_t> at = common.begin;
  for (int64_t done = 0; done < common.elements(); done += row) {
    const int64_t f = IndexIn(from_box, at), t = IndexIn(to_box, at);
    for (int64_t i = 0; i < row; ++i) WriteElement(to, t + i, ReadElement(from, f + i));
    for (size_t axis = rank - 1; axis-- > 0;) {
      if (++at[axis] < common.begin[axis] + common.extent[axis]) break;
      at[axis] = common.begin[axis];
    }
  }
}

// Collects what is wrong, so that a user sees all of it at once.
class Problems {
 public:
  void Add(const std::string& text) { texts_.push_back(text); }
  void ThrowIfAny(const std::string& directory) const {
    if (texts_.empty()) return;
    constexpr size_t kShown = 20;
    std::vector<std::string> shown(texts_.begin(),
                                   texts_.begin() + static_cast<int64_t>(std::min(texts_.size(), kShown)));
    if (texts_.size() > kShown) shown.push_back(StrCat("and ", texts_.size() - kShown, " more"));
    throw CheckpointError(StrCat("the weights do not fit the model:\n  ", StrJoin(shown, "\n  ")), directory,
                          "config.json and the weights must be of the same model");
  }

 private:
  std::vector<std::string> texts_;
};

struct Target {
  std::string name;
  ShardSpec spec;
  std::vector<Tensor> copies;  // master and, where it is another, value
};

std::vector<Target> Targets(const Registry& registry) {
  std::vector<Target> targets;
  for (const auto& p : registry.parameters()) {
    targets.push_back({p->name, p->spec, {p->master}});
    if (p->has_rounded_value()) targets.back().copies.push_back(p->value);
  }
  for (const auto& b : registry.buffers()) {
    if (b->published) targets.push_back({b->name, b->spec, {b->value}});
  }
  return targets;
}

// The pieces to read: the hub's, or the fused tensor under our own name where the files have that.
std::vector<HfPiece> PiecesIn(const HfCheckpoint& checkpoint, const Target& target, HfNaming naming) {
  std::vector<HfPiece> pieces = HfPieces(target.name, target.spec.global_shape, naming);
  if (checkpoint.Has(target.name)) {
    return {{target.name, target.spec.global_shape, Box::Whole(target.spec.global_shape)}};
  }
  return pieces;
}

// The layer number of "model.layers.<n>....", or -1.
int64_t LayerOf(const std::string& name) {
  constexpr char kPrefix[] = "model.layers.";
  constexpr size_t kLength = sizeof(kPrefix) - 1;
  if (name.compare(0, kLength, kPrefix) != 0) return -1;
  int64_t layer = 0;
  size_t i = kLength;
  for (; i < name.size() && name[i] >= '0' && name[i] <= '9' && i < kLength + 9; ++i)
    layer = layer * 10 + (name[i] - '0');
  return i > kLength ? layer : -1;
}

// The hub's files repeat embedding and head in each layer of multi-token prediction; ours are the main
// model's. Returns the name of what `name` repeats, or "".
std::string RepeatedTensor(const std::string& name) {
  const auto ends = [&](const std::string& suffix) { return name.ends_with(suffix) && LayerOf(name) >= 0; };
  if (ends(".embed_tokens.weight")) return "model.embed_tokens.weight";
  return ends(".shared_head.head.weight") ? "lm_head.weight" : "";
}

bool SameTensor(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

void CheckCover(const std::vector<Target>& targets, const HfCheckpoint& checkpoint, HfNaming naming) {
  Problems problems;
  std::set<std::string> taken;
  int64_t layers = 0;
  for (const Target& target : targets) {
    layers = std::max(layers, LayerOf(target.name) + 1);
    for (const HfPiece& piece : PiecesIn(checkpoint, target, naming)) {
      taken.insert(piece.name);
      if (!checkpoint.Has(piece.name)) {
        problems.Add(StrCat(piece.name, " ", piece.shape, " is missing"));
        continue;
      }
      const Tensor source = checkpoint.Get(piece.name);
      const std::string where = StrCat(" in ", BaseName(checkpoint.FileOf(piece.name)));
      if (!(source.shape() == piece.shape)) {
        problems.Add(
            StrCat(piece.name, where, " has shape ", source.shape(), ", the model needs ", piece.shape));
      }
      if (source.dtype() != DType::kF32 && source.dtype() != DType::kBF16 && source.dtype() != DType::kF64) {
        problems.Add(
            StrCat(piece.name, where, " is ", DTypeName(source.dtype()), "; F32, BF16 and F64 can be read"));
      }
    }
  }
  std::map<int64_t, std::vector<std::string>> beyond;  // layers after the model's last
  for (const std::string& name : checkpoint.names()) {
    if (taken.count(name)) continue;
    const std::string repeated = RepeatedTensor(name);
    if (!repeated.empty() && LayerOf(name) < layers && checkpoint.Has(repeated)) {
      if (!SameTensor(checkpoint.Get(name), checkpoint.Get(repeated)))
        problems.Add(StrCat(name, " differs from ", repeated, "; this model has one of them"));
      continue;
    }
    if (LayerOf(name) >= layers) {
      beyond[LayerOf(name)].push_back(name);
    } else {
      problems.Add(StrCat(name, " in ", BaseName(checkpoint.FileOf(name)), " is not part of the model"));
    }
  }
  for (const auto& [layer, names] : beyond) {
    problems.Add(StrCat(names[0], " in ", BaseName(checkpoint.FileOf(names[0])), " and ", names.size() - 1,
                        " more tensors are of layer ", layer, "; the model has ", layers,
                        " layers, those of multi-token prediction included"));
  }
  problems.ThrowIfAny(checkpoint.directory());
}

}  // namespace

void ImportHf(const Registry& registry, const HfCheckpoint& checkpoint, Device& device, HfNaming naming) {
  const std::vector<Target> targets = Targets(registry);
  CheckCover(targets, checkpoint, naming);
  for (const Target& target : targets) {
    for (const Tensor& copy : target.copies) {
      const HostTensor host(copy.dtype(), copy.shape());
      for (const HfPiece& piece : PiecesIn(checkpoint, target, naming)) {
        CopyCommon(checkpoint.Get(piece.name), piece.box, host.view(), target.spec.box);
      }
      device.CopyFromHost(copy.data(), host.view().data(), static_cast<size_t>(copy.bytes()));
    }
  }
  QuantizeParameters(registry.list(), Stream(&device));
}

std::vector<std::pair<std::string, HostTensor>> ExportHf(const Registry& registry, HfSource source, Device& device,
                                                         HfNaming naming) {
  std::vector<std::pair<std::string, HostTensor>> out;
  const auto add = [&](const std::string& name, const ShardSpec& spec, const Tensor& tensor, bool zeros) {
    YM_CHECK(spec.box == Box::Whole(spec.global_shape), name, " is sharded");
    YM_CHECK(tensor.defined(), name, " has no memory");
    const HostTensor whole(tensor.dtype(), tensor.shape());
    if (!zeros) device.CopyToHost(whole.view().data(), tensor.data(), static_cast<size_t>(tensor.bytes()));
    for (const HfPiece& piece : HfPieces(name, spec.global_shape, naming)) {
      HostTensor host(tensor.dtype(), piece.shape);
      CopyCommon(whole.view(), spec.box, host.view(), piece.box);
      out.emplace_back(piece.name, std::move(host));
    }
  };
  for (const auto& p : registry.parameters()) {
    add(p->name, p->spec, source == HfSource::kGradients ? p->grad : p->master, /*zeros=*/false);
  }
  if (source == HfSource::kWeights) {  // the hub's files repeat embedding and head in each of these layers
    for (const auto& p : registry.parameters()) {
      if (!p->name.ends_with(".eh_proj.weight")) continue;
      const std::string layer = StrCat("model.layers.", LayerOf(p->name));
      for (const std::string& copy : {layer + ".embed_tokens.weight", layer + ".shared_head.head.weight"}) {
        const Parameter* whole = registry.list().Find(RepeatedTensor(copy));
        add(copy, whole->spec, whole->master, /*zeros=*/false);
      }
    }
  }
  for (const auto& b : registry.buffers()) {
    if (b->published) add(b->name, b->spec, b->value, /*zeros=*/source == HfSource::kGradients);
  }
  return out;
}

}  // namespace yardmaster
