#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

namespace gipo {

// Runs job(0), ..., job(count-1) on a fixed set of threads, of which the caller is one, and returns when all are done.
// Which thread runs a job depends on scheduling, so a job must write only what belongs to its index. Job i is first
// offered to thread i % threads(), whose cache knows it; the caller runs what no other thread has begun. It therefore
// waits only for a job that another thread is in the middle of, never for a thread that has no processor to run on.
// Owned by one thread, which alone may call run(); a job must not call run() of the same pool. run() allocates nothing.
class ThreadPool {
 public:
  // One thread means none but the caller: jobs run inline. At least one.
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t threads() const { return shares_.size(); }

  // Once a job has thrown, jobs of a higher index that have not begun are left out. Those of a lower index are run, so
  // that the exception of the lowest index, which is rethrown here, is the same one for any number of threads.
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
  // The jobs of one thread: i, i + threads(), ... A cache line each, so that threads do not slow each other.
  // The word says all there is to know about a claim: whoever moves `next` on has the job, and the round cannot end
  // before that job is done. A thread that comes late, even by whole rounds, finds either nothing or a job of the
  // present round, and it looks at work_ only after the claim.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> open{0};  // next job << 32 | count
  };

  void run_erased(const Work& work);
  void open_round();
  void wait_for_helpers();
  void run_claimed(std::size_t thread);
  std::optional<std::size_t> claim(Share& share);
  void run_job(std::size_t i);
  void serve(std::size_t thread);
  void stop();

  std::vector<Share> shares_;             // [threads]
  const std::chrono::microseconds spin_;  // before a thread sleeps
  Work work_;  // written by the caller before the shares are opened, read by whoever has claimed a job
  std::atomic<bool> running_{false};
  std::exception_ptr error_;  // of job error_index_
  std::atomic<std::size_t> error_index_{0};
  std::mutex error_mutex_;  // guards both
  std::mutex mutex_;        // guards only the sleeping: a change made under it cannot be slept through
  std::condition_variable work_ready_, work_done_;
  std::atomic<std::size_t> asleep_{0};  // helpers that have to be woken
  std::atomic<bool> caller_asleep_{false};

  // What helpers watch while they wait awake, and what the caller watches: a cache line each, written once a round.
  alignas(64) std::atomic<std::uint64_t> round_{0};  // there may be something to claim, or the pool ends
  std::atomic<int> caller_core_{-1};
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<std::size_t> unfinished_{0};  // jobs of the present round that are not done
  std::atomic<int> helper_core_{-1};

  std::vector<std::thread> helpers_;  // [threads - 1]
};

}  // namespace gipo
