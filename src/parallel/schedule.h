// File: src/parallel/schedule.h
//
// The pipeline schedule as data: which pass of which micro-batch runs next on a stage. The model walks the
// phases of a pass (model/block.h); whoever runs a step walks this list and decides nothing itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yardmaster {

enum class Pass : uint8_t {
  kForward,
  kBackward,  // input and weight gradients, phase by phase
};

struct Task {
  Pass pass = Pass::kForward;
  int64_t stage = 0;
  int64_t micro_batch = 0;
  int64_t in_turn = 1;  // this pass of so many micro-batches, `micro_batch` the first: they take turns within it
  bool operator==(const Task&) const = default;
};

// One stage: each micro-batch forward and at once backward (F0 B0 F1 B1 ...), so that one is in flight at a
// time and gradients are summed in the order of the micro-batches. in_turn 2: two at a time, in turn
// (Model::RunForwardInTurn); the last of an odd number is alone.
std::vector<Task> OneStageSchedule(int64_t micro_batches, int64_t in_turn = 1);

// Micro-batches of `stage` between their forward and their backward, at most: the arenas of saved tensors
// that it needs.
int64_t MaxInFlight(const std::vector<Task>& tasks, int64_t stage);

// Empty, or what is wrong: every micro-batch must pass forward, then backward, once each, on each of
// `stages`; forwards of a micro-batch go up the stages and backwards down.
std::string ScheduleProblem(const std::vector<Task>& tasks, int64_t stages, int64_t micro_batches);

}  // namespace yardmaster
