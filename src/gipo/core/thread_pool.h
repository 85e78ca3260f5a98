#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace gipo {

// Runs job(0), ..., job(count-1) on a fixed set of threads, of which the caller is one, and returns when all are done.
// Job i always goes to thread i % threads(), so nothing can depend on scheduling. Owned by one thread, which alone may
// call run(); a job must not call run() of the same pool. run() allocates nothing.
class ThreadPool {
 public:
  // One thread means none but the caller: jobs run inline. At least one.
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t threads() const { return shares_.size(); }

  // A job that throws ends its thread's share; once all threads are done, the exception of the lowest index is
  // rethrown here, the same one for any number of threads.
  template <class F>
  void run(std::size_t count, F&& job) {
    using Job = std::remove_reference_t<F>;
    run_erased({[](const void* j, std::size_t i) { (*static_cast<Job*>(const_cast<void*>(j)))(i); },
                std::addressof(job), count});
  }

 private:
  struct Work {
    void (*call)(const void* job, std::size_t i) = nullptr;
    const void* job = nullptr;
    std::size_t count = 0;
  };
  // How one thread's share of the current work ended. A cache line each, so that threads do not slow each other.
  struct alignas(64) Share {
    std::exception_ptr error;
    std::size_t error_index = 0;
  };

  void run_erased(const Work& work);
  void run_share(std::size_t thread);
  void rethrow_first();
  void serve(std::size_t thread);
  void stop();

  std::vector<Share> shares_;             // [threads]
  const std::chrono::microseconds spin_;  // before a thread sleeps
  Work work_;                             // written by the caller before round_ moves, read by the workers after
  std::atomic<bool> running_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> round_{0};     // number of the current work
  std::atomic<std::size_t> unfinished_{0};  // workers that still have a share of it
  std::mutex mutex_;                        // guards only the sleeping: a change made under it cannot be slept through
  std::condition_variable work_ready_, work_done_;
  std::vector<std::thread> workers_;  // [threads - 1]
};

}  // namespace gipo
