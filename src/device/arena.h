// File: src/device/arena.h
//
// All memory of a step comes from named arenas, planned before the first step. An Arena is a bump allocator with stack
// discipline: Allocate moves the top up, Mark/Release (or ArenaScope) moves it back. It starts in measuring mode (dry:
// tensors without data, high_water() counts bytes); Commit(bytes) takes the memory from the device, once. Going over
// the committed size is a bug and names the arena and the tensor: nothing is ever grown in a step.
// A release does not touch data: with poison on (tests), released memory is filled with NaN bytes on the cpu device.
#pragma once

#include <string>
#include <vector>

#include "src/device/device.h"

namespace yardmaster {

class Arena {
 public:
  Arena(std::string name, Device* device);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  void Commit(size_t bytes);                // exactly once; the top must be 0
  Tensor Allocate(const char* what, DType dtype, const Shape& shape);  // 256-byte aligned; contents undefined
  size_t Mark() const { return top_; }
  void Release(size_t mark);                // everything allocated since the mark
  size_t high_water() const { return high_water_; }
  size_t capacity() const { return capacity_; }
  size_t top() const { return top_; }
  const std::string& name() const { return name_; }
  Device* device() const { return device_; }
  void set_poison(bool on) { poison_ = on; }

 private:
  std::string name_;
  Device* device_;
  char* base_ = nullptr;
  size_t capacity_ = 0, top_ = 0, high_water_ = 0;
  bool committed_ = false, poison_ = false;
};

// Releases on scope exit what was allocated in it.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.Mark()) {}
  ~ArenaScope() { arena_.Release(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  size_t mark_;
};

}  // namespace yardmaster
