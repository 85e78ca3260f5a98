#include "gipo/core/queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace gipo {
namespace {

using namespace std::chrono_literals;

TEST(ClosableQueue, FirstInFirstOut) {
  ClosableQueue<int> queue;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(queue.push(i));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(queue.pop(), i);
  EXPECT_EQ(queue.try_pop(), std::nullopt);
}

TEST(ClosableQueue, ClosedQueueGivesWhatIsLeftAndTakesNothing) {
  ClosableQueue<int> queue;
  queue.push(1);
  queue.push(2);
  queue.close();
  queue.close();
  EXPECT_FALSE(queue.push(3));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.try_pop(), 2);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_EQ(queue.try_pop(), std::nullopt);
}

TEST(ClosableQueue, CloseWakesEveryWaiter) {
  ClosableQueue<int> queue;
  std::atomic<int> woken{0};
  {
    std::vector<std::jthread> waiters;
    waiters.reserve(4);
    for (int i = 0; i < 4; ++i) {
      waiters.emplace_back([&] {
        if (!queue.pop()) ++woken;
      });
    }
    std::this_thread::sleep_for(20ms);  // most wait by now; those that do not yet must not wait either
    EXPECT_EQ(woken, 0);
    queue.close();
  }
  EXPECT_EQ(woken, 4);
}

TEST(ClosableQueue, PushWakesAWaiter) {
  ClosableQueue<int> queue;
  std::jthread pusher([&] {
    std::this_thread::sleep_for(10ms);
    queue.push(7);
  });
  EXPECT_EQ(queue.pop(), 7);
}

TEST(ClosableQueue, ThreadsPassEveryItemOnce) {
  const int producers = 3, each = 2000;
  ClosableQueue<std::unique_ptr<int>> queue;
  std::vector<std::atomic<int>> seen(producers * each);
  {
    std::vector<std::jthread> consumers;
    consumers.reserve(3);
    for (int c = 0; c < 3; ++c) {
      consumers.emplace_back([&] {
        while (const auto item = queue.pop()) ++seen[static_cast<std::size_t>(**item)];
      });
    }
    {
      std::vector<std::jthread> threads;
      threads.reserve(producers);
      for (int p = 0; p < producers; ++p) {
        threads.emplace_back([&, p] {
          for (int i = 0; i < each; ++i) EXPECT_TRUE(queue.push(std::make_unique<int>(p * each + i)));
        });
      }
    }
    queue.close();
  }
  for (const auto& count : seen) ASSERT_EQ(count, 1);
}

}  // namespace
}  // namespace gipo
