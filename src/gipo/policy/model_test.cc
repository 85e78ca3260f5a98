#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gipo/core/error.h"
#include "gipo/io/safetensors.h"
#include "gipo/policy/mlp_policy.h"

namespace gipo {
namespace {

EnvSpec continuous_task() { return {"T", "", 3, ActionSpace::box({-2, -1}, {2, 3}), 10}; }
EnvSpec discrete_task() { return {"T", "", 3, ActionSpace::discrete(4), 10}; }

void see(Policy<float>& policy, const Weights& weights, const std::vector<float>& rows) {
  const auto* column = reinterpret_cast<const std::byte*>(rows.data());
  policy.see(parameters_of(weights), {{&column, 1}, rows.size() / weights.scale.mean.size()});
}

std::vector<float> values_of(Policy<float>& policy, const Weights& weights, const std::vector<float>& rows) {
  see(policy, weights, rows);
  const float* values = policy.values();
  return {values, values + rows.size() / weights.scale.mean.size()};
}

TEST(Mlp, WeightsStartOrthogonal) {
  const Mlp<double> mlp({6, {6}, 2, Activation::kTanh, false}, 1);
  std::vector<double> w(mlp.parameter_count());
  RandomStream random(1);
  mlp.initialise(w, random, 0.01);
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 6; ++j) {
      double dot = 0;
      for (int k = 0; k < 6; ++k) dot += w[i * 6 + k] * w[j * 6 + k];
      EXPECT_NEAR(dot, i == j ? 2.0 : 0.0, 1e-12);  // gain sqrt 2
    }
  }
}

TEST(Mlp, ForwardMatchesPlainLoops) {
  for (const bool norm : {false, true}) {
    const MlpShape shape{2, {3}, 1, Activation::kTanh, norm};
    Mlp<double> mlp(shape, 4);
    std::vector<double> w(mlp.parameter_count());
    RandomStream random(2);
    for (double& v : w) v = random.normal();
    const double x[2] = {0.3, -0.8};
    double h[3], mean = 0, variance = 0, expected = 0;
    for (int i = 0; i < 3; ++i) h[i] = std::tanh(w[2 * i] * x[0] + w[2 * i + 1] * x[1] + w[6 + i]);
    const std::size_t last = norm ? 15 : 9;
    if (norm) {
      for (const double v : h) mean += v / 3;
      for (const double v : h) variance += (v - mean) * (v - mean) / 3;
      for (int i = 0; i < 3; ++i) h[i] = (h[i] - mean) / std::sqrt(variance + 1e-5) * w[9 + i] + w[12 + i];
    }
    for (int i = 0; i < 3; ++i) expected += w[last + i] * h[i];
    EXPECT_NEAR(*mlp.forward(w, x, 1), expected + w[last + 3], 1e-12);
  }
}

TEST(Mlp, UniformWeightsStayWithinOneOverTheRootOfTheInputs) {
  const Mlp<double> mlp({4, {100}, 9, Activation::kRelu, true}, 1);
  std::vector<double> w(mlp.parameter_count());
  RandomStream random(1);
  mlp.initialise_uniform(w, random);
  const auto largest = [&](std::size_t from, std::size_t n) {
    double top = 0;
    for (std::size_t i = from; i < from + n; ++i) top = std::max(top, std::abs(w[i]));
    return top;
  };
  EXPECT_NEAR(largest(0, 400), 0.5, 0.01);    // weights of 4 inputs
  EXPECT_NEAR(largest(400, 100), 0.5, 0.03);  // biases
  EXPECT_EQ(std::count(w.begin() + 500, w.begin() + 600, 1.0), 100);
  EXPECT_EQ(std::count(w.begin() + 600, w.begin() + 700, 0.0), 100);
  EXPECT_NEAR(largest(700, 900), 0.1, 0.002);
}

TEST(Normaliser, MomentsDoNotDependOnHowTheDataArrives) {
  RandomStream random(3);
  std::vector<float> rows(200);
  for (float& v : rows) v = static_cast<float>(1000 + random.normal());
  RunningMoments once(2), often(2);
  once.add(ColumnSums(2, rows));
  for (std::size_t i = 0; i < rows.size(); i += 10) often.add(ColumnSums(2, {rows.data() + i, 10}));
  for (std::size_t d = 0; d < 2; ++d) {
    EXPECT_NEAR(once.mean(d), often.mean(d), 1e-9);
    EXPECT_NEAR(once.variance(d), often.variance(d), 1e-9);
    EXPECT_NEAR(once.variance(d), 1, 0.3);
  }
}

TEST(Normaliser, UnsetScaleLeavesObservationsAlone) {
  const auto scale = ObservationScale::identity(1);
  const std::vector<float> far = {1e6f};
  float out;
  scale.apply<float>(far, &out);
  EXPECT_EQ(out, 1e6f);
}

TEST(Normaliser, RewardsAreDividedByTheDeviationOfTheReturnsAndClipped) {
  EXPECT_EQ(RewardScale().apply(-1e6f), -1e6f);
  RunningMoments returns(1);
  EXPECT_EQ(RewardScale(returns).apply(1e6f), 1e6f) << "nothing is known yet";
  returns.add(ColumnSums(1, std::vector<float>{101, 105, 101, 105}));  // deviation 2, wherever they lie
  const RewardScale scale(returns);
  EXPECT_FLOAT_EQ(scale.apply(-3), -1.5f);
  EXPECT_EQ(scale.apply(1000), 10);
  EXPECT_EQ(scale.apply(-1000), -10);
}

TEST(Model, ActionsAreScaledToTheTasksRangeAndClipped) {
  PolicyOptions options;
  const ModelSpec gaussian = make_model_spec(options, continuous_task());
  std::vector<double> out(2);
  to_env_action(gaussian, std::vector<float>{0.5f, -0.5f}, out);
  EXPECT_DOUBLE_EQ(out[0], 1.0);
  EXPECT_DOUBLE_EQ(out[1], 0.0);
  to_env_action(gaussian, std::vector<float>{7.0f, -7.0f}, out);
  EXPECT_DOUBLE_EQ(out[0], 2.0);
  EXPECT_DOUBLE_EQ(out[1], -1.0);
  options.distribution = DistributionChoice::kBinned;
  options.bins = 5;
  to_env_action(make_model_spec(options, continuous_task()), std::vector<float>{4, 1}, out);
  EXPECT_DOUBLE_EQ(out[0], 2.0);
  EXPECT_DOUBLE_EQ(out[1], 0.0);
}

TEST(Model, DistributionThatDoesNotFitIsRefused) {
  PolicyOptions options;
  options.distribution = DistributionChoice::kGaussian;
  EXPECT_THROW(make_model_spec(options, discrete_task()), Error);
  options.distribution = DistributionChoice::kCategorical;
  EXPECT_THROW(make_model_spec(options, continuous_task()), Error);
  EnvSpec unbounded = continuous_task();
  unbounded.action.high[0] = std::numeric_limits<double>::infinity();
  options.distribution = DistributionChoice::kBinned;
  EXPECT_THROW(make_model_spec(options, unbounded), Error);
}

TEST(Model, CriticReadsWhatTheSharedLayersGive) {
  PolicyOptions options{.hidden = {6, 5}, .critic_hidden = Widths{4}, .shared = 1, .activation = Activation::kRelu};
  options.layer_norm = true;
  const ModelSpec spec = make_model_spec(options, continuous_task());
  const MlpShape critic_shape = mlp_shapes(spec).critic;
  EXPECT_EQ(critic_shape.input, 6u);
  EXPECT_EQ(parameter_count(spec, Part::kCritic), 6u * 4 + 4 + 2 * 4 + 4 + 1);
  Weights weights = initial_weights(spec, RandomStream(5));
  const std::vector<float> x = {0.3f, -0.7f, 1.2f, 2.0f, 0.1f, -0.4f};
  const auto policy = make_policy<float>(spec, {2});
  const std::vector<float> found = values_of(*policy, weights, x);
  Mlp<float> first({3, {}, 6, Activation::kNone, false}, 2), critic(critic_shape, 2);
  const float* linear = first.forward(std::span<const float>(weights.policy).first(24), x.data(), 2);
  std::vector<float> h(linear, linear + 12);
  for (std::size_t r = 0; r < 2; ++r) {
    float* row = h.data() + 6 * r;
    float mean = 0, variance = 0;
    for (int i = 0; i < 6; ++i) mean += (row[i] = std::max(0.0f, row[i])) / 6;
    for (int i = 0; i < 6; ++i) variance += (row[i] - mean) * (row[i] - mean) / 6;
    for (int i = 0; i < 6; ++i) row[i] = (row[i] - mean) / std::sqrt(variance + 1e-5f);
  }
  const float* expected = critic.forward(weights.critic, h.data(), 2);
  EXPECT_NEAR(found[0], expected[0], 1e-5);
  EXPECT_NEAR(found[1], expected[1], 1e-5);

  // A new version is taken up by the shared layers, whichever of the two asks first.
  const float before = found[0];
  for (float& w : weights.policy) w *= 2;
  for (float& w : weights.critic) w += 0.1f;
  weights.version = weights.policy_version = 1;
  see(*policy, weights, x);
  policy->forward(2);
  const auto fresh = make_policy<float>(spec, {2});
  EXPECT_EQ(values_of(*policy, weights, x), values_of(*fresh, weights, x));
  EXPECT_NE(values_of(*fresh, weights, x)[0], before);
}

TEST(Model, WeightsComeBackFromTheirFile) {
  PolicyOptions options;
  options.layer_norm = true;
  options.shared = 1;
  const ModelSpec spec = make_model_spec(options, continuous_task());
  Weights weights = empty_weights(spec);
  weights.version = 12;
  RandomStream random(4);
  for (const std::span<float> v :
       {std::span<float>(weights.policy), std::span<float>(weights.critic), std::span<float>(weights.scale.mean)}) {
    for (float& x : v) x = static_cast<float>(random.normal());
  }
  const std::string bytes = weights_to_safetensors(spec, weights, "T");
  const Weights back = weights_from_safetensors(spec, bytes, "file");
  EXPECT_EQ(back.version, 12);
  EXPECT_EQ(back.policy, weights.policy);
  EXPECT_EQ(back.critic, weights.critic);
  EXPECT_EQ(back.scale.mean, weights.scale.mean);
  options.hidden = {32};
  EXPECT_THROW(weights_from_safetensors(make_model_spec(options, continuous_task()), bytes, "file"), Error);
}

TEST(Model, PolicyIsMadeFromItsFileAlone) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  PolicyOptions options;
  options.hidden = {5, 4};
  options.layer_norm = true;
  options.activation = Activation::kRelu;
  const ActionSpace spaces[] = {ActionSpace::discrete(4),
                                {ActionSpace::Kind::kMultiDiscrete, {3, 2}, {}, {}},
                                ActionSpace::box({-2, -kInfinity}, {2, kInfinity})};
  for (const ActionSpace& space : spaces) {
    EnvSpec env = {"some:task", "", 3, space, 10};
    env.spaces = space.kind == ActionSpace::Kind::kBox ? "" : "{\"as\": \"text\"}";
    const ModelSpec spec = make_model_spec(options, env);
    const Weights weights = initial_weights(spec, RandomStream(5));
    const SavedPolicy back = policy_from_safetensors(weights_to_safetensors(spec, weights, "some:task"), "file");
    EXPECT_EQ(back.env_id, "some:task");
    EXPECT_EQ(back.model.action.kind, space.kind);
    EXPECT_EQ(back.model.action.choices, space.choices);
    EXPECT_EQ(back.model.action.low, space.low);
    EXPECT_EQ(back.model.action.high, space.high);
    EXPECT_EQ(back.model.spaces, env.spaces) << "kept as it is";
    EXPECT_EQ(back.model.options.hidden, options.hidden);
    EXPECT_TRUE(back.model.options.layer_norm);
    EXPECT_EQ(back.model.options.activation, Activation::kRelu);
    EXPECT_EQ(back.weights.policy, weights.policy);
  }
}

TEST(Model, FileThatIsNoPolicyIsRefused) {
  const std::vector<float> mean = {0, 0};
  const std::vector<TensorView> tensors = {view_tensor<float>("observation.mean", {2}, mean)};
  const std::string action = R"({"kind":"discrete","choices":[2],"low":[],"high":[]})";
  const auto message = [&](const TensorMetadata& metadata) {
    try {
      policy_from_safetensors(write_safetensors(tensors, metadata), "file");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(message({}).find("file: no env among its metadata"), std::string::npos);
  EXPECT_NE(message({{"env", "T"}, {"action", "7"}}).find("file: action: "), std::string::npos);
  for (const char* wrong :
       {R"({"kind":"box","choices":[],"low":[1],"high":[0]})", R"({"kind":"box","choices":[],"low":[1],"high":[]})",
        R"({"kind":"discrete","choices":[0],"low":[],"high":[]})",
        R"({"kind":"composed","choices":[2,0],"low":[0],"high":[1]})",
        R"({"kind":"composed","choices":[2,-1],"low":[0,0],"high":[1,1]})",
        R"({"kind":"other","choices":[2],"low":[],"high":[]})"}) {
    EXPECT_NE(message({{"env", "T"}, {"action", wrong}}).find("not an action space"), std::string::npos) << wrong;
  }
  // Options of a network far larger than the file make nothing of that size.
  EXPECT_NE(message({{"env", "T"}, {"action", action}, {"options", "policy.hidden = [65536, 65536, 65536]"}})
                .find("its tensors are not those of its options"),
            std::string::npos);
  EXPECT_NE(message({{"env", "T"}, {"action", action}, {"options", "policy.depth = 2"}}).find("unknown option"),
            std::string::npos);
}

}  // namespace
}  // namespace gipo
