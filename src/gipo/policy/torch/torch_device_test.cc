// libtorch's networks on a device, and devices as a user names them.
#include <gtest/gtest.h>

#include <cmath>

#include "gipo/core/error.h"
#include "gipo/policy/device_networks.h"
#include "gipo/policy/torch/torch_oracle.h"

namespace gipo {
namespace {

// What a learner on a device calls, with buffers of the host.
TEST(TorchDeviceNetworks, AreThoseOfThePolicy) {
  PolicyOptions options;
  options.hidden = {16, 12};
  for (const auto& [shared, kind] : kMemories) {
    for (const bool memory : {false, true}) {
      options.shared = shared;
      const Remembering remembering(shared, kind);
      const ModelSpec spec = memory ? remembering.spec : seeing("image=nature", {2, 44, 40}, options);
      const std::size_t steps = memory ? Remembering::kSteps : kRows - 1;
      const std::size_t rows = memory ? Remembering::kSeen : kRows;
      const PolicyRoom room{2 * kRows, steps};
      const auto policy = make_torch_policy(spec, room);
      Parameters parameters = first_parameters(*policy, spec);
      RandomStream random(5);
      for (float& v : parameters.policy) v += static_cast<float>(0.05 * random.normal());
      AlignedVector<float> average = parameters.policy;
      for (float& v : average) v += static_cast<float>(0.05 * random.normal());

      // The floats that are not for encoders, as a learner encodes them.
      const Observations seen(spec.has_raw() ? spec : seeing("image=nature", {2, 44, 40}));
      std::vector<float> floats = remembering.rows;
      if (!memory) {
        floats.resize(kRows * spec.observation_size);
        encode(spec.fields, seen.columns, kRows, floats.data());
        policy->see(parameters.view(), {seen.columns, rows});
      } else {
        remembering.seen_by(*policy, parameters);
      }
      policy->forward(steps);

      const auto outputs = spec.distribution.outputs();
      std::vector<float> found(steps * outputs), found_average(found.size()), values(rows), d_outputs(found.size()),
          d_values(steps), policy_gradient(parameters.policy.size()), critic_gradient(parameters.critic.size());
      DeviceBuffers buffers{parameters.policy.data(), parameters.critic.data(),
                            average.data(),           policy_gradient.data(),
                            critic_gradient.data(),   found.data(),
                            found_average.data(),     values.data(),
                            d_outputs.data(),         d_values.data()};
      const auto networks = make_device_networks(spec, room, buffers, nullptr);
      DeviceInput input{floats.data(), seen.columns, rows, nullptr, {}};
      if (memory) {
        input.raw.resize(1);
        input.state = remembering.state.data();
        input.sequences = remembering.sequences;
      }
      networks->forward(input, true);
      std::vector<float> action(steps, 1), d_log_prob(steps), wanted(parameters.policy.size()),
          wanted_critic(parameters.critic.size());
      for (std::size_t r = 0; r < steps; ++r) {
        d_log_prob[r] = static_cast<float>(random.normal());
        d_values[r] = static_cast<float>(random.normal());
        float sum = 0;
        for (std::size_t k = 0; k < outputs; ++k) sum += std::exp(found[r * outputs + k]);
        for (std::size_t k = 0; k < outputs; ++k) {
          EXPECT_EQ(found[r * outputs + k], policy->distribution().outputs[r * outputs + k]);
          d_outputs[r * outputs + k] =
              d_log_prob[r] * ((k == 1 ? 1.0f : 0.0f) - std::exp(found[r * outputs + k]) / sum);
        }
      }
      EXPECT_NE(found, found_average);
      const float* of_policy = policy->values();
      for (std::size_t r = 0; r < rows; ++r) EXPECT_EQ(values[r], of_policy[r]);
      PolicyLoss<float> loss;
      loss.d_log_prob = d_log_prob.data();
      policy->policy_gradient(action.data(), loss, wanted);
      policy->value_gradient(d_values.data(), steps, wanted_critic);
      networks->backward(true);
      EXPECT_EQ(critic_gradient, wanted_critic);
      for (std::size_t k = 0; k < wanted.size(); ++k) EXPECT_NEAR(policy_gradient[k], wanted[k], 1e-5) << k;
      // The average's own outputs are those of a policy with its parameters.
      parameters.policy = average;
      if (!memory) policy->see(parameters.view(), {seen.columns, rows});
      if (memory) remembering.seen_by(*policy, parameters);
      policy->forward(steps);
      for (std::size_t k = 0; k < found.size(); ++k) EXPECT_EQ(found_average[k], policy->distribution().outputs[k]);
    }
  }
}

// Where parameters lie changes nothing: a run that was resumed has them elsewhere.
// On every CUDA device of this machine, with what a device may round otherwise.
TEST(TorchDevices, ComputeWhatTheProcessorComputes) {
  if (torch_cuda_devices().empty()) GTEST_SKIP() << "no CUDA device, or built without CUDA";
  PolicyOptions options;
  options.hidden = {16};
  const ModelSpec spec = seeing("image=nature", {2, 44, 40}, options);
  const auto here = make_torch_policy(spec, {2 * kRows, kRows}),
             there = make_torch_policy(spec, {2 * kRows, kRows, true, "cuda"});
  Parameters parameters = first_parameters(*here, spec);
  RandomStream random(5);
  for (float& v : parameters.policy) v += static_cast<float>(0.02 * random.normal());
  const Observations seen(spec);
  for (int again = 0; again < 3; ++again) {
    std::vector<float> action(kRows, 1), d_log_prob(kRows), d_values(kRows), log_prob[2], gradient[2], values[2];
    for (std::size_t r = 0; r < kRows; ++r) d_log_prob[r] = d_values[r] = static_cast<float>(random.normal());
    for (const int i : {0, 1}) {
      Policy<float>& policy = i == 0 ? *here : *there;
      policy.see(parameters.view(), {seen.columns, kRows});
      policy.forward(kRows);
      log_prob[i].resize(kRows);
      policy.log_prob(action.data(), log_prob[i].data());
      const float* const found = policy.values();
      values[i].assign(found, found + kRows);
      PolicyLoss<float> of;
      of.d_log_prob = d_log_prob.data();
      gradient[i].resize(parameters.policy.size());
      policy.policy_gradient(action.data(), of, gradient[i]);
      std::vector<float> critic(parameters.critic.size());
      policy.value_gradient(d_values.data(), kRows, critic);
      gradient[i].insert(gradient[i].end(), critic.begin(), critic.end());
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      EXPECT_NEAR(log_prob[0][r], log_prob[1][r], 5e-3);
      EXPECT_NEAR(values[0][r], values[1][r], 5e-3);
    }
    double difference = 0, size = 0;
    for (std::size_t k = 0; k < gradient[0].size(); ++k) {
      difference += std::pow(gradient[0][k] - gradient[1][k], 2);
      size += std::pow(gradient[0][k], 2);
    }
    EXPECT_LT(std::sqrt(difference / size), 1e-2);
    for (float& v : parameters.policy) v += static_cast<float>(0.01 * random.normal());  // as an update does
    for (float& v : parameters.critic) v += static_cast<float>(0.01 * random.normal());
  }
}

TEST(TorchDevices, OneThatIsNotThereIsNamed) {
  EXPECT_NO_THROW(check_torch_device("cpu"));
  for (const char* device : {"cuda:77", "cuda:x", "tpu"}) EXPECT_THROW(check_torch_device(device), Error) << device;
}

TEST(TorchVersion, AnotherThanItWasBuiltWithIsNamed) {
  EXPECT_EQ(torch_version_found(), torch_version());
  EXPECT_NO_THROW(check_torch_version(torch_version()));
  for (const char* other : {"1.13.1", "2.1.0", "one without a version"}) {
    EXPECT_THROW(check_torch_version(other), Error) << other;
  }
}

TEST(TorchDevices, TooLittleMemoryIsNamedWithWhatWasAskedAndWhatIsFree) {
  const auto full = [] {
    throw c10::OutOfMemoryError(
        {__func__, __FILE__, __LINE__},
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 "
        "GiB of which 3.00 GiB is free. Of the allocated memory 130 GiB is allocated by PyTorch");
  };
  try {
    on_device(torch::Device("cuda:0"), full);
    FAIL();
  } catch (const RunError& e) {
    EXPECT_STREQ(
        e.what(),
        "learner.device = \"cuda:0\" has not enough memory: Tried to allocate 20.00 GiB. GPU 0 has a total "
        "capacity of 139.80 GiB of which 3.00 GiB is free. Lower learner.batch_size or env.count; what the run "
        "has saved stays as it is");
  }
  EXPECT_EQ(on_device(torch::Device("cpu"), [] { return 3; }), 3);
}

}  // namespace
}  // namespace gipo
