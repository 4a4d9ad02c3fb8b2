// File: src/base/clock.h
#pragma once

#include <chrono>

namespace yardmaster {

// Seconds of a steady clock; only differences mean anything.
inline double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace yardmaster
