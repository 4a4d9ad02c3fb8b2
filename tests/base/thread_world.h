// File: tests/base/thread_world.h
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "src/base/agreement.h"

namespace yardmaster::testing {

// A world whose ranks are threads of the test.
class ThreadWorld {
 public:
  explicit ThreadWorld(int size) : slots_(static_cast<size_t>(size)) {}

  // Runs body on every rank and waits for all. If a rank leaves by an exception while others wait for it in
  // an exchange, they get one too (a real world would hang there): `stranded` counts those.
  void Run(const std::function<void(Agreement&)>& body) {
    const int size = static_cast<int>(slots_.size());
    std::vector<std::exception_ptr> errors(slots_.size());
    std::vector<std::thread> threads;
    left_ = stranded_ = 0;
    arrived_ = 0;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        Rank rank(*this, r, size);
        try {
          body(rank);
        } catch (...) {
          errors[static_cast<size_t>(r)] = std::current_exception();
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        ++left_;
        changed_.notify_all();
      });
    }
    for (std::thread& t : threads) t.join();
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }
  int stranded() const { return stranded_; }

 private:
  class Rank : public Agreement {
   public:
    Rank(ThreadWorld& world, int rank, int size) : world_(world), rank_(rank), size_(size) {}
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::vector<std::string> AllGather(const std::string& mine) override {
      return world_.Exchange(rank_, mine);
    }
    std::string Broadcast(const std::string& mine) override { return world_.Exchange(rank_, mine)[0]; }

   private:
    ThreadWorld& world_;
    int rank_, size_;
  };

  std::vector<std::string> Exchange(int rank, const std::string& mine) {
    std::unique_lock<std::mutex> lock(mutex_);
    slots_[static_cast<size_t>(rank)] = mine;
    if (++arrived_ == slots_.size()) {
      result_ = slots_;
      arrived_ = 0;
      ++generation_;
      changed_.notify_all();
      return result_;
    }
    const int generation = generation_;
    changed_.wait(lock, [&] { return generation_ != generation || left_ > 0; });
    if (generation_ == generation) {
      ++stranded_;
      throw std::logic_error("a rank left while this one waited for it");
    }
    return result_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> slots_, result_;
  size_t arrived_ = 0;
  int generation_ = 0, left_ = 0, stranded_ = 0;
};

}  // namespace yardmaster::testing
