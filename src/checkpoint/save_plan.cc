#include "src/checkpoint/save_plan.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/check.h"
#include "src/base/error.h"
#include "src/base/strings.h"
#include "src/checkpoint/cover.h"
#include "src/checkpoint/outcome.h"

namespace yardmaster {
namespace {

using Json = nlohmann::json;

const char kHint[] = "the parameter registry gives the wrong boxes for this layout: please report it";

// What a rank holds, as rank 0 hears it.
std::string Describe(int64_t step, const std::vector<StateTensor>& tensors) {
  Json list = Json::array();
  for (const StateTensor& t : tensors) {
    list.push_back(Json::array({t.name, DTypeName(t.tensor.dtype()), t.spec.global_shape.vector(),
                                t.spec.box.begin, t.spec.box.extent}));
  }
  return Json{{"step", step}, {"tensors", list}}.dump();
}

struct GlobalTensor {
  std::string dtype;
  Shape shape;
  int first_rank = 0;
  std::vector<CoverPiece> pieces;                                                    // distinct boxes
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, int> rank_of_box;  // who writes it
};

// Who writes what: for each rank a line of '1' (write) and '0', one for each of its tensors.
std::string Assign(const std::vector<std::string>& descriptions, uint64_t* total_bytes) {
  std::map<std::string, GlobalTensor> tensors;
  std::string lines;
  int64_t step = 0;
  for (size_t r = 0; r < descriptions.size(); ++r) {
    const Json json = Json::parse(descriptions[r]);
    const int rank = static_cast<int>(r);
    const std::string owner = StrCat("rank ", rank);
    if (r == 0) step = json["step"];
    if (json["step"] != step)
      throw CheckpointError(
          StrCat(owner, " saves step ", json["step"].get<int64_t>(), ", rank 0 saves step ", step));
    if (r > 0) lines += '\n';
    std::map<std::string, const Json*> seen;
    for (const Json& t : json["tensors"]) {
      const std::string name = t[0], dtype = t[1];
      const Shape shape(t[2].get<std::vector<int64_t>>());
      const Box box{t[3].get<std::vector<int64_t>>(), t[4].get<std::vector<int64_t>>()};
      const auto fail = [&](const std::string& what) {
        throw CheckpointError(what, StrCat("tensor '", name, "'"), kHint);
      };
      const auto [it, is_new] = tensors.try_emplace(name);
      GlobalTensor& global = it->second;
      if (is_new) global.dtype = dtype, global.shape = shape, global.first_rank = rank;
      if (global.dtype != dtype || !(global.shape == shape))
        fail(StrCat(owner, " has ", dtype, " ", shape, ", rank ", global.first_rank, " has ", global.dtype,
                    " ", global.shape));
      const auto [previous, first] = seen.emplace(name, &t);
      if (!first && *previous->second != t) fail(StrCat(owner, " holds two boxes of it"));
      if (box.elements() == 0) {
        lines += '0';
        continue;
      }
      const bool mine = global.rank_of_box.emplace(std::pair(box.begin, box.extent), rank).second;
      if (mine) global.pieces.push_back({box, owner});
      lines += mine ? '1' : '0';
    }
  }
  for (auto& [name, global] : tensors) {
    const std::string problem = CoverProblem(global.shape, std::move(global.pieces));
    if (!problem.empty()) throw CheckpointError(problem, StrCat("tensor '", name, "'"), kHint);
    DType dtype;
    YM_CHECK(DTypeFromName(global.dtype, &dtype));
    *total_bytes += static_cast<uint64_t>(global.shape.elements() * DTypeBytes(dtype));
  }
  return lines;
}

}  // namespace

SavePlan PlanSave(int64_t step, const std::vector<StateTensor>& tensors, Agreement& world) {
  SavePlan plan;
  std::string description, assignment;
  ThrowIfFailed(AttemptOnAll(world, [&] {
    for (const StateTensor& t : tensors) {
      YM_CHECK(t.tensor.shape().vector() == t.spec.box.extent, "tensor ", t.name, ": ", t.tensor.shape(),
               " but the box ", BoxText(t.spec.box));
      YM_CHECK(t.tensor.contiguous(), "tensor ", t.name, " is strided");
      YM_CHECK(t.tensor.data() != nullptr || t.tensor.elements() == 0, "tensor ", t.name, " has no memory");
    }
    description = Describe(step, tensors);
  }));
  const std::vector<std::string> descriptions = world.Gather(description);
  ThrowIfFailed(AttemptOnFirst(world, [&] { assignment = Assign(descriptions, &plan.total_bytes); }));
  const std::vector<std::string> lines = StrSplit(world.Broadcast(assignment), '\n');
  const std::string& line = lines[static_cast<size_t>(world.rank())];
  YM_CHECK_EQ(line.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    if (line[i] == '1') plan.mine.push_back(&tensors[i]);
  return plan;
}

}  // namespace yardmaster
