// File: src/train/summary.h
//
// What a user reads at the start and at the end of a run.
#pragma once

#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/train/engine.h"
#include "src/train/runtime.h"

namespace yardmaster {

// Device and why, layout, parameters total and active, FLOPs a token and the formula, schedule of the run.
std::string StartSummary(const Config& config, Runtime& runtime);

// What every kind of op computes in, on a device of this kind.
std::string PrecisionTable(const Config& config, DeviceKind device);

// One row per arena: planned bytes and, once they are known, what a step really used.
std::string MemoryTable(const std::vector<ArenaSize>& planned, const std::vector<ArenaSize>& actual);

// What a user should know of ep.ragged_buffer_factor before a run with expert parallelism: that even a
// balanced load does not fit, and what steps cost then: every one, unless a capacity drops pairs, which leaves
// less than that of a load that is not balanced. "" where it fits.
std::string WindowWarning(const Config& config);

// The bars of PREFIX.json beside a validation loss: "validation loss 1.98 nats per token: passes the byte
// trigram table (2.21)". Of the held-out part alone, for a loss over all of it; else "".
std::string BarsLine(const std::string& validation_prefix, double loss);

}  // namespace yardmaster
