#include "gipo/train/observer.h"

#include <gtest/gtest.h>

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
  const std::span<const float> floats = observer.floats(1);
  EXPECT_EQ(std::vector<float>(floats.begin(), floats.end()), std::vector<float>(numbers.begin(), numbers.end()));
  EXPECT_EQ(observer.masks(), nullptr);
  for (const float v : observer.floats(2)) EXPECT_EQ(v, 0) << "another environment's";
}

// A task of fields: a choice, a number for the critic alone, and a mask of three actions.
class Fielded final : public Env {
 public:
  explicit Fielded(std::int32_t choice) : Env(spec_of()), choice_(choice) {}
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
    const double secret = 0.5 * choice_;
    const std::uint8_t mask[3] = {1, 0, static_cast<std::uint8_t>(choice_ % 2)};
    std::memcpy(out[0], &choice_, sizeof choice_);
    std::memcpy(out[1], &secret, sizeof secret);
    std::memcpy(out[2], mask, sizeof mask);
  }
  void save_physics(ByteWriter&) const override {}
  void load_physics(ByteReader&) override {}

 private:
  void start_episode(RandomStream&) override {}
  Outcome advance(std::span<const double>) override { return {}; }
  std::int32_t choice_;
};

TEST(Observer, FieldsAreKeptAsTheyAreAndReadAsFloats) {
  Observer observer(Fielded::spec_of().fields, 2);
  observer.observe(Fielded(3), 0);
  observer.observe(Fielded(2), 1);
  EXPECT_EQ(std::vector<float>(observer.floats(), observer.floats() + 10),
            (std::vector<float>{0, 0, 0, 1, 1.5F, 0, 0, 1, 0, 1.0F}));
  EXPECT_EQ(std::vector<std::uint8_t>(observer.masks(), observer.masks() + 6),
            (std::vector<std::uint8_t>{1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(observer.mask(1), observer.masks() + 3);
  std::int32_t choice = 0;
  std::memcpy(&choice, observer.field(0, 1).data(), sizeof choice);
  EXPECT_EQ(choice, 2);
  EXPECT_EQ(observer.field(2, 0).size(), 3u);
}

}  // namespace
}  // namespace gipo
