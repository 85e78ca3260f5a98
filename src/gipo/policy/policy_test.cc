// The policy as its users know it: through the interface alone.
#include "gipo/policy/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace gipo {
namespace {

constexpr std::size_t kRows = 16;

// A choice of three and a number, from a choice of four, two bytes of an image and a double for the critic alone; a mask.
EnvSpec task() {
  EnvSpec env;
  env.id = "T";
  env.action = {ActionSpace::Kind::kComposed, {3, 0}, {0, -1}, {0, 1}};
  env.fields = {{"choice", DType::kInt32, {1}, Role::kPolicy, {4}},
                {"secret", DType::kFloat64, {1}, Role::kCritic},
                {"image", DType::kUint8, {1, 2}, Role::kPolicy},
                {"mask", DType::kUint8, {3}, Role::kMask}};
  env.observation_size = floats_of(env.fields);
  return env;
}

struct Observations {
  std::vector<std::int32_t> choice = std::vector<std::int32_t>(kRows);
  std::vector<double> secret = std::vector<double>(kRows);
  std::vector<std::uint8_t> image = std::vector<std::uint8_t>(2 * kRows),
                            mask = std::vector<std::uint8_t>(3 * kRows, 1);
  std::vector<const std::byte*> columns;

  Observations() {
    RandomStream random(1);
    for (auto& v : choice) v = static_cast<std::int32_t>(random.below(4));
    for (auto& v : secret) v = random.normal();
    for (auto& v : image) v = static_cast<std::uint8_t>(random.below(256));
    for (std::size_t r = 0; r < kRows; ++r) mask[3 * r + r % 3] = 0;
    columns = {bytes(choice), bytes(secret), bytes(image), bytes(mask)};
  }
  template <class T>
  static const std::byte* bytes(const std::vector<T>& values) {
    return reinterpret_cast<const std::byte*>(values.data());
  }
};

struct Parameters {
  std::vector<double> policy, critic;
  ObservationScale scale;
  PolicyParameters<double> view() const { return {policy, critic, &scale}; }
};

Parameters random_parameters(const ModelSpec& spec, std::uint64_t seed) {
  Parameters p{std::vector<double>(parameter_count(spec, Part::kPolicy)),
               std::vector<double>(parameter_count(spec, Part::kCritic)),
               ObservationScale::identity(spec.observation_size)};
  RandomStream random(seed);
  for (double& v : p.policy) v = 0.5 * random.normal();
  for (double& v : p.critic) v = 0.5 * random.normal();
  return p;
}

ModelSpec model(std::int64_t shared) {
  PolicyOptions options;
  options.hidden = {6, 5};
  options.shared = shared;
  return make_model_spec(options, task());
}

TEST(Policy, TensorsTileTheParametersOfEachPartUnderNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Part part : {Part::kPolicy, Part::kCritic}) {
    std::size_t end = 0;
    for (const TensorSlice& s : tensors_of(model(1), part)) {
      EXPECT_EQ(s.offset, end) << s.name;
      end += s.values();
      EXPECT_TRUE(names.insert(s.name).second) << s.name;
    }
    EXPECT_EQ(end, parameter_count(model(1), part));
  }
  EXPECT_TRUE(names.contains("policy.log_std"));
}

// Typed fields, a mask, a critic that sees more: sampled actions have the log-prob that a learner would find.
TEST(Policy, ActionsThatAreChosenHaveTheLogProbThatALearnerFinds) {
  const ModelSpec spec = model(0);
  const Observations seen;
  const Parameters p = random_parameters(spec, 2);
  const auto policy = make_policy<double>(spec, {kRows, kRows});
  std::vector<float> action(2 * kRows), log_prob(2 * kRows), likely(2 * kRows);
  RandomStream random(3);
  std::vector<ActionRow> sampled, most_likely;
  for (std::size_t r = 0; r < kRows; ++r) {
    sampled.push_back({&random, {&action[2 * r], 2}, {&log_prob[2 * r], 2}});
    most_likely.push_back({nullptr, {&likely[2 * r], 2}, {}});
  }
  policy->see(p.view(), {seen.columns, kRows});
  policy->forward(kRows);
  for (int i = 0; i < 50; ++i) {
    policy->choose(sampled);
    const std::vector<double> actions(action.begin(), action.end());
    std::vector<double> found(2 * kRows);
    policy->log_prob(actions.data(), found.data());
    for (std::size_t k = 0; k < 2 * kRows; ++k) ASSERT_NEAR(log_prob[k], found[k], 1e-4);
    for (std::size_t r = 0; r < kRows; ++r) ASSERT_NE(action[2 * r], static_cast<float>(r % 3)) << "masked";
  }
  policy->choose(most_likely);
  for (std::size_t r = 0; r < kRows; ++r) {
    EXPECT_NE(likely[2 * r], static_cast<float>(r % 3));
    EXPECT_EQ(likely[2 * r + 1], static_cast<float>(policy->distribution().outputs[4 * r + 3]));
  }
}

TEST(Policy, OnlyTheCriticSeesWhatIsForIt) {
  for (const std::int64_t shared : {0, 1}) {
    const ModelSpec spec = model(shared);
    Observations seen;
    const Parameters p = random_parameters(spec, 2);
    const auto policy = make_policy<double>(spec, {kRows});
    const auto both = [&] {
      policy->see(p.view(), {seen.columns, kRows});
      policy->forward(kRows);
      const double *out = policy->distribution().outputs, *values = policy->values();
      return std::pair(std::vector<double>(out, out + 4 * kRows), std::vector<double>(values, values + kRows));
    };
    const auto before = both();
    seen.secret[0] += 1;
    const auto after = both();
    EXPECT_EQ(before.first, after.first);
    EXPECT_NE(before.second[0], after.second[0]);
    EXPECT_EQ(before.second[1], after.second[1]);
    seen.image[0] ^= 0xff;
    EXPECT_NE(both().first, after.first);
  }
}

// The gradient of a made-up loss by everything that a learner can ask for, against differences.
TEST(Policy, GradientsAreThoseOfTheLoss) {
  for (const std::int64_t shared : {0, 1}) {
    const ModelSpec spec = model(shared);
    const Observations seen;
    Parameters p = random_parameters(spec, 2);
    const Parameters other = random_parameters(spec, 5);
    const auto policy = make_policy<double>(spec, {kRows, kRows}),
               average = make_policy<double>(spec, {kRows, kRows, false});
    std::vector<double> action(2 * kRows), weight(2 * kRows), d_value(kRows), log_prob(2 * kRows), entropy(kRows),
        kl(kRows);
    RandomStream random(7);
    for (std::size_t r = 0; r < kRows; ++r) {
      action[2 * r] = static_cast<double>((r + 1) % 3);
      action[2 * r + 1] = random.normal();
      d_value[r] = random.normal();
    }
    for (double& w : weight) w = random.normal();
    const auto evaluate = [&] {
      policy->see(p.view(), {seen.columns, kRows});
      policy->forward(kRows);
      average->see_as(other.view(), *policy);
      average->forward(kRows);
    };
    const auto policy_loss = [&] {
      evaluate();
      policy->log_prob(action.data(), log_prob.data());
      policy->entropy(entropy.data());
      policy->kl_divergence(*average, kl.data());
      double loss = 0;
      for (std::size_t k = 0; k < 2 * kRows; ++k) loss += weight[k] * log_prob[k];
      for (std::size_t r = 0; r < kRows; ++r) loss += 0.7 * kl[r] - 0.3 * entropy[r];
      return loss;
    };
    const auto value_loss = [&] {
      policy->see(p.view(), {seen.columns, kRows});
      const double* values = policy->values();
      double loss = 0;
      for (std::size_t r = 0; r < kRows; ++r) loss += d_value[r] * values[r];
      return loss;
    };
    std::vector<double> by_policy(p.policy.size()), by_critic(p.critic.size());
    policy_loss();
    policy->values();
    policy->policy_gradient(action.data(), {weight.data(), 0.3, 0.7, average.get()}, by_policy);
    policy->value_gradient(d_value.data(), kRows, by_critic);
    const auto check = [](std::vector<double>& parameters, const std::vector<double>& gradient, auto&& loss) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const double held = parameters[i];
        parameters[i] = held + 1e-5;
        const double up = loss();
        parameters[i] = held - 1e-5;
        const double down = loss();
        parameters[i] = held;
        EXPECT_NEAR((up - down) / 2e-5, gradient[i], 1e-6 + 1e-5 * std::abs(gradient[i])) << i;
      }
    };
    check(p.policy, by_policy, policy_loss);
    check(p.critic, by_critic, value_loss);
  }
}

}  // namespace
}  // namespace gipo
