#include "src/device/cpu_parallel.h"

namespace yardmaster {
namespace {

// Ops of a small model follow each other within microseconds, and waking a sleeping thread costs
// more than that. About 50 us; the caller gives one thread per rank where ranks share cores, and
// then nobody spins.
constexpr int kSpins = 1000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

thread_local bool in_chunk = false;

}  // namespace

CpuPool::CpuPool(int threads) {
  YM_CHECK_GE(threads, 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { WorkerLoop(); });
}

CpuPool::~CpuPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void CpuPool::Run(int64_t chunks, void (*f)(void*, int64_t), void* context) {
  if (workers_.empty() || chunks == 1 || in_chunk) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) f(context, chunk);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    f_ = f, context_ = context, chunks_ = chunks;
    next_.store(0);
    error_ = nullptr;
    open_ = true;
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  WorkOnChunks();
  std::unique_lock lock(mutex_);
  open_ = false;
  if (running_.load() != 0) {
    lock.unlock();
    for (int i = 0; i < kSpins && running_.load() != 0; ++i) Pause();
    lock.lock();
    done_.wait(lock, [this] { return running_.load() == 0; });
  }
  if (error_) std::rethrow_exception(error_);
}

void CpuPool::WorkOnChunks() {
  in_chunk = true;
  for (int64_t chunk; (chunk = next_.fetch_add(1)) < chunks_;) {
    try {
      f_(context_, chunk);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
  in_chunk = false;
}

void CpuPool::WorkerLoop() {
  uint64_t seen = 0;
  while (true) {
    for (int i = 0; i < kSpins && generation_.load() == seen; ++i) Pause();
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stop_ || (open_ && generation_.load() != seen); });
    if (stop_) return;
    seen = generation_.load();
    running_.fetch_add(1);
    lock.unlock();
    WorkOnChunks();
    lock.lock();
    if (running_.fetch_sub(1) == 1) done_.notify_one();
  }
}

}  // namespace yardmaster
