#include "gipo/core/thread_pool.h"

#include <chrono>

#include "gipo/core/error.h"

namespace gipo {
namespace {

// Work often follows work within microseconds, sooner than a sleeping thread wakes. Where every thread can have a core of
// its own, waiting awake takes little from anyone; otherwise the core is wanted by whoever has something to do.
constexpr std::chrono::microseconds kSpin{300}, kSpinOversubscribed{5};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// True as soon as ready() is; false after the time.
template <class Ready>
bool spin_until(std::chrono::microseconds time, Ready ready) {
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      relax();
    }
    std::this_thread::yield();  // another thread may want this core after all
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

}  // namespace

ThreadPool::ThreadPool(std::size_t threads)
    : shares_(threads), spin_(threads <= std::thread::hardware_concurrency() ? kSpin : kSpinOversubscribed) {
  GIPO_CHECK(threads >= 1);
  workers_.reserve(threads - 1);
  try {
    for (std::size_t thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { serve(thread); });
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_ready_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(const Work& work) {
  GIPO_CHECK(!running_.exchange(true));
  work_ = work;

  // A single job is thread 0's in any case: do not wake the others for it.
  const bool alone = workers_.empty() || work.count <= 1;
  if (!alone) {
    unfinished_.store(workers_.size(), std::memory_order_relaxed);
    {
      const std::lock_guard lock(mutex_);
      round_.fetch_add(1, std::memory_order_release);
    }
    work_ready_.notify_all();
  }

  run_share(0);

  if (!alone) {
    const auto done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
    if (!spin_until(spin_, done)) {
      std::unique_lock lock(mutex_);
      work_done_.wait(lock, done);
    }
  }
  running_ = false;
  rethrow_first();
}

void ThreadPool::run_share(std::size_t thread) {
  std::size_t i = thread;
  try {
    for (; i < work_.count; i += threads()) work_.call(work_.job, i);
  } catch (...) {
    shares_[thread].error = std::current_exception();
    shares_[thread].error_index = i;
  }
}

void ThreadPool::rethrow_first() {
  const Share* first = nullptr;
  for (const Share& share : shares_) {
    if (share.error && (first == nullptr || share.error_index < first->error_index)) first = &share;
  }
  if (first == nullptr) return;
  const std::exception_ptr error = first->error;
  for (Share& share : shares_) share.error = nullptr;
  std::rethrow_exception(error);
}

void ThreadPool::serve(std::size_t thread) {
  // The caller starts the next round only after every worker has finished this one, so rounds come one at a time.
  for (std::uint64_t seen = 0;; ++seen) {
    const auto awaited = [this, seen] { return stopping_ || round_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(spin_, awaited)) {
      std::unique_lock lock(mutex_);
      work_ready_.wait(lock, awaited);
    }
    if (stopping_) return;

    run_share(thread);

    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      { const std::lock_guard lock(mutex_); }
      work_done_.notify_one();
    }
  }
}

}  // namespace gipo
