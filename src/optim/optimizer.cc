#include "src/optim/optimizer.h"

#include "src/ops/elementwise.h"
#include "src/ops/embedding.h"
#include "src/parallel/zero.h"

namespace yardmaster {
namespace {

constexpr int64_t kChunkRows = 128;  // of SumSquares; ZeRO cuts at its multiples

// Runs of squares (comm/communicator.h) of `elements`.
int64_t Runs(int64_t elements) { return (elements + kSquaresRun - 1) / kSquaresRun; }

// Whether every chunk begins with a run, counted from any cut of ZeRO: chunks are whole runs, but for the last.
bool RunsFillChunks(const Shape& shape) {
  const ZeroParameter p = ZeroParameter::Of(shape);
  return p.cols * kChunkRows % kSquaresRun == 0 && (p.matrices == 1 || p.rows % kChunkRows == 0);
}

// Elements [begin, end) of a contiguous tensor in the shape of the box that they fill.
Tensor PieceView(const Tensor& t, int64_t begin, int64_t end, const Box& box) {
  return t.Reshape({t.elements()}).Slice(begin, end).Reshape(Shape(box.extent));
}

// A box of the local tensor as a box of the global one.
Box GlobalBox(const Parameter& p, const Box& local) {
  Box box = local;
  for (size_t i = 0; i < box.begin.size(); ++i) box.begin[i] += p.spec.box.begin[i];
  return box;
}

double DecayOf(const OptimizerConfig& config, DecayClass decay) {
  switch (decay) {
    case DecayClass::kMatrix: return config.weight_decay;
    case DecayClass::kNorm: return config.decay_norms ? config.weight_decay : 0;
    case DecayClass::kEmbedding: return config.decay_embedding ? config.weight_decay : 0;
  }
  return 0;
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, int64_t zero, Registry registry, ComputeTypes types, OptimizerGroups groups,
                     GroupedGemmMode grouped_gemm)
    : config_(config), zero_(zero), types_(types), groups_(groups), grouped_gemm_(grouped_gemm) {
  std::vector<ZeroParameter> dense, expert;  // ownership is balanced within each group
  for (const auto& p : registry.parameters())
    (p->group == ParameterGroup::kExpert ? expert : dense).push_back(ZeroParameter::Of(Shape(p->spec.box.extent)));
  const std::vector<std::vector<int64_t>> dense_bounds = ZeroBounds(dense, groups.dense->size(), {.cut_rows = kChunkRows});
  const std::vector<std::vector<int64_t>> expert_bounds = ZeroBounds(expert, groups.expert->size(), {.cut_rows = kChunkRows});
  size_t next_dense = 0, next_expert = 0;
  for (const auto& p : registry.parameters()) {
    const bool is_expert = p->group == ParameterGroup::kExpert;
    Shard s;
    s.parameter = p.get();
    s.expert = is_expert;
    s.group = is_expert ? groups.expert : groups.dense;
    s.bounds = is_expert ? expert_bounds[next_expert++] : dense_bounds[next_dense++];
    s.begin = s.bounds[static_cast<size_t>(s.group->rank())];
    s.end = s.bounds[static_cast<size_t>(s.group->rank()) + 1];
    s.kept_begin = zero ? s.begin : 0;
    s.kept_end = zero ? s.end : s.bounds.back();
    s.first_chunk = num_chunks_;
    s.weight_decay = DecayOf(config, p->decay);
    num_chunks_ += NumNormChunks(p->spec.global_shape);
    shards_.push_back(s);
  }
}

void Optimizer::Allocate(Arena& arena, const Stream& stream) {
  const DType moments = config_.moments == "bf16" ? DType::kBF16 : types_.accum;
  dense_.clear();
  expert_.clear();
  for (Shard& s : shards_) {
    const Parameter& p = *s.parameter;
    s.m = arena.Allocate("adamw.m", moments, {s.kept_end - s.kept_begin});
    s.v = arena.Allocate("adamw.v", moments, {s.kept_end - s.kept_begin});
    Fill(stream, 0, s.m);
    Fill(stream, 0, s.v);
    AllocateSquares(arena, stream, s);
    s.quantised_with_update = p.copies.defined() && (!zero_ || s.group->size() == 1);  // the same on every rank
    if (s.quantised_with_update) {
      (s.expert ? expert_ : dense_).push_back({.master = p.master, .grad = p.grad, .m = s.m.Reshape(p.master.shape()),
                        .v = s.v.Reshape(p.master.shape()), .weight_decay = s.weight_decay, .copies = p.copies});
      continue;
    }
    for (const ZeroPiece& piece : ZeroPieces(p.master.shape(), s.kept_begin, s.kept_end)) {
      const auto view = [&](const Tensor& t, int64_t base) { return PieceView(t, piece.begin - base, piece.end - base, piece.local); };
      AdamWTensor t;
      t.master = view(p.master, 0);
      if (p.value.defined() && p.value.dtype() != p.master.dtype()) t.weight = view(p.value, 0);
      t.grad = view(p.grad, 0);
      t.m = view(s.m, s.kept_begin);
      t.v = view(s.v, s.kept_begin);
      t.weight_decay = s.weight_decay;
      (s.expert ? expert_ : dense_).push_back(t);
    }
  }
  partials_ = arena.Allocate("grad_norm.partials", DType::kF64, {num_chunks_});
}

// Of what is final when a weight gradient has been written, since nobody else has a part of it; or when it has been reduced.
void Optimizer::AllocateSquares(Arena& arena, const Stream& stream, Shard& s) const {
  Parameter& p = *s.parameter;
  p.squares = s.squares = {};
  if (s.shared()) {
    // A plan for GPUs may be made with groups of processes that have none.
    const bool planned = stream.dry() && stream.target() == DeviceKind::kCuda;
    if ((planned || s.group->sums_squares(p.grad.dtype())) && RunsFillChunks(p.grad.shape()))
      s.squares = arena.Allocate("grad_norm.squares", DType::kF64, {Runs(s.end - s.begin)});
    return;
  }
  int64_t addends = 0;
  if (p.in_recipe) {
    p.squares_per_chunk = RecipeNormAddends(stream, types_.recipe, types_.compute, p.grad, grouped_gemm_);
    addends = NumNormChunks(p.grad.shape()) * p.squares_per_chunk;
  } else if (p.embeds) {
    const int64_t of_row = EmbeddingNormAddends(stream, types_.compute, p.grad);
    p.squares_per_chunk = kChunkRows * of_row;
    addends = p.grad.dim(0) * of_row;
  }
  if (addends > 0) p.squares = arena.Allocate("grad_norm.addends", DType::kF64, {addends});
}

void Optimizer::ClearUnused(const Stream& stream, const Parameter& p) {
  if (p.fresh) Fill(stream, 0, p.grad);
}

void Optimizer::Reduce(const Stream& stream, Shard& s) {
  if (!s.shared()) return;  // Norm reads it, perhaps on another stream
  Parameter& p = *s.parameter;
  ClearUnused(stream, p);
  if (s.squares.defined() && s.group->sums_squares(p.grad.dtype())) {
    s.group->ReduceScatterSumAndSquares(stream, p.grad, s.bounds, s.squares);
  } else {
    s.group->ReduceScatterSum(stream, p.grad, s.bounds);
  }
  if (!zero_) s.group->AllGather(stream, p.grad, s.bounds);
}

void Optimizer::ReduceEarly(const Stream& stream, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {  // shards_ are in the registry's order
    YM_CHECK(!shards_[i].reduced, shards_[i].parameter->name, " is reduced twice");
    Reduce(stream, shards_[i]);
    shards_[i].reduced = true;
  }
}

void Optimizer::ReduceGradients(const Stream& stream) {
  for (Shard& s : shards_) {
    if (!s.reduced) Reduce(stream, s);
    s.reduced = false;
  }
}

// The global index of the first chunk (ops/step_control.h) of a box of the local tensor.
int64_t Optimizer::ChunkOf(const Shard& shard, const Box& local) const {
  const Box box = GlobalBox(*shard.parameter, local);
  if (box.begin.size() < 2) return shard.first_chunk;
  const int64_t row = box.begin[box.begin.size() - 2];
  YM_CHECK(row % kChunkRows == 0, "ZeRO must cut at multiples of ", kChunkRows, " rows: ", shard.parameter->name);
  if (box.begin.size() == 2) return shard.first_chunk + row / kChunkRows;
  const Shape& global = shard.parameter->spec.global_shape;
  return shard.first_chunk + box.begin[0] * NumNormChunks({global[1], global[2]}) + row / kChunkRows;
}

void Optimizer::Squares(const Stream& stream, bool shared) const {
  std::vector<SumSquaresPart> parts;
  std::vector<NormAddends> squared;
  for (const Shard& s : shards_) {
    if (s.shared() != shared) continue;
    const Parameter& p = *s.parameter;
    // A weight gradient in several parts is squared in the order of one in one part: a step computed again in rounds
    // has the norm of an ordinary one.
    const bool by_tiles = p.squares.defined() && p.in_recipe;
    if (by_tiles && !p.squared) SumTileSquares(stream, p.grad, p.squares_per_chunk, p.squares);
    if (by_tiles || p.squared) {
      const int64_t chunk = ChunkOf(s, Box::Whole(p.grad.shape())), chunks = NumNormChunks(p.grad.shape());
      squared.push_back({p.squares, p.squares_per_chunk, partials_.Slice(chunk, chunk + chunks)});
      continue;
    }
    for (const ZeroPiece& piece : ZeroPieces(p.grad.shape(), s.begin, s.end)) {
      const Tensor grad = PieceView(p.grad, piece.begin, piece.end, piece.local);
      const int64_t chunk = ChunkOf(s, piece.local);
      const Tensor partials = partials_.Slice(chunk, chunk + NumNormChunks(grad.shape()));
      if (s.squares.defined()) {
        const Tensor of_piece = s.squares.Slice(Runs(piece.begin - s.begin), Runs(piece.end - s.begin));
        squared.push_back({of_piece, grad.cols() * kChunkRows / kSquaresRun, partials});
      } else {
        parts.push_back({grad, partials});
      }
    }
  }
  SumSquaresMulti(stream, parts);
  SumNormAddends(stream, squared);
}

void Optimizer::Norm(Context& ctx, const Stream& reducing) {
  Fill(ctx.stream, 0, partials_);
  for (const Shard& s : shards_) {
    if (!s.shared()) ClearUnused(ctx.stream, *s.parameter);
  }
  Squares(ctx.stream, /*shared=*/false);
  ctx.stream.After(reducing);
  Squares(ctx.stream, /*shared=*/true);
  groups_.world->AllReduceSum(ctx.stream, partials_);  // each chunk is non-zero on one rank: the sum is exact
}

void Optimizer::Update(Context& ctx, const Tensor& step_state, const Stream& gathering) {
  const AdamWHyper hyper{config_.beta1, config_.beta2, config_.eps};
  AdamWMulti(ctx.stream, dense_, hyper, step_state);
  gathering.After(ctx.stream);
  Gather(gathering, /*expert=*/false, ctx.work);
  AdamWMulti(ctx.stream, expert_, hyper, step_state);
  gathering.After(ctx.stream);
  Gather(gathering, /*expert=*/true, ctx.work);
  ctx.stream.After(gathering);
}

void Optimizer::Gather(const Stream& stream, bool expert, Arena& work) const {
  if (!zero_) return;
  for (const Shard& s : shards_) {
    if (s.expert != expert) continue;
    const Parameter& p = *s.parameter;
    if (!p.copies.defined()) {
      s.group->AllGather(stream, p.value, s.bounds);
    } else if (!s.quantised_with_update) {
      GatherCopies(stream, s, work);
    }
  }
}

// Weights travel in the compute type, which is not kept: every rank makes its copies of all rows from them.
void Optimizer::GatherCopies(const Stream& stream, const Shard& s, Arena& work) const {
  const Parameter& p = *s.parameter;
  ArenaScope scope(work);
  Tensor all = p.value;
  if (!all.defined()) {
    all = work.Allocate("gathered weight", types_.compute, p.master.shape());
    const auto own = [&](const Tensor& t) { return t.Reshape({t.elements()}).Slice(s.begin, s.end); };
    Copy(stream, own(p.master), own(all));
  }
  s.group->AllGather(stream, all, s.bounds);
  QuantizeWeights(stream, p.copies, all);
}

std::vector<StateTensor> Optimizer::State(bool own_rows_only) const {
  std::vector<StateTensor> out;
  for (const Shard& s : shards_) {
    const Parameter& p = *s.parameter;
    const auto add = [&](const std::string& name, const Tensor& t, int64_t base, int64_t begin, int64_t end) {
      for (const ZeroPiece& piece : ZeroPieces(p.master.shape(), begin, end)) {
        out.push_back({name, PieceView(t, piece.begin - base, piece.end - base, piece.local), {p.spec.global_shape, GlobalBox(p, piece.local)}});
      }
    };
    const int64_t all = p.master.elements();
    add(p.name, p.master, 0, own_rows_only ? s.begin : 0, own_rows_only ? s.end : all);
    const int64_t begin = own_rows_only ? s.begin : s.kept_begin, end = own_rows_only ? s.end : s.kept_end;
    add("adamw.m/" + p.name, s.m, s.kept_begin, begin, end);
    add("adamw.v/" + p.name, s.v, s.kept_begin, begin, end);
  }
  return out;
}

std::vector<StateTensor> Optimizer::SavedState() const { return State(true); }
std::vector<StateTensor> Optimizer::LoadedState() const { return State(false); }

std::vector<ReplicaTensor> Optimizer::ReplicatedState() const {
  std::vector<ReplicaTensor> out;
  for (const Shard& s : shards_) {
    const Parameter& p = *s.parameter;
    const auto add = [&](const std::string& name, const Tensor& t) {
      if (t.defined()) out.push_back({name, t, p.spec.box});
    };
    add(p.name, p.value);
    add(StrCat(p.name, " (8-bit copy)"), p.copies.rows.codes);
    add(StrCat(p.name, " (scales of the 8-bit copy)"), p.copies.rows.scales);
    add(StrCat(p.name, " (transposed 8-bit copy)"), p.copies.cols.codes);
    add(StrCat(p.name, " (scales of the transposed 8-bit copy)"), p.copies.cols.scales);
    if (zero_) continue;
    if (p.master.data() != p.value.data()) add(StrCat(p.name, " (master)"), p.master);
    add("adamw.m/" + p.name, s.m);
    add("adamw.v/" + p.name, s.v);
  }
  return out;
}

}  // namespace yardmaster
