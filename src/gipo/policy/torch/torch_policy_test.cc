#include "gipo/policy/torch_policy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gipo/core/error.h"
#include "gipo/policy/torch/torch_oracle.h"

namespace gipo {
namespace {

class TorchEncoders : public testing::TestWithParam<std::pair<const char*, std::vector<std::int64_t>>> {};

TEST_P(TorchEncoders, ValuesAndGradientsAreThoseOfTheSameNetworkInDouble) {
  const auto& [encoder, shape] = GetParam();
  PolicyOptions options;
  options.hidden = {16};
  options.layer_norm = true;
  const ModelSpec spec = seeing(std::string("image=") + encoder, shape, options);
  const auto policy = make_torch_policy(spec, {kRows, kRows});
  Parameters parameters = first_parameters(*policy, spec);
  RandomStream random(5);
  for (float& v : parameters.policy) v += static_cast<float>(0.02 * random.normal());  // outputs that differ
  const Observations seen(spec);
  policy->see(parameters.view(), {seen.columns, kRows});
  policy->forward(kRows);

  Oracle oracle(*policy, parameters);
  const Tensor logits = oracle.hidden("policy", oracle.features("policy", encoder, spec, seen));
  const Tensor log_p = torch::log_softmax(logits, -1);
  std::vector<float> action(kRows), log_prob(kRows), entropy(kRows), d_log_prob(kRows);
  for (std::size_t r = 0; r < kRows; ++r) {
    action[r] = static_cast<float>(r % 4);
    d_log_prob[r] = static_cast<float>(random.normal());
  }
  policy->log_prob(action.data(), log_prob.data());
  policy->entropy(entropy.data());
  Tensor loss = torch::zeros({}, torch::kDouble);
  for (std::int64_t r = 0; r < static_cast<std::int64_t>(kRows); ++r) {
    const auto i = static_cast<std::size_t>(r);
    const Tensor row = log_p[r], h = -(row.exp() * row).sum();
    EXPECT_NEAR(log_prob[i], row[r % 4].item<double>(), 1e-5);
    EXPECT_NEAR(entropy[i], h.item<double>(), 1e-5);
    loss = loss + d_log_prob[i] * row[r % 4] - 0.1 * h;
  }
  std::vector<float> gradient(parameters.policy.size());
  PolicyLoss<float> of;
  of.d_log_prob = d_log_prob.data();
  of.entropy_coef = 0.1f;
  policy->policy_gradient(action.data(), of, gradient);
  loss.backward();
  for (const TensorSlice& s : policy->tensors(Part::kPolicy)) {
    EXPECT_LT(relative(gradient, s, oracle.p.at(s.name).grad()), 1e-4) << s.name;
  }

  const float* values = policy->values();
  const Tensor v = oracle.hidden("critic", oracle.features("critic", encoder, spec, seen)).squeeze(1);
  std::vector<float> d_values(kRows, 0.0f), critic_gradient(parameters.critic.size());
  for (std::size_t r = 0; r + 1 < kRows; ++r) d_values[r] = static_cast<float>(random.normal());
  Tensor value_loss = torch::zeros({}, torch::kDouble);
  for (std::size_t r = 0; r < kRows; ++r) {
    EXPECT_NEAR(values[r], v[static_cast<std::int64_t>(r)].item<double>(), 1e-4);
    value_loss = value_loss + d_values[r] * v[static_cast<std::int64_t>(r)];
  }
  policy->value_gradient(d_values.data(), kRows - 1, critic_gradient);
  value_loss.backward();
  for (const TensorSlice& s : policy->tensors(Part::kCritic)) {
    EXPECT_LT(relative(critic_gradient, s, oracle.p.at(s.name).grad()), 1e-4) << s.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, TorchEncoders,
                         testing::Values(std::pair{"small", std::vector<std::int64_t>{10, 10, 4}},
                                         std::pair{"nature", std::vector<std::int64_t>{2, 44, 40}},
                                         std::pair{"impala", std::vector<std::int64_t>{18, 15, 3}},
                                         std::pair{"vit", std::vector<std::int64_t>{16, 24}}));

TEST(TorchMemory, GradientsThroughTimeAreThoseOfTheSameLayerInDouble) {
  for (const auto& [shared, memory] : kMemories) {
    const Remembering seen(shared, memory);
    const auto policy = make_torch_policy(seen.spec, {2 * kRows, Remembering::kSteps});
    Parameters parameters = first_parameters(*policy, seen.spec);
    RandomStream random(5);
    for (auto* all : {&parameters.policy, &parameters.critic}) {
      for (float& v : *all) v += static_cast<float>(0.1 * random.normal());
    }
    seen.seen_by(*policy, parameters);
    policy->forward(Remembering::kSteps);
    Oracle oracle(*policy, parameters);
    Tensor trunk = seen.remembered(oracle, "policy");
    trunk = torch::tanh(oracle.dense("policy.0", trunk));
    const Tensor logits = oracle.dense("policy.2", torch::tanh(oracle.dense("policy.1", trunk)));
    const Tensor log_p = torch::log_softmax(logits, -1);
    std::vector<float> action(Remembering::kSteps), log_prob(action.size()), d_log_prob(action.size());
    Tensor loss = torch::zeros({}, torch::kDouble);
    for (std::size_t r = 0; r < action.size(); ++r) action[r] = static_cast<float>(r % 3);
    policy->log_prob(action.data(), log_prob.data());
    for (std::size_t r = 0; r < action.size(); ++r) {
      const Tensor wanted = log_p[static_cast<std::int64_t>(r)][static_cast<std::int64_t>(r % 3)];
      EXPECT_NEAR(log_prob[r], wanted.item<double>(), 1e-5) << r;
      d_log_prob[r] = static_cast<float>(random.normal());
      loss = loss + d_log_prob[r] * wanted;
    }
    std::vector<float> gradient(parameters.policy.size());
    PolicyLoss<float> of;
    of.d_log_prob = d_log_prob.data();
    policy->policy_gradient(action.data(), of, gradient);
    loss.backward();
    for (const TensorSlice& s : policy->tensors(Part::kPolicy)) {
      EXPECT_LT(relative(gradient, s, oracle.p.at(s.name).grad()), 1e-4) << s.name;
    }

    const float* values = policy->values();
    const std::string layers[] = {"critic.0", "critic.1", "critic.2"};
    Tensor v = shared > 0 ? trunk.detach() : torch::tanh(oracle.dense(layers[0], seen.remembered(oracle, "critic")));
    v = oracle.dense(layers[2 - shared], torch::tanh(oracle.dense(layers[1 - shared], v))).squeeze(1);
    std::vector<float> d_values(Remembering::kSteps), critic_gradient(parameters.critic.size());
    Tensor value_loss = torch::zeros({}, torch::kDouble);
    for (std::size_t r = 0; r < Remembering::kSeen; ++r) {
      const Tensor wanted = v[static_cast<std::int64_t>(r)];
      EXPECT_NEAR(values[r], wanted.item<double>(), 1e-5) << r;
      if (r >= d_values.size()) continue;
      d_values[r] = static_cast<float>(random.normal());
      value_loss = value_loss + d_values[r] * wanted;
    }
    policy->value_gradient(d_values.data(), d_values.size(), critic_gradient);
    value_loss.backward();
    for (const TensorSlice& s : policy->tensors(Part::kCritic)) {
      EXPECT_LT(relative(critic_gradient, s, oracle.p.at(s.name).grad()), 1e-4) << s.name;
    }
  }
}

// An actor sees one row at a time, a learner all of them.
TEST(TorchMemory, StepByStepIsTheSameAsWhole) {
  for (const auto& [shared, memory] : kMemories) {
    const Remembering seen(shared, memory);
    const auto whole = make_torch_policy(seen.spec, {2 * kRows, Remembering::kSteps});
    const auto single = make_torch_policy(seen.spec, {1});
    const Parameters parameters = first_parameters(*whole, seen.spec);
    seen.seen_by(*whole, parameters);
    whole->forward(Remembering::kSteps);
    const float *outputs = whole->distribution().outputs, *values = whole->values();
    std::vector<float> state(seen.state.begin(),
                             seen.state.begin() + static_cast<std::ptrdiff_t>(seen.spec.state_size()));
    for (const std::size_t row : {7, 8, 0, 1, 2, 5}) {
      const auto* column = reinterpret_cast<const std::byte*>(&seen.rows[row * 3]);
      single->see(parameters.view(), {{&column, 1}, 1, state.data()});
      single->forward(1);
      if (row < Remembering::kSeen) {
        EXPECT_NEAR(single->values()[0], values[row], 1e-6) << row;
      }
      for (std::size_t k = 0; k < 3 && row < Remembering::kSteps; ++k) {
        EXPECT_NEAR(single->distribution().outputs[k], outputs[row * 3 + k], 1e-6) << row;
      }
      single->next_state(state.data());
    }
  }
}

// What the two kinds make of plain vectors, with layers of each sort.
TEST(TorchPolicy, OfVectorsIsTheMlp) {
  for (const std::int64_t shared : {0, 1}) {
    for (const FirstWeights init : {FirstWeights::kOrthogonal, FirstWeights::kUniform}) {
      PolicyOptions options;
      options.hidden = {12, 9};
      options.layer_norm = true;
      options.shared = shared;
      options.init = init;
      EnvSpec env;
      env.id = "T";
      env.action = ActionSpace::box({-1, -2}, {1, 2});
      env.fields = plain_fields(5);
      env.observation_size = 5;
      const ModelSpec spec = make_model_spec(options, env);
      const auto torch = make_torch_policy(spec, {kRows, kRows}), mlp = make_policy<float>(spec, {kRows, kRows});
      const Parameters first = first_parameters(*torch, spec), other = first_parameters(*mlp, spec);
      EXPECT_EQ(first.policy, other.policy);
      EXPECT_EQ(first.critic, other.critic);
      for (const Part part : {Part::kPolicy, Part::kCritic}) {
        const auto one = torch->tensors(part), two = mlp->tensors(part);
        ASSERT_EQ(one.size(), two.size());
        for (std::size_t i = 0; i < one.size(); ++i) {
          EXPECT_EQ(one[i].name, two[i].name);
          EXPECT_EQ(one[i].offset, two[i].offset);
          EXPECT_EQ(one[i].shape, two[i].shape);
        }
      }
      RandomStream random(9);
      std::vector<float> rows(5 * kRows), action(2 * kRows), d(2 * kRows), d_values(kRows);
      for (auto* v : {&rows, &action, &d, &d_values}) {
        for (float& x : *v) x = static_cast<float>(random.normal());
      }
      const std::byte* columns[] = {reinterpret_cast<const std::byte*>(rows.data())};
      std::vector<std::vector<float>> found[2];
      for (const bool second : {false, true}) {
        Policy<float>& policy = second ? *mlp : *torch;
        std::vector<float> log_prob(2 * kRows), gradient(first.policy.size()), critic(first.critic.size());
        policy.see(first.view(), {columns, kRows});
        policy.forward(kRows);
        policy.log_prob(action.data(), log_prob.data());
        const float* v = policy.values();
        const std::vector<float> values(v, v + kRows);
        PolicyLoss<float> loss;
        loss.d_log_prob = d.data();
        policy.policy_gradient(action.data(), loss, gradient);
        policy.value_gradient(d_values.data(), kRows, critic);
        found[second] = {log_prob, values, gradient, critic};
      }
      for (std::size_t i = 0; i < found[0].size(); ++i) {
        for (std::size_t k = 0; k < found[0][i].size(); ++k) {
          EXPECT_NEAR(found[0][i][k], found[1][i][k], 2e-5 * (1 + std::abs(found[1][i][k]))) << i << ' ' << k;
        }
      }
    }
  }
}

TEST(TorchPolicy, WhatDoesNotFitIsNamed) {
  const auto complaint = [](const std::string& encoder, std::vector<std::int64_t> shape) {
    try {
      seeing(encoder, std::move(shape));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(complaint("auto", {84, 84, 4}), "");
  EXPECT_EQ(
      complaint("image=nature", {10, 10, 4}),
      "policy.encoder: nature does not fit the field image of shape (10, 10, 4): a layer of 4 x 4 has no room on 1 x "
      "1 values");
  EXPECT_EQ(
      complaint("speed=nature", {84, 84, 4}),
      "policy.encoder: nature does not fit the field speed, float32 of shape (2): wanted an image: bytes or float32 "
      "of two or three dimensions");
  EXPECT_EQ(complaint("picture=nature", {84, 84, 4}),
            "policy.encoder: picture=nature: wanted FIELD=WORD with a field of image, speed, place, secret");
  EXPECT_EQ(
      complaint("resnet", {84, 84, 4}),
      "policy.encoder: resnet is no encoder; known: auto, floats, small, nature, impala, vit, embedding, openvla_oft");
}

}  // namespace
}  // namespace gipo
