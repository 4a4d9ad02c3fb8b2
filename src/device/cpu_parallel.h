// File: src/device/cpu_parallel.h
//
// Loops over the threads of a cpu device. [0, n) is cut into chunks of `grain`, whatever the number
// of threads, and each chunk is run once, by one thread, with no order between chunks. An op whose
// chunks write disjoint results, and that adds per-chunk partial sums in chunk order, gives the
// same bits with any number of threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "src/base/check.h"
#include "src/device/device.h"

namespace yardmaster {

// Persistent threads; the calling thread is one of them. One caller at a time.
class CpuPool {
 public:
  explicit CpuPool(int threads);
  CpuPool(const CpuPool&) = delete;
  CpuPool& operator=(const CpuPool&) = delete;
  ~CpuPool();
  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls f(context, chunk) for every chunk in [0, chunks) and waits. The first exception of a
  // chunk is rethrown here. Called from within a chunk it runs in the calling thread.
  void Run(int64_t chunks, void (*f)(void* context, int64_t chunk), void* context);

 private:
  void WorkerLoop();
  void WorkOnChunks();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::atomic<uint64_t> generation_{
      0};  // counts Run calls; workers spin on it for a moment before they sleep
  std::atomic<int> running_{0};       // workers inside the current job
  bool open_ = false, stop_ = false;  // open_: workers may still join the current job
  void (*f_)(void*, int64_t) = nullptr;
  void* context_ = nullptr;
  int64_t chunks_ = 0;
  std::atomic<int64_t> next_{0};
  std::exception_ptr error_;
};

CpuPool& CpuPoolOf(const Stream& stream);  // of a cpu device's stream

// f(int64_t begin, int64_t end) for each chunk.
template <class F>
void ParallelFor(const Stream& stream, int64_t n, int64_t grain, F&& f) {
  YM_CHECK(grain > 0, "grain ", grain);
  if (n <= 0) return;
  struct Context {
    F* f;
    int64_t n, grain;
  } context{&f, n, grain};
  CpuPoolOf(stream).Run((n + grain - 1) / grain,
                        [](void* p, int64_t chunk) {
                          const Context& c = *static_cast<Context*>(p);
                          const int64_t begin = chunk * c.grain;
                          (*c.f)(begin, begin + c.grain < c.n ? begin + c.grain : c.n);
                        },
                        &context);
}

// A grain that cuts n into at most `max_chunks` chunks of at least `min_grain`: from the problem
// alone, never from the number of threads.
inline int64_t GrainFor(int64_t n, int64_t min_grain, int64_t max_chunks = 32) {
  const int64_t grain = (n + max_chunks - 1) / max_chunks;
  return grain > min_grain ? grain : min_grain;
}

}  // namespace yardmaster
