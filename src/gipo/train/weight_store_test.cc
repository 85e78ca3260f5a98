#include "gipo/train/weight_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "gipo/learner/learner.h"

namespace gipo {
namespace {

// Weights that all equal the version, so that a mixture of two is seen.
class CountingLearner : public Learner {
 public:
  explicit CountingLearner(std::size_t size) : size_(size) {}

  void stage(const Batch&) override {}
  void begin_update(const UpdateContext&) override {}
  const UpdateStats& figures() override { return stats_; }
  std::vector<std::pair<std::string, std::vector<double>>> gradients() const override { return {}; }
  Diagnostics& diagnostics() override { return diagnostics_; }
  std::int64_t version() const override { return version_; }
  std::int64_t skipped_updates() const override { return 0; }
  void set_observation_scale(const RunningMoments&) override {}
  void set_reward_scale(const RunningMoments&) override {}
  void copy_weights(Weights& out) const override {
    out.version = version_;
    const auto value = static_cast<float>(version_);
    out.policy.assign(size_, value);
    out.critic.assign(size_, value);
    out.scale.mean.assign(4, value);
    out.scale.inverse_std.assign(4, value);
  }
  std::vector<LearnerTensor> tensors() override { return {}; }
  void save_rest(ByteWriter&) const override {}
  void load_rest(ByteReader&) override {}

  void advance() { ++version_; }

 private:
  std::size_t size_;
  std::int64_t version_ = 0;
  UpdateStats stats_;
  Diagnostics diagnostics_;
};

bool whole(const Weights& w) {
  const auto is_version = [&](float v) { return v == static_cast<float>(w.version); };
  return std::ranges::all_of(w.policy, is_version) && std::ranges::all_of(w.critic, is_version) &&
         std::ranges::all_of(w.scale.mean, is_version) && std::ranges::all_of(w.scale.inverse_std, is_version);
}

TEST(WeightStore, ReadersSeeWholeSnapshotsThatNeverGoBack) {
  CountingLearner learner(512);
  WeightStore store;
  store.publish(learner);
  std::atomic<bool> done{false};
  std::atomic<int> torn{0}, backwards{0};
  std::atomic<std::int64_t> reads{0};
  {
    std::vector<std::jthread> readers;
    readers.reserve(3);
    for (int i = 0; i < 3; ++i) {
      readers.emplace_back([&, i] {
        std::int64_t last = -1;
        std::shared_ptr<const Weights> kept;
        while (!done) {
          const std::shared_ptr<const Weights> w = store.get();
          if (!whole(*w)) ++torn;
          if (w->version < last) ++backwards;
          last = w->version;
          ++reads;
          // One reader keeps a snapshot over many updates, as an evaluator does.
          if (i == 0 && (!kept || kept->version + 50 < last)) kept = w;
          if (kept && !whole(*kept)) ++torn;
        }
      });
    }
    for (int u = 0; u < 3000 || reads < 300; ++u) {
      learner.advance();
      store.publish(learner);
    }
    done = true;
  }
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(backwards, 0);
  EXPECT_EQ(store.get()->version, learner.version());
}

TEST(WeightStore, SnapshotThatIsHeldIsNeverWritten) {
  CountingLearner learner(16);
  WeightStore store;
  store.publish(learner);
  std::vector<std::shared_ptr<const Weights>> held;
  for (std::int64_t u = 0; u < 20; ++u) {
    held.push_back(store.get());
    learner.advance();
    store.publish(learner);
    for (std::size_t i = 0; i < held.size(); ++i) {
      ASSERT_EQ(held[i]->version, static_cast<std::int64_t>(i));
      ASSERT_TRUE(whole(*held[i]));
    }
  }
}

TEST(WeightStore, BuffersAreUsedAgain) {
  CountingLearner learner(64);
  WeightStore store;
  std::set<const void*> buffers;
  std::shared_ptr<const Weights> reader;
  for (int u = 0; u < 100; ++u) {
    learner.advance();
    store.publish(learner);
    reader = store.get();
    buffers.insert(reader->policy.data());
  }
  // The newest, the one the reader still had, and one to write.
  EXPECT_LE(buffers.size(), 3u);
  EXPECT_GE(buffers.size(), 2u);
}

}  // namespace
}  // namespace gipo
