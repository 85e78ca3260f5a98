#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace gipo {

// A queue between threads that can be closed: pop then returns what is left and after that nothing; push is refused.
// Any thread may call any function.
template <class T>
class ClosableQueue {
 public:
  bool push(T value) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }
  // Waits for an item; nothing once the queue is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return take();
  }
  // The same, but not for longer than this.
  std::optional<T> pop_within(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, most, [&] { return closed_ || !items_.empty(); });
    return take();
  }
  // Does not wait.
  std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    return take();
  }
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

 private:
  std::optional<T> take() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> value(std::move(items_.front()));
    items_.pop_front();
    return value;
  }

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace gipo
