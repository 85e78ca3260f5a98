#include "gipo/core/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>

#include "gipo/core/error.h"

namespace gipo {
namespace {

TEST(ThreadPool, RunsEveryJobOnce) {
  for (const std::size_t threads : {1u, 2u, 3u, 8u}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::size_t count : {0u, 1u, 2u, 7u, 8u, 100u}) {
      std::vector<int> ran(count, 0);
      pool.run(count, [&](std::size_t i) { ++ran[i]; });
      EXPECT_EQ(ran, std::vector<int>(count, 1)) << threads << " threads";
    }
  }
}

// Waits until the flag is set; false after a time that only a deadlock takes.
bool comes_true(const std::atomic<bool>& flag) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!flag && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return flag;
}

// Job 1 holds up the thread that runs it until job 3, the next of the same share, has been run by another.
TEST(ThreadPool, WhatAHeldUpThreadHasNotBegunIsRunByAnother) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> ran{false};
    pool.run(4, [&](std::size_t i) {
      if (i == 3) ran = true;
      if (i == 1) {
        EXPECT_TRUE(comes_true(ran));
        ran = true;
      }
    });
    ASSERT_FALSE(HasFailure());
  }
}

// The caller's own share goes to helpers too.
TEST(ThreadPool, HelpersRunWhatTheCallerHasNotBegun) {
  ThreadPool pool(2);
  std::atomic<bool> ran{false};
  pool.run(3, [&](std::size_t i) {
    if (i == 2) ran = true;
    if (i == 0) {
      EXPECT_TRUE(comes_true(ran));
    }
  });
}

TEST(ThreadPool, TheFirstJobIsTheCallers) {
  ThreadPool pool(3);
  for (int round = 0; round < 200; ++round) {
    std::thread::id first;
    pool.run(9, [&](std::size_t i) {
      if (i == 0) first = std::this_thread::get_id();
    });
    EXPECT_EQ(first, std::this_thread::get_id());
  }
}

// More threads than any machine here has cores: most helpers come late, by whole rounds, while the frame of a round that
// has ended is written over by the next. Plain memory, so that a job run twice or too late is seen by the sanitizer.
TEST(ThreadPool, LateHelpersFindNothingOfAnEarlierRound) {
  ThreadPool pool(64);
  for (std::size_t round = 0; round < 3000; ++round) {
    std::array<std::size_t, 7> ran{};
    const std::size_t count = round % 8;
    pool.run(count, [&ran, round](std::size_t i) { ran[i] += round; });
    for (std::size_t i = 0; i < ran.size(); ++i) ASSERT_EQ(ran[i], i < count ? round : 0);
  }
}

TEST(ThreadPool, OneThreadRunsInlineInOrder) {
  ThreadPool pool(1);
  std::vector<std::size_t> order;
  pool.run(5, [&](std::size_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

// Plain memory, many short rounds: what one round wrote the next may read, on another thread too.
TEST(ThreadPool, RoundsSeeEachOther) {
  ThreadPool pool(4);
  std::vector<long> now(16, 1), next(16);
  for (int round = 0; round < 2000; ++round) {
    pool.run(16, [&](std::size_t i) { next[i] = (now[i] + now[(i + 1) % 16]) % 1'000'003; });
    pool.run(16, [&](std::size_t i) { now[i] = next[i]; });
  }
  for (const long value : now) EXPECT_EQ(value, now[0]);
}

TEST(ThreadPool, WorksAfterAPause) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    // Longer than any spin: the workers sleep, then the caller does.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::vector<int> ran(2, 0);
    pool.run(2, [&](std::size_t i) {
      if (i == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++ran[i];
    });
    EXPECT_EQ(ran, (std::vector<int>{1, 1}));
  }
}

TEST(ThreadPool, RethrowsTheLowestIndexAndStaysUsable) {
  for (const std::size_t threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      try {
        pool.run(20, [](std::size_t i) {
          if (i >= 7) throw std::runtime_error(std::to_string(i));
        });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& e) {
        EXPECT_STREQ(e.what(), "7");
      }
      int sum = 0;
      pool.run(1, [&](std::size_t) { ++sum; });
      EXPECT_EQ(sum, 1);
    }
  }
}

TEST(ThreadPool, AThrowLeavesNoLowerJobOut) {
  for (const std::size_t threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      std::array<int, 20> ran{};
      EXPECT_THROW(pool.run(ran.size(),
                            [&](std::size_t i) {
                              ++ran[i];
                              if (i == 11) throw std::runtime_error("eleven");
                            }),
                   std::runtime_error);
      for (std::size_t i = 0; i < ran.size(); ++i) ASSERT_TRUE(ran[i] == 1 || (i > 11 && ran[i] == 0)) << i;
    }
  }
}

TEST(ThreadPool, NestedRunIsRefused) {
  for (const std::size_t threads : {1u, 2u}) {
    ThreadPool pool(threads);
    EXPECT_THROW(pool.run(2, [&](std::size_t) { pool.run(1, [](std::size_t) {}); }), InvariantError);
  }
}

TEST(ThreadPool, TakesConstAndMutableJobs) {
  ThreadPool pool(2);
  std::vector<int> ran(4, 0);
  const auto constant = [&](std::size_t i) { ran[i] = 1; };
  pool.run(4, constant);
  struct Counter {
    std::vector<int> seen = std::vector<int>(4, 0);
    void operator()(std::size_t i) { ++seen[i]; }
  } counter;
  pool.run(4, counter);
  EXPECT_EQ(ran, counter.seen);
}

TEST(ThreadPool, ManyPoolsComeAndGo) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(3);
    if (round % 2 == 0) pool.run(3, [](std::size_t) {});
  }
}

}  // namespace
}  // namespace gipo
