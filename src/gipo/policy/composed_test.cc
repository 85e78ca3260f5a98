// Actions of choices beside numbers: their distribution, as the task takes them, in files.
#include <gtest/gtest.h>

#include <cmath>

#include "gipo/core/message_of.h"
#include "gipo/data/transition.h"
#include "gipo/io/safetensors.h"
#include "gipo/policy/weights.h"

namespace gipo {
namespace {

constexpr double kInfinity = HUGE_VAL;
using Choices = std::vector<std::int64_t>;

// A choice of three, a bounded number, a choice of two.
EnvSpec composed_task(double bound = 2) {
  return {"T", "", 3, {ActionSpace::Kind::kComposed, {3, 0, 2}, {0, -bound, 0}, {0, bound, 0}}, 10};
}

PolicyOptions with(const char* distribution) {
  PolicyOptions options;
  options.hidden = {4};
  options.distribution = *read_word<DistributionChoice>(distribution);
  options.bins = 5;
  return options;
}

template <class T>
struct Parts {
  std::vector<T> log_prob, entropy, kl, d_outputs, d_extra;
};

template <class T>
Parts<T> parts_of(const DistributionSpec& spec, const std::vector<T>& outputs, const std::vector<T>& extra,
                  const std::vector<T>& other_outputs, const std::vector<T>& other_extra, const std::vector<T>& action,
                  const std::vector<T>& d_log_prob) {
  const std::size_t rows = action.size() / spec.dims();
  EvaluatedDistribution<T> pi(spec, rows), other(spec, rows);
  pi.evaluate({outputs.data(), extra}, rows);
  other.evaluate({other_outputs.data(), other_extra}, rows);
  Parts<T> out{std::vector<T>(action.size()), std::vector<T>(rows), std::vector<T>(rows),
               std::vector<T>(outputs.size()), std::vector<T>(extra.size())};
  pi.log_prob(action.data(), out.log_prob.data());
  pi.entropy(out.entropy.data());
  pi.kl_divergence(other, out.kl.data());
  pi.gradient(action.data(), {d_log_prob.data(), T(0.3), T(0.7), &other}, out.d_outputs.data(), out.d_extra);
  return out;
}

// Dimension by dimension, each as a distribution of its own.
TEST(ComposedDistribution, IsTheSumOfItsDimensions) {
  const DistributionSpec spec{{3, 0, 20, 0}};
  EXPECT_EQ(spec.kind(), DistributionKind::kMixed);
  EXPECT_EQ(spec.outputs(), 25u);
  EXPECT_EQ(spec.extra_parameters(), 2u);
  constexpr std::size_t kRows = 6;
  RandomStream random(1);
  const auto numbers = [&](std::size_t n) {
    std::vector<double> all(n);
    for (double& v : all) v = random.normal();
    return all;
  };
  const auto outputs = numbers(kRows * 25), others = numbers(kRows * 25), extra = numbers(2), other_extra = numbers(2),
             d_log_prob = numbers(kRows * 4);
  auto action = numbers(kRows * 4);
  for (std::size_t r = 0; r < kRows; ++r) action[4 * r] = double(r % 3), action[4 * r + 2] = double(3 * r);
  const Parts<double> all = parts_of(spec, outputs, extra, others, other_extra, action, d_log_prob);
  std::vector<double> entropy(kRows), kl(kRows);
  std::size_t offset = 0, gaussians = 0;
  for (std::size_t d = 0; d < 4; ++d) {
    const DistributionSpec one{{spec.choices[d]}};
    const auto column = [&](const std::vector<double>& from, std::size_t stride, std::size_t at, std::size_t width) {
      std::vector<double> to;
      for (std::size_t i = 0; i < kRows * width; ++i) to.push_back(from[i / width * stride + at + i % width]);
      return to;
    };
    const std::size_t width = one.outputs(), e = one.extra_parameters();
    const std::vector<double> log_std(extra.begin() + gaussians, extra.begin() + gaussians + e),
        other_log_std(other_extra.begin() + gaussians, other_extra.begin() + gaussians + e);
    const Parts<double> part =
        parts_of(one, column(outputs, 25, offset, width), log_std, column(others, 25, offset, width), other_log_std,
                 column(action, 4, d, 1), column(d_log_prob, 4, d, 1));
    EXPECT_EQ(part.log_prob, column(all.log_prob, 4, d, 1));
    EXPECT_EQ(part.d_outputs, column(all.d_outputs, 25, offset, width));
    if (e > 0) {
      EXPECT_EQ(part.d_extra[0], all.d_extra[gaussians]);
    }
    for (std::size_t r = 0; r < kRows; ++r) entropy[r] += part.entropy[r], kl[r] += part.kl[r];
    offset += width;
    gaussians += e;
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    EXPECT_NEAR(all.entropy[r], entropy[r], 1e-12);
    EXPECT_NEAR(all.kl[r], kl[r], 1e-12);
  }
}

TEST(ComposedDistribution, SamplesAndModeHaveBothKinds) {
  const DistributionSpec spec{{3, 0}};
  const std::vector<float> outputs = {0, 9, 0, 0.25f}, log_std = {-3};
  RandomStream random(2);
  float action[2], log_prob[2];
  mode_action<float>(spec, {outputs.data(), log_std}, 0, action);
  EXPECT_EQ(action[0], 1);
  EXPECT_EQ(action[1], 0.25f);
  sample_action<float>(spec, {outputs.data(), log_std}, 0, random, action, log_prob);
  EXPECT_EQ(action[0], std::floor(action[0]));
  EXPECT_NEAR(action[1], 0.25, 0.3);
}

TEST(ComposedDistribution, PossibleActionsKnowsBothKinds) {
  const Choices choices = {3, 0};
  EXPECT_TRUE(possible_choices(choices, std::vector<float>{2, -7.5f, 0, 1e9f}));
  EXPECT_FALSE(possible_choices(choices, std::vector<float>{3, 0}));
  EXPECT_FALSE(possible_choices(choices, std::vector<float>{0.5f, 0}));
  EXPECT_FALSE(possible_choices(choices, std::vector<float>{0, INFINITY}));
  EXPECT_TRUE(possible_choices({}, std::vector<float>{0.5f, -3}));
}

TEST(ComposedModel, DistributionFollowsTheOption) {
  EXPECT_EQ(make_model_spec(with("auto"), composed_task()).distribution.choices, (Choices{3, 0, 2}));
  EXPECT_EQ(make_model_spec(with("binned"), composed_task()).distribution.choices, (Choices{3, 5, 2}));
  const auto refused = [](const char* distribution, double bound) {
    return message_of([&] { make_model_spec(with(distribution), composed_task(bound)); });
  };
  EXPECT_EQ(
      refused("gaussian", 2),
      "policy.distribution = \"gaussian\" does not fit T: a part of its actions is a choice; wanted auto or binned");
  EXPECT_EQ(
      refused("categorical", 2),
      "policy.distribution = \"categorical\" does not fit T: a part of its actions is a number; wanted auto or binned");
  EXPECT_EQ(refused("binned", kInfinity),
            "policy.distribution = \"binned\" does not fit T: its action range is unbounded; wanted auto");
  EXPECT_EQ(refused("auto", kInfinity), "nothing was thrown");
}

TEST(ComposedModel, ActionsAreScaledWhereTheyAreNumbers) {
  double env_action[3];
  const float action[3] = {2, 0.5f, 1};
  to_env_action(make_model_spec(with("auto"), composed_task()), action, env_action);
  EXPECT_EQ(std::vector<double>(env_action, env_action + 3), (std::vector<double>{2, 1, 1}));
  const float bins[3] = {2, 3, 1};
  to_env_action(make_model_spec(with("binned"), composed_task()), bins, env_action);
  EXPECT_EQ(std::vector<double>(env_action, env_action + 3), (std::vector<double>{2, 1, 1}));
}

TEST(ComposedModel, IsMadeFromItsFileAlone) {
  for (const bool masked : {false, true}) {
    EnvSpec env = composed_task(kInfinity);
    if (masked) env.fields = {{"valid", DType::kUint8, {5}, Role::kMask}};
    const ModelSpec spec = make_model_spec(with("auto"), env);
    EXPECT_EQ(spec.distribution.masked, masked);
    const Weights weights = initial_weights(spec, RandomStream(5));
    const std::string bytes = weights_to_safetensors(spec, weights, "T");
    const SafeTensors file(bytes, "file");
    EXPECT_EQ(file.metadata().at("distribution"), "composed 3,0,2");
    EXPECT_EQ(file.metadata().contains("masked"), masked);
    const SavedPolicy back = policy_from_safetensors(bytes, "file");
    EXPECT_EQ(back.model.action.kind, ActionSpace::Kind::kComposed);
    EXPECT_STREQ(name_of(back.model.action.kind), "composed");
    EXPECT_EQ(back.model.action.choices, env.action.choices);
    EXPECT_EQ(back.model.action.low, env.action.low);
    EXPECT_EQ(back.model.action.high, env.action.high);
    EXPECT_EQ(back.model.distribution.masked, masked);
    EXPECT_EQ(back.weights.policy, weights.policy);
  }
}

TEST(ComposedModel, MaskThatDoesNotFitIsRefused) {
  EnvSpec env = composed_task();
  env.fields = {{"valid", DType::kUint8, {4}, Role::kMask}};
  EXPECT_EQ(message_of([&] { make_model_spec(with("auto"), env); }),
            "T: its mask of valid actions has 4 values; wanted 5, one for each choice of its actions");
  env.fields[0].shape = {5};
  EXPECT_NE(message_of([&] { make_model_spec(with("binned"), env); }).find("says nothing of bins; wanted auto"),
            std::string::npos);
}

}  // namespace
}  // namespace gipo
