#include "gipo/core/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "gipo/core/error.h"

namespace gipo {
namespace {

// Work often follows work within microseconds, sooner than a sleeping thread wakes. Where every thread can have a core of
// its own, waiting awake takes little from anyone; otherwise the core is wanted by whoever has something to do.
constexpr std::chrono::microseconds kSpin{300}, kSpinOversubscribed{5};
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
constexpr std::uint64_t kCountMask = 0xffff'ffff;

bool is_open(std::uint64_t share) { return share >> 32 < (share & kCountMask); }

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The core that this thread runs on.
int present_core() { return sched_getcpu(); }

// True as soon as ready() is; false after the time, or when other_core says that the thread that is waited for needs this
// core to go on. Never gives the core away (sched_yield): beside a busy neighbour that costs a whole time slice.
template <class Ready>
bool spin_until(std::chrono::microseconds time, const std::atomic<int>& other_core, Ready ready) {
  if (ready()) return true;
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    if (other_core.load(std::memory_order_relaxed) == present_core()) return false;
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

}  // namespace

ThreadPool::ThreadPool(std::size_t threads)
    : shares_(threads), spin_(threads <= std::thread::hardware_concurrency() ? kSpin : kSpinOversubscribed) {
  GIPO_CHECK(threads >= 1);
  helpers_.reserve(threads - 1);
  try {
    for (std::size_t thread = 1; thread < threads; ++thread) helpers_.emplace_back([this, thread] { serve(thread); });
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
    ++round_;
  }
  work_ready_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::run_erased(const Work& work) {
  GIPO_CHECK(!running_.exchange(true));
  work_ = work;
  error_index_ = kNone;

  // A single job is the caller's in any case: do not wake the others for it.
  if (helpers_.empty() || work.count <= 1) {
    unfinished_ = work.count;
    for (std::size_t i = 0; i < work.count; ++i) run_job(i);
  } else {
    open_round();
    run_job(0);
    run_claimed(0);
    wait_for_helpers();
  }
  running_ = false;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// Job 0 is the caller's from the start.
void ThreadPool::open_round() {
  GIPO_CHECK(work_.count <= kCountMask - threads());
  unfinished_.store(work_.count, std::memory_order_relaxed);
  caller_core_.store(present_core(), std::memory_order_relaxed);
  for (std::size_t thread = 0; thread < threads(); ++thread) {
    const std::uint64_t first = thread == 0 ? threads() : thread;
    shares_[thread].open.store(first << 32 | work_.count, std::memory_order_release);
  }
  round_.fetch_add(1);  // in one order with asleep_: a helper sees the round before it sleeps, or is counted there

  const std::size_t wanted = std::min(work_.count - 1, helpers_.size()), asleep = asleep_;
  const std::size_t awake = helpers_.size() - asleep;
  if (asleep == 0 || awake >= wanted) return;
  { const std::lock_guard lock(mutex_); }
  for (std::size_t i = awake; i < wanted; ++i) work_ready_.notify_one();
}

void ThreadPool::wait_for_helpers() {
  const auto done = [this] { return unfinished_ == 0; };
  if (spin_until(spin_, helper_core_, done)) return;
  std::unique_lock lock(mutex_);
  caller_asleep_ = true;
  work_done_.wait(lock, done);
  caller_asleep_ = false;
}

// The thread's own share first, then what is left of the others'.
void ThreadPool::run_claimed(std::size_t thread) {
  for (std::size_t k = 0; k < threads(); ++k) {
    Share& share = shares_[(thread + k) % threads()];
    while (const auto i = claim(share)) run_job(*i);
  }
}

std::optional<std::size_t> ThreadPool::claim(Share& share) {
  std::uint64_t open = share.open.load(std::memory_order_relaxed);
  do {
    if (!is_open(open)) return std::nullopt;
  } while (!share.open.compare_exchange_weak(open, open + (threads() << 32), std::memory_order_acquire,
                                             std::memory_order_relaxed));
  return open >> 32;
}

void ThreadPool::run_job(std::size_t i) {
  try {
    if (i < error_index_.load(std::memory_order_relaxed)) work_.call(work_.job, i);
  } catch (...) {
    const std::lock_guard lock(error_mutex_);
    if (i < error_index_) {
      error_index_ = i;
      error_ = std::current_exception();
    }
  }
  // From here on the caller may return, and the round may be another.
  if (unfinished_.fetch_sub(1) == 1 && caller_asleep_) {
    { const std::lock_guard lock(mutex_); }
    work_done_.notify_one();
  }
}

void ThreadPool::serve(std::size_t thread) {
  std::uint64_t seen = 0;
  const auto awaited = [&] { return round_ != seen; };
  while (!stopping_) {
    if (!spin_until(spin_, caller_core_, awaited)) {
      std::unique_lock lock(mutex_);
      ++asleep_;
      work_ready_.wait(lock, awaited);
      --asleep_;
    }
    helper_core_.store(present_core(), std::memory_order_relaxed);
    seen = round_;
    run_claimed(thread);
  }
}

}  // namespace gipo
