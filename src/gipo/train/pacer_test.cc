#include "gipo/train/pacer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <thread>
#include <vector>

namespace gipo {
namespace {

using namespace std::chrono_literals;

struct Pace {
  std::int64_t warmup;
  double steps_per_update;
  std::int64_t slack;
  int actors;
  std::int64_t steps;  // of a round of one actor
  int updates;
};

std::int64_t due(const Pace& p, std::int64_t update) {
  return p.warmup + static_cast<std::int64_t>(std::floor(static_cast<double>(update) * p.steps_per_update));
}

struct Outcome {
  std::atomic<std::int64_t> updates{0}, too_far{0}, too_early{0};
};

// Actors and a learner held together by a pacer, until all updates are done.
void run_paced(const Pace& p, Pacer& pacer, Outcome& outcome) {
  std::vector<std::jthread> actors;
  actors.reserve(static_cast<std::size_t>(p.actors));
  for (int i = 0; i < p.actors; ++i) {
    actors.emplace_back([&] {
      while (const std::optional<std::int64_t> before = pacer.begin(p.steps)) {
        if (*before >= due(p, outcome.updates.load()) + p.slack) ++outcome.too_far;
        std::this_thread::yield();
        pacer.end(p.steps, p.steps);
      }
    });
  }
  for (int u = 0; u < p.updates && pacer.wait_to_update(u); ++u) {
    if (pacer.env_steps() < due(p, u)) ++outcome.too_early;
    ++outcome.updates;  // before the pacer knows: an actor never sees fewer updates than the pacer did
    pacer.updated(u + 1);
  }
  pacer.stop();
}

TEST(Pacer, BoundHoldsAndNobodyWaitsForever) {
  for (const Pace& p : {Pace{40, 8, 32, 2, 4, 400}, Pace{1, 0.1, 0, 3, 7, 400}, Pace{10, 1, 0, 4, 1, 400},
                        Pace{5, 0.37, 2, 2, 16, 400}, Pace{100, 64, 256, 3, 4, 100}, Pace{3, 5, 1, 1, 2, 400}}) {
    Pacer pacer([&p](std::int64_t u) { return due(p, u); }, p.slack, false);
    Outcome outcome;
    auto run = std::async(std::launch::async, [&] { run_paced(p, pacer, outcome); });
    if (run.wait_for(600s) != std::future_status::ready) {
      ADD_FAILURE() << "all wait, with pace " << p.steps_per_update << " and slack " << p.slack;
      pacer.stop();
    }
    run.get();
    EXPECT_EQ(outcome.updates, p.updates);
    EXPECT_EQ(outcome.too_far, 0) << "env steps ran ahead of the bound, pace " << p.steps_per_update;
    EXPECT_EQ(outcome.too_early, 0) << "an update came before its env steps, pace " << p.steps_per_update;
    EXPECT_LE(pacer.env_steps(), due(p, p.updates) + p.slack + p.steps);
  }
}

TEST(Pacer, CollectingStopsAtTheSlackAndGoesOnWithAnUpdate) {
  Pacer pacer([](std::int64_t u) { return 10 + 5 * u; }, 4, false);
  for (std::int64_t taken = 0; taken < 10 + 4; ++taken) {
    EXPECT_EQ(pacer.begin(1), taken);
    pacer.end(1, 1);
  }
  auto waiting = std::async(std::launch::async, [&] { return pacer.begin(1); });
  EXPECT_EQ(waiting.wait_for(30ms), std::future_status::timeout) << "beyond the slack";
  pacer.updated(1);
  EXPECT_EQ(waiting.get(), 14);
}

TEST(Pacer, StepsOfAnActorThatWasLostAreTakenByOthers) {
  Pacer pacer([](std::int64_t) { return 8; }, 0, false);
  EXPECT_EQ(pacer.begin(8), 0);  // by one that dies after 3 of them
  auto other = std::async(std::launch::async, [&] { return pacer.begin(8); });
  EXPECT_EQ(other.wait_for(30ms), std::future_status::timeout) << "all that are due are begun";
  pacer.end(8, 3);
  EXPECT_EQ(other.get(), 3);
  pacer.end(8, 8);
  EXPECT_TRUE(pacer.wait_to_update(0));
  EXPECT_EQ(pacer.env_steps(), 11);
}

TEST(Pacer, UpdateWaitsForFinishedStepsNotForBegunOnes) {
  Pacer pacer([](std::int64_t) { return 8; }, 100, false);
  EXPECT_EQ(pacer.begin(8), 0);
  auto waiting = std::async(std::launch::async, [&] { return pacer.wait_to_update(0); });
  EXPECT_EQ(waiting.wait_for(30ms), std::future_status::timeout);
  EXPECT_EQ(pacer.env_steps(), 0);
  pacer.end(8, 8);
  EXPECT_TRUE(waiting.get());
  EXPECT_EQ(pacer.env_steps(), 8);
}

TEST(Pacer, StopWakesAllWhoWait) {
  Pacer pacer([](std::int64_t) { return 10; }, 0, false);
  EXPECT_EQ(pacer.begin(10), 0);  // and never ends them: both sides wait
  std::vector<std::future<bool>> waiting;
  for (int i = 0; i < 2; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] { return pacer.begin(1).has_value(); }));
    waiting.push_back(std::async(std::launch::async, [&] { return pacer.wait_to_update(0); }));
  }
  for (const auto& w : waiting) EXPECT_EQ(w.wait_for(10ms), std::future_status::timeout);
  pacer.stop();
  for (auto& w : waiting) EXPECT_FALSE(w.get());
  EXPECT_FALSE(pacer.begin(1));
  EXPECT_FALSE(pacer.wait_to_update(0));
}

TEST(Pacer, AheadIsTakenOfWhatIsLeftBesideTheReserve) {
  Pacer pacer([](std::int64_t u) { return 100 * u; }, 50, false);
  EXPECT_EQ(pacer.try_begin_ahead(10, 9, 20).blocks, 3);  // of 50 steps
  EXPECT_EQ(pacer.try_begin_ahead(10, 9, 20).blocks, 0);
  EXPECT_EQ(pacer.try_begin_ahead(10, 9, 0).blocks, 2) << "the reserve is there for whom it was kept";
  pacer.updated(1);
  const Pacer::Ahead ahead = pacer.try_begin_ahead(10, 4, 20);
  EXPECT_EQ(ahead.env_steps, 50);
  EXPECT_EQ(ahead.blocks, 4);
  pacer.stop();
  EXPECT_EQ(pacer.try_begin_ahead(10, 4, 0).blocks, 0);
}

TEST(Pacer, FreeRunWaitsForTheWarmUpAlone) {
  Pacer pacer([](std::int64_t u) { return 10 + 1000 * u; }, 0, true);
  auto collecting = std::async(std::launch::async, [&] {
    for (int i = 0; i < 50 && pacer.begin(1); ++i) {
    }
  });
  if (collecting.wait_for(600s) != std::future_status::ready) pacer.stop();
  collecting.get();
  ASSERT_EQ(pacer.begin(0), 50) << "actors never wait";
  auto waiting = std::async(std::launch::async, [&] { return pacer.wait_to_update(0); });
  EXPECT_EQ(waiting.wait_for(20ms), std::future_status::timeout) << "updates wait for the warm-up";
  pacer.end(10, 10);
  EXPECT_TRUE(waiting.get());
  EXPECT_TRUE(pacer.wait_to_update(500)) << "and for nothing else";
  pacer.stop();
  EXPECT_FALSE(pacer.begin(1));
}

}  // namespace
}  // namespace gipo
