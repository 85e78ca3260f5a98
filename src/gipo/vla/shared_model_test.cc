#include "gipo/vla/shared_model.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "gipo/core/error.h"

namespace gipo {
namespace {

// Says of each sample its proprio, and remembers how large batches were.
class Echo final : public LargeModel {
 public:
  explicit Echo(std::vector<std::int64_t>& batches) : LargeModel({}), batches_(batches) {}
  VlaOutputs act(const VlaInputs& in) override {
    batches_.push_back(in.n);
    VlaOutputs out;
    for (std::int64_t i = 0; i < in.n; ++i) {
      const float v = in.proprio[static_cast<std::size_t>(i)];
      if (v < 0) throw Error("no such state");
      EXPECT_EQ(in.prompts[static_cast<std::size_t>(i)][0], static_cast<std::int32_t>(v));
      out.values.push_back(v);
      out.logits.insert(out.logits.end(), {v + 0.25F, v + 0.5F});
    }
    return out;
  }
  void fill(std::uint64_t) override {}
  void set_tensor(std::size_t, TensorType, std::string_view) override {}
  TensorType tensor_type() const override { return TensorType::kF32; }
  void get_tensor(std::size_t, bool, const std::function<void(std::string_view)>&) const override {}
  std::vector<float> gradient(std::size_t) override { return {}; }
  VlaOutputs infer(const VlaInputs& in) override { return act(in); }
  void begin_average() override {}
  VlaOutputs infer_average(const VlaInputs& in) override { return act(in); }
  VlaFigures accumulate(const VlaSamples&, const VlaObjective&, std::int64_t) override { return {}; }
  void accumulate(const VlaInputs&, std::span<const float>, std::span<const float>) override {}
  std::array<double, 2> norms() override { return {}; }
  void drop_gradient() override {}
  double step(const VlaStep&) override { return 0; }
  std::size_t state_bytes() const override { return 0; }
  void save_state(const std::function<void(std::string_view)>&) const override {}
  void load_state(const std::function<void(char*, std::size_t)>&) override {}
  double peak_bytes() override { return 0; }
  void wait() override {}

 private:
  std::vector<std::int64_t>& batches_;
};

struct Asked {
  std::vector<float> proprio;
  std::vector<std::int32_t> prompt;
  VlaInputs inputs;

  Asked(float value, std::int64_t n) : proprio(static_cast<std::size_t>(n), value) {
    prompt = {static_cast<std::int32_t>(value)};
    inputs.n = n, inputs.proprio = proprio;
    inputs.prompts.assign(static_cast<std::size_t>(n), prompt);
  }
};

void wait_a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

TEST(SharedModel, ThoseWhoWaitAreServedTogether) {
  std::vector<std::int64_t> batches;
  SharedModel model(std::make_unique<Echo>(batches));
  std::vector<std::thread> actors;
  model.with([&](LargeModel&) {  // the learner
    for (const std::int64_t n : {2, 3, 2, 4}) {
      actors.emplace_back([&model, n, value = static_cast<float>(actors.size())] {
        const Asked a(value, n);
        const VlaOutputs out = model.act(a.inputs, 7);
        EXPECT_EQ(out.values, std::vector<float>(static_cast<std::size_t>(n), value));
        ASSERT_EQ(out.logits.size(), static_cast<std::size_t>(2 * n));
        for (std::size_t i = 0; i < out.logits.size(); ++i) {
          EXPECT_EQ(out.logits[i], value + (i % 2 == 0 ? 0.25F : 0.5F));
        }
      });
      wait_a_little();
    }
  });
  for (std::thread& actor : actors) actor.join();
  EXPECT_EQ(batches, (std::vector<std::int64_t>{7, 4}));
}

TEST(SharedModel, NobodyWaitsForOthersToAsk) {
  std::vector<std::int64_t> batches;
  SharedModel model(std::make_unique<Echo>(batches));
  const Asked a(1, 2);
  EXPECT_EQ(model.act(a.inputs, 100).values.size(), 2U);
  EXPECT_EQ(model.act(a.inputs, 1).values.size(), 2U);  // more than a batch should have, and alone
  EXPECT_EQ(batches, (std::vector<std::int64_t>{2, 2}));
}

TEST(SharedModel, AnErrorReachesThoseWhoAsked) {
  std::vector<std::int64_t> batches;
  SharedModel model(std::make_unique<Echo>(batches));
  EXPECT_THROW(model.act(Asked(-1, 1).inputs, 4), Error);
  EXPECT_EQ(model.act(Asked(3, 1).inputs, 4).values[0], 3);
}

// Many at once, with a learner between them.
TEST(SharedModel, EachIsGivenItsOwn) {
  std::vector<std::int64_t> batches;
  SharedModel model(std::make_unique<Echo>(batches));
  std::vector<std::thread> threads;
  threads.reserve(6);
  for (int actor = 0; actor < 6; ++actor) {
    threads.emplace_back([&model, actor] {
      for (int i = 0; i < 300; ++i) {
        const Asked a(static_cast<float>(100 * actor + i), 1 + (actor + i) % 3);
        const VlaOutputs out = model.act(a.inputs, 5);
        ASSERT_EQ(out.values, a.proprio);
      }
    });
  }
  for (int i = 0; i < 300; ++i) model.with([](LargeModel&) { std::this_thread::yield(); });
  for (std::thread& t : threads) t.join();
  for (const std::int64_t n : batches) EXPECT_TRUE(n > 0 && n <= 5) << n;
}

}  // namespace
}  // namespace gipo
