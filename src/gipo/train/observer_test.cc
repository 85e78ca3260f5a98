#include "gipo/train/observer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gipo/env/env.h"

namespace gipo {
namespace {

TEST(Observer, ANativeTaskGivesItsNumbersAsFloats) {
  const std::unique_ptr<Env> env = make_env("CartPole-v1");
  ASSERT_EQ(env->spec().fields, plain_fields(4));
  env->reset(5);
  std::vector<double> numbers(4);
  env->observe(numbers);
  Observer observer(env->spec().fields, 3);
  observer.observe(*env, 1);
  const std::span<const float> all = observer.plain();
  EXPECT_EQ(std::vector<float>(all.begin() + 4, all.begin() + 8), std::vector<float>(numbers.begin(), numbers.end()));
  EXPECT_EQ(std::count(all.begin() + 8, all.end(), 0.0F), 4) << "another environment's";
  EXPECT_EQ(reinterpret_cast<const std::byte*>(all.data()), observer.columns()[0]);
  EXPECT_EQ(observer.mask(1), nullptr);
  EXPECT_TRUE(observer.finite(1));
  observer.move(1, 2);
  EXPECT_TRUE(std::equal(all.begin() + 8, all.end(), all.begin() + 4));
}

// A task of fields: a choice, a number for the critic alone, and a mask of three actions.
class Fielded final : public Env {
 public:
  explicit Fielded(std::int32_t choice) : Fielded(choice, 0.5 * choice) {}
  Fielded(std::int32_t choice, double secret) : Env(spec_of()), choice_(choice), secret_(secret) {}
  static EnvSpec spec_of() {
    EnvSpec spec;
    spec.id = "Fielded";
    spec.action = ActionSpace::discrete(3);
    spec.fields = {{"choice", DType::kInt32, {1}, Role::kPolicy, {4}},
                   {"secret", DType::kFloat64, {1}, Role::kCritic},
                   {"mask", DType::kUint8, {3}, Role::kMask}};
    spec.observation_size = floats_of(spec.fields);
    return spec;
  }
  void observe(std::span<double>) const override {}
  void observe_fields(ObservationRow out) const override {
    const std::uint8_t mask[3] = {1, 0, static_cast<std::uint8_t>(choice_ % 2)};
    std::memcpy(out[0], &choice_, sizeof choice_);
    std::memcpy(out[1], &secret_, sizeof secret_);
    std::memcpy(out[2], mask, sizeof mask);
  }
  void save_physics(ByteWriter&) const override {}
  void load_physics(ByteReader&) override {}

 private:
  void start_episode(RandomStream&) override {}
  Outcome advance(std::span<const double>) override { return {}; }
  std::int32_t choice_;
  double secret_;
};

TEST(Observer, FieldsAreKeptAsTheyAre) {
  const Fields fields = Fielded::spec_of().fields;
  Observer observer(fields, 2);
  observer.observe(Fielded(3), 0);
  observer.observe(Fielded(2), 1);
  std::vector<float> floats(10);
  encode(fields, observer.columns(), 2, floats.data());
  EXPECT_EQ(floats, (std::vector<float>{0, 0, 0, 1, 1.5F, 0, 0, 1, 0, 1.0F}));
  const std::uint8_t* masks = observer.mask(0);
  EXPECT_EQ(std::vector<std::uint8_t>(masks, masks + 6), (std::vector<std::uint8_t>{1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(observer.mask(1), masks + 3);
  std::int32_t choice = 0;
  std::memcpy(&choice, observer.field(0, 1).data(), sizeof choice);
  EXPECT_EQ(choice, 2);
  EXPECT_EQ(observer.field(2, 0).size(), 3u);
}

// A double that no float can hold would reach the networks as an infinity.
TEST(Observer, NumbersThatAreNotFiniteAsFloatsAreFound) {
  Observer observer(Fielded::spec_of().fields, 1);
  for (const auto& [secret, finite] : {std::pair(0.5, true), {HUGE_VAL, false}, {1e300, false}}) {
    observer.observe(Fielded(1, secret), 0);
    EXPECT_EQ(observer.finite(0), finite) << secret;
  }
}

}  // namespace
}  // namespace gipo
