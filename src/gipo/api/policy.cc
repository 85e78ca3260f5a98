#include "gipo/policy/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gipo/api/gipo.h"
#include "gipo/run/export.h"

namespace gipo {

struct TrainedPolicy::Parts {
  explicit Parts(const std::string& run_or_file)
      : saved(load_policy(run_or_file)),
        policy(make_policy<float>(saved.model, {1})),
        state(saved.model.state_size()) {}

  const DistributionSpec& distribution() const { return saved.model.distribution; }
  std::size_t mask_size() const { return distribution().masked ? distribution().mask_size() : 0; }

  void see(std::span<const float> observation, const std::uint8_t* mask) {
    const std::size_t size = saved.model.observation_size;
    if (observation.size() != size) {
      throw Error(
          fmt::format("{}: an observation of {} numbers where {} belong", saved.env_id, observation.size(), size));
    }
    if (const auto bad = std::ranges::find_if_not(observation, [](float x) { return std::isfinite(x); });
        bad != observation.end()) {
      throw Error(fmt::format("{}: the observation holds {} at index {}: wanted finite numbers", saved.env_id, *bad,
                              bad - observation.begin()));
    }
    const std::byte* columns[] = {reinterpret_cast<const std::byte*>(observation.data()),
                                  reinterpret_cast<const std::byte*>(mask)};
    policy->see(parameters_of(saved.weights), {FieldColumns(columns, saved.model.fields.size()), 1, state.data()});
  }

  std::vector<double> choose(std::span<const float> observation, std::span<const std::uint8_t> mask, bool greedy) {
    if (mask.size() != mask_size()) {
      throw Error(fmt::format("{}: a mask of {} numbers where {} belong", saved.env_id, mask.size(), mask_size()));
    }
    if (!mask.empty() && !any_valid(distribution(), mask.data()))
      throw Error(fmt::format("{}: the mask leaves no valid action", saved.env_id));
    see(observation, mask.data());
    const std::size_t dims = distribution().dims();
    std::vector<float> action(dims), log_prob(dims);
    const ActionRow row{greedy ? nullptr : &random, action, log_prob};
    policy->forward(1);
    policy->choose({&row, 1});
    policy->next_state(state.data());
    std::vector<double> out(dims);
    to_env_action(saved.model, action, out);
    return out;
  }

  SavedPolicy saved;
  std::unique_ptr<Policy<float>> policy;
  RandomStream random = RandomStream::derive(0, "act");
  std::vector<float> state;  // [state_size]
};

TrainedPolicy::TrainedPolicy(const std::string& run_or_file) : parts_(std::make_unique<Parts>(run_or_file)) {}
TrainedPolicy::~TrainedPolicy() = default;
TrainedPolicy::TrainedPolicy(TrainedPolicy&&) noexcept = default;
TrainedPolicy& TrainedPolicy::operator=(TrainedPolicy&&) noexcept = default;

std::string TrainedPolicy::env_id() const { return parts_->saved.env_id; }
std::int64_t TrainedPolicy::version() const { return parts_->saved.weights.version; }
std::size_t TrainedPolicy::observation_size() const { return parts_->saved.model.observation_size; }
std::size_t TrainedPolicy::action_size() const { return parts_->distribution().dims(); }
std::size_t TrainedPolicy::mask_size() const { return parts_->mask_size(); }

std::vector<double> TrainedPolicy::act(std::span<const float> observation, std::span<const std::uint8_t> mask) {
  return parts_->choose(observation, mask, true);
}
std::vector<double> TrainedPolicy::sample(std::span<const float> observation, std::span<const std::uint8_t> mask) {
  return parts_->choose(observation, mask, false);
}
void TrainedPolicy::seed(std::uint64_t seed) { parts_->random = RandomStream::derive(seed, "act"); }

void TrainedPolicy::begin_episode() { std::ranges::fill(parts_->state, 0.0F); }

double TrainedPolicy::value(std::span<const float> observation) {
  const std::vector<std::uint8_t> all_valid(parts_->mask_size(), 1);  // the critic reads none
  parts_->see(observation, all_valid.data());
  return parts_->policy->values()[0];
}

}  // namespace gipo
