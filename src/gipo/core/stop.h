#pragma once

#include <atomic>
#include <exception>

namespace gipo {

// Work that was asked to stop ended before it was done. Not an error: whoever asked catches it.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

// Asks work to end early: requested by its owner, or by a flag outside, which a signal may set. Whatever may wait or play
// for long looks at it several times a second. Any thread may call any function.
class Stop {
 public:
  explicit Stop(const std::atomic<bool>* outside = nullptr) : outside_(outside) {}

  void request() { inside_.store(true, std::memory_order_relaxed); }
  bool requested() const { return inside_.load(std::memory_order_relaxed) || from_outside(); }
  bool from_outside() const { return outside_ && outside_->load(std::memory_order_relaxed); }

 private:
  const std::atomic<bool>* outside_;
  std::atomic<bool> inside_{false};
};

inline void throw_if_requested(const Stop* stop) {
  if (stop && stop->requested()) throw Interrupted();
}

}  // namespace gipo
