#pragma once

#include <atomic>
#include <cstdint>

namespace gipo {

// What is made of the signals that ask a run to end. One person's or tool's request may come as several signals:
// `timeout` sends two, a terminal one to each process of its group. All functions may be called by a signal handler.
class SignalRequest {
 public:
  enum class Heard {
    kFirst,  // the run is to stop
    kSame,   // within a second of the first: the same request once more
    kAgain,  // later: not to be waited for any longer
  };
  Heard hear();
  // The first signal's line on standard error.
  static void say_stopping();

  const std::atomic<bool>& stop() const { return stop_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> first_ms_{0};
  static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);
};

}  // namespace gipo
