#include "gipo/policy/torch/vla_policy.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/policy/device_networks.h"
#include "gipo/policy/large_policy.h"
#include "gipo/policy/own_parameters.h"
#include "gipo/policy/vla_spec.h"
#include "gipo/vla/shared_model.h"
#include "gipo/vla/vla_model.h"

namespace gipo {
namespace {

constexpr std::size_t kRows = 5, kLearned = 3, kTokens = 6, kDims = 4;

ModelSpec small_spec() {
  EnvSpec env;
  env.id = "T";
  env.action = {ActionSpace::Kind::kMultiDiscrete, std::vector<std::int64_t>(kDims, 256), {}, {}};
  env.fields = {{"image", DType::kUint8, {16, 16, 3}},
                {"wrist_image", DType::kUint8, {16, 16, 3}},
                {"state", DType::kFloat32, {3}},
                {"instruction", DType::kInt32, {kTokens}}};
  PolicyOptions options;
  options.encoder = "openvla_oft";
  options.temperature = 1.6;
  options.model =
      "10m, patch=8, width=32, layers=2, heads=2, hidden=64, value_hidden_1=16, value_hidden_2=8, vocabulary=512, "
      "first_action=256, featurizer.width=16, featurizer.depth=2, featurizer.heads=2, featurizer.hidden=32, "
      "featurizer.registers=1, fused_featurizer.width=16, fused_featurizer.depth=3, fused_featurizer.heads=2, "
      "fused_featurizer.hidden=32";
  const std::vector<Encoder> encoders = choose_encoders(options.encoder, env.fields, true);
  set_encoders(env, encoders);
  return make_model_spec(options, env, encoders);
}

struct Case {
  ModelSpec spec = small_spec();
  std::vector<float> policy, critic;
  ObservationScale scale = ObservationScale::identity(3);
  std::vector<std::uint8_t> images[2];
  std::vector<float> state, action, d_log_prob, d_values;
  std::vector<std::int32_t> tokens;
  std::vector<const std::byte*> columns;

  Case() {
    RandomStream random(1);
    const auto made = make_vla_policy(spec, {});
    policy.resize(values_of(made->tensors(Part::kPolicy)));
    critic.resize(values_of(made->tensors(Part::kCritic)));
    made->initialise(Part::kPolicy, policy, random);
    made->initialise(Part::kCritic, critic, random);
    for (auto& image : images) {
      for (std::size_t i = 0; i < kRows * 16 * 16 * 3; ++i)
        image.push_back(static_cast<std::uint8_t>(random.below(256)));
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      for (int i = 0; i < 3; ++i) state.push_back(static_cast<float>(random.normal()));
      for (std::size_t t = 0; t < kTokens; ++t) {  // of different lengths
        tokens.push_back(t < 3 + r % 3 ? static_cast<std::int32_t>(random.below(256)) : -1);
      }
      d_values.push_back(static_cast<float>(random.normal()));
    }
    for (std::size_t i = 0; i < kLearned * kDims; ++i) {
      action.push_back(static_cast<float>(random.below(256)));
      d_log_prob.push_back(static_cast<float>(random.normal()));
    }
    const auto bytes = [](const auto& v) { return reinterpret_cast<const std::byte*>(v.data()); };
    columns = {bytes(images[0]), bytes(images[1]), bytes(state), bytes(tokens)};
  }

  PolicyInput input() const { return {columns, kRows}; }

  // What the gradients below are of: sums of log-probs and of values with these weights.
  std::pair<double, double> losses(Policy<float>& net, const std::vector<float>& p, const std::vector<float>& c) const {
    net.see({p, c, &scale}, input());
    net.forward(kLearned);
    std::vector<float> log_prob(action.size());
    net.log_prob(action.data(), log_prob.data());
    const float* values = net.values();
    double policy_sum = 0, value_sum = 0;
    for (std::size_t i = 0; i < log_prob.size(); ++i) policy_sum += static_cast<double>(d_log_prob[i]) * log_prob[i];
    for (std::size_t i = 0; i < kLearned; ++i) value_sum += static_cast<double>(d_values[i]) * values[i];
    return {policy_sum, value_sum};
  }
};

// Along random directions, by central differences: the model's own gradients are tested against PyTorch's elsewhere.
TEST(VlaPolicy, GradientsAreThoseOfLogProbsAndValues) {
  const Case t;
  const auto net = make_vla_policy(t.spec, {kRows, kLearned, true});
  std::vector<float> by_policy(t.policy.size()), by_critic(t.critic.size());
  t.losses(*net, t.policy, t.critic);
  PolicyLoss<float> loss;
  loss.d_log_prob = t.d_log_prob.data();
  net->policy_gradient(t.action.data(), loss, by_policy);
  net->value_gradient(t.d_values.data(), kLearned, by_critic);
  const auto along = [&](const std::vector<float>& gradient, bool policy, std::uint64_t seed) {
    RandomStream random(seed);
    std::vector<float> direction(gradient.size()), low_p = t.policy, high_p = t.policy, low_c = t.critic,
                                                   high_c = t.critic;
    double slope = 0, size = 0;
    for (std::size_t i = 0; i < gradient.size();
         ++i) {  // mostly where it is steep, so that rounding is small beside it
      direction[i] = gradient[i] * static_cast<float>(1 + 0.5 * random.normal());
      slope += static_cast<double>(gradient[i]) * direction[i];
      size += static_cast<double>(direction[i]) * direction[i];
    }
    const double step = 2e-3 / std::sqrt(size);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      (policy ? low_p : low_c)[i] -= static_cast<float>(step * direction[i]);
      (policy ? high_p : high_c)[i] += static_cast<float>(step * direction[i]);
    }
    const auto low = t.losses(*net, low_p, low_c), high = t.losses(*net, high_p, high_c);
    const double found = ((policy ? high.first : high.second) - (policy ? low.first : low.second)) / (2 * step);
    EXPECT_NEAR(found / slope, 1, 0.01) << (policy ? "policy" : "critic") << seed;
    EXPECT_GT(slope, 0);
  };
  for (const std::uint64_t seed : {1, 2, 3}) {
    along(by_policy, true, seed);
    along(by_critic, false, seed);
  }
}

// The model with the same weights, called as what it is.
TEST(VlaPolicy, SaysWhatTheModelSays) {
  const Case t;
  VlaSetup setup;
  setup.config = vla_config_of(t.spec);
  const auto model = make_large_model(setup);
  const std::vector<TensorSlice> slices[2] = {vla_slices(setup.config, Part::kPolicy),
                                              vla_slices(setup.config, Part::kCritic)};
  for (std::size_t i = 0, at[2] = {0, 0}; i < model->tensors().size(); ++i) {
    const std::size_t part = part_of(model->tensors()[i]) == Part::kPolicy ? 0 : 1;
    const TensorSlice& s = slices[part][at[part]++];
    const float* values = (part == 0 ? t.policy : t.critic).data() + s.offset;
    model->set_tensor(i, TensorType::kF32, {reinterpret_cast<const char*>(values), s.values() * sizeof(float)});
    EXPECT_TRUE(s.name.ends_with(model->tensors()[i].name));
  }
  VlaInputs inputs;
  inputs.n = kRows, inputs.cameras = 2;
  std::vector<std::uint8_t> images;
  constexpr std::size_t kImage = 16 * 16 * 3;
  for (std::size_t r = 0; r < kRows; ++r) {
    for (const auto& camera : t.images) images.insert(images.end(), &camera[r * kImage], &camera[r * kImage] + kImage);
    inputs.prompts.push_back({&t.tokens[r * kTokens], 3 + r % 3});
  }
  inputs.images = images, inputs.proprio = t.state;
  const VlaOutputs wanted = model->infer(inputs);

  const auto net = make_vla_policy(t.spec, {kRows, 0, true});
  net->see({t.policy, t.critic, &t.scale}, t.input());
  net->forward(kRows);
  const float* values = net->values();
  for (std::size_t i = 0; i < wanted.logits.size(); ++i) {
    ASSERT_NEAR(net->distribution().outputs[i], wanted.logits[i] / 1.6, 1e-5) << i;
  }
  for (std::size_t r = 0; r < kRows; ++r) EXPECT_NEAR(values[r], wanted.values[r], 1e-5);
}

// What a learner on a card calls, here on the processor.
TEST(VlaDeviceNetworks, AreThoseOfThePolicy) {
  const Case t;
  const PolicyRoom room{kRows, kLearned, true};
  const auto net = make_vla_policy(t.spec, room);
  t.losses(*net, t.policy, t.critic);
  std::vector<float> by_policy(t.policy.size()), by_critic(t.critic.size());
  PolicyLoss<float> loss;
  loss.d_log_prob = t.d_log_prob.data();
  net->policy_gradient(t.action.data(), loss, by_policy);
  net->value_gradient(t.d_values.data(), kLearned, by_critic);

  const std::size_t outputs = t.spec.distribution.outputs();
  std::vector<float> policy = t.policy, critic = t.critic, average = t.policy, found_policy(policy.size()),
                     found_critic(critic.size()), out(kLearned * outputs), average_out(out.size()), values(kRows),
                     d_outputs(out.size());
  const DeviceBuffers buffers{policy.data(),       critic.data(),    average.data(),     found_policy.data(),
                              found_critic.data(), out.data(),       average_out.data(), values.data(),
                              d_outputs.data(),    t.d_values.data()};
  const auto networks = make_device_networks(t.spec, room, buffers, nullptr);
  DeviceInput input;
  input.floats = t.state.data();
  input.raw = t.columns;
  input.rows = kRows;
  networks->forward(input, true);
  EXPECT_EQ(out, average_out);
  for (std::size_t r = 0; r < kRows; ++r) EXPECT_NEAR(values[r], net->values()[r], 1e-6);
  EvaluatedDistribution<float> pi(t.spec.distribution, kLearned);
  pi.evaluate({out.data(), {}}, kLearned);
  pi.gradient(t.action.data(), {t.d_log_prob.data(), 0, 0, nullptr}, d_outputs.data(), {});
  networks->backward(true);
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < by_policy.size(); ++i) {
    difference = std::max(difference, std::fabs(static_cast<double>(by_policy[i]) - found_policy[i]));
    size = std::max(size, std::fabs(static_cast<double>(by_policy[i])));
  }
  EXPECT_LT(difference, 1e-5 * size);
  EXPECT_EQ(by_critic, found_critic);
}

// In place: a model of its own, which has seen some observations and has a loss.
struct InPlace {
  Case t;
  std::unique_ptr<Policy<float>> net;

  explicit InPlace(const std::string& more = "", bool average = false) {
    t.spec.options.model += ", micro_batch=2" + more;
    PolicyRoom room{kRows, kLearned, true};
    room.average = average;
    net = make_large_policy(t.spec, room);
    RandomStream random(1);
    net->initialise(Part::kPolicy, {}, random);
  }
  std::array<double, 2> find_gradients() const {
    t.losses(*net, {}, {});
    PolicyLoss<float> loss;
    loss.d_log_prob = t.d_log_prob.data();
    net->policy_gradient(t.action.data(), loss, {});
    net->value_gradient(t.d_values.data(), kLearned, {});
    return net->own()->find_gradients();
  }
  std::string state() const {
    std::string bytes;
    net->own()->save([&](std::string_view piece) { bytes += piece; });
    return bytes;
  }
};

TEST(LargePolicy, AnUpdateThatIsSkippedLeavesNoGradient) {
  const InPlace m;
  const auto once = m.find_gradients();
  EXPECT_EQ(m.find_gradients(), once);
}

// The mean of all weights so far, the first ones included, of which the newest counts a quarter and more while there are few.
TEST(LargePolicy, AnotherLooksAtTheAverage) {
  const InPlace m("", true);
  const auto average = make_large_policy(m.t.spec, {kLearned, kLearned, false});
  const std::size_t outputs = m.t.spec.distribution.outputs();
  const auto averaged = [&] {
    m.t.losses(*m.net, {}, {});
    average->see_as({}, *m.net);
    average->forward(kLearned);
    return std::vector<float>(average->distribution().outputs, average->distribution().outputs + kLearned * outputs);
  };
  const auto own = [&] {
    return std::vector<float>(m.net->distribution().outputs, m.net->distribution().outputs + kLearned * outputs);
  };
  const std::vector<float> first = averaged(), beside = own();
  for (std::size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(first[i], beside[i], 1e-6);
  std::vector<float> kl(kLearned);
  m.net->kl_divergence(*average, kl.data());
  for (const float v : kl) EXPECT_NEAR(v, 0, 1e-6);

  const InPlace other;  // which is given the mean
  const auto weights = [](const InPlace& p) {
    std::vector<std::vector<float>> all;
    p.net->own()->share()->with([&](LargeModel& model) {
      for (std::size_t i = 0; i < model.tensors().size(); ++i) {
        std::string bytes;
        model.get_tensor(i, false, [&](std::string_view piece) { bytes += piece; });
        all.emplace_back(bytes.size() / sizeof(float));
        std::memcpy(all.back().data(), bytes.data(), bytes.size());
      }
    });
    return all;
  };
  std::vector<std::vector<float>> mean = weights(m);
  for (int n = 1; n <= 3; ++n) {
    m.find_gradients();
    OwnStep step{{0.003, 0.003}};
    step.average = 0.25;
    m.net->own()->step(step);
    const double part = 0.25 / (1 - std::pow(0.75, n + 1));
    const std::vector<std::vector<float>> now = weights(m);
    for (std::size_t i = 0; i < now.size(); ++i) {
      for (std::size_t k = 0; k < now[i].size(); ++k) {
        mean[i][k] += static_cast<float>(part * static_cast<double>(now[i][k] - mean[i][k]));
      }
    }
  }
  other.net->own()->share()->with([&](LargeModel& model) {
    for (std::size_t i = 0; i < mean.size(); ++i) {
      model.set_tensor(i, TensorType::kF32,
                       {reinterpret_cast<const char*>(mean[i].data()), mean[i].size() * sizeof(float)});
    }
  });
  const std::vector<float> found = averaged(), newest = own();
  m.t.losses(*other.net, {}, {});
  double difference = 0, moved = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(found[i] - other.net->distribution().outputs[i])));
    moved = std::max(moved, std::abs(static_cast<double>(found[i] - newest[i])));
  }
  EXPECT_LT(difference, 1e-5);
  EXPECT_GT(moved, 1e-3);
}

TEST(LargePolicy, WhatIsHeldDoesNotChange) {
  const InPlace m;
  m.find_gradients();
  const std::string before = m.state();
  std::shared_ptr<void> held = m.net->own()->hold();
  std::thread learner([&] { m.net->own()->step({{0.1, 0.1}}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(m.state(), before);
  held.reset();
  learner.join();
  EXPECT_NE(m.state(), before);
}

// Who acts in 8 bits follows the weights, near to what 16 bits say; who learns sees nothing of it.
TEST(LargePolicy, ActsInEightBits) {
  const InPlace exact, m(", act_bits=8");
  PolicyParameters<float> parameters{{}, {}, &m.t.scale};
  const std::shared_ptr<SharedModel> shared = m.net->own()->share();
  parameters.model = shared.get();
  const auto actor = make_large_policy(m.t.spec, {kRows, 0, true});
  const auto outputs = [&](Policy<float>& net, const PolicyParameters<float>& p) {
    net.see(p, m.t.input());
    const float* at = net.distribution().outputs;
    return std::vector<float>(at, at + kRows * m.t.spec.distribution.outputs());
  };
  const auto far = [](const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(static_cast<double>(a[i] - b[i]), 2), size += std::pow(static_cast<double>(b[i]), 2);
    }
    return std::sqrt(difference / size);
  };
  const std::vector<float> first = outputs(*m.net, parameters), acted = outputs(*actor, parameters);
  EXPECT_EQ(first, outputs(*exact.net, parameters));
  EXPECT_GT(far(acted, first), 1e-4);
  EXPECT_LT(far(acted, first), 0.1);
  m.find_gradients();
  m.net->own()->step({{0.01, 0.01}});
  const std::vector<float> learned = outputs(*m.net, parameters), then = outputs(*actor, parameters);
  EXPECT_GT(far(learned, first), 0.3);
  EXPECT_LT(far(then, learned), 0.1);
}

TEST(VlaPolicy, APromptThatIsNoneIsNamed) {
  Case t;
  t.tokens[0] = -1;
  const auto net = make_vla_policy(t.spec, {kRows, 0, true});
  EXPECT_THROW(net->see({t.policy, t.critic, &t.scale}, t.input()), Error);
  t.tokens[0] = 512;
  EXPECT_THROW(net->see({t.policy, t.critic, &t.scale}, t.input()), Error);
}

}  // namespace
}  // namespace gipo
