#include "gipo/plan/automatic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "gipo/env/bridge/bridge.h"
#include "gipo/plan/plan.h"
#include "gipo/plan/plan_task.h"
#include "gipo/plan/presets.h"
#include "gipo/plan/zoo.h"

namespace gipo {
namespace {

constexpr char kBase[] = "classic/stale";
constexpr int kTrialSteps = 400;
constexpr double kGamma = 0.99;
constexpr double kLeast = 0.3, kMost = 100;  // scaled returns with which the base is known to learn
constexpr std::int64_t kShortest = 200'000, kLongest = 500'000;
constexpr double kEpisodes = 300;  // of the greatest length, in a run
constexpr std::int64_t kReplay = 100'000;
constexpr std::size_t kMostInputs = 64;  // that networks of 64 x 64 read
constexpr double kLongEpisode = 2000;

// What random actions show of a task.
struct Trial {
  double return_size = 0;  // root mean square of the discounted rewards that follow a step
  double episode_steps = 0;
  int episodes = 0;  // that ended
  int steps = 0;     // 0: nothing was tried
};

std::vector<double> random_action(const ActionSpace& space, RandomStream& random) {
  std::vector<double> action;
  for (std::size_t d = 0; d < space.dims(); ++d) {
    if (!space.continuous(d)) {
      action.push_back(static_cast<double>(random.below(static_cast<std::uint64_t>(space.choices[d]))));
    } else {
      action.push_back(random.uniform(std::max(space.low[d], -1e3), std::min(space.high[d], 1e3)));
    }
  }
  return action;
}

// Of what follows each step, discounted, over all steps of one episode.
double sum_of_squares(const std::vector<double>& rewards) {
  double sum = 0, follows = 0;
  for (std::size_t t = rewards.size(); t-- > 0;) {
    follows = rewards[t] + kGamma * follows;
    sum += follows * follows;
  }
  return sum;
}

Trial try_out(const Plan& task) {
  const EnvSpec& spec = task.env;
  const Config& config = task.config;
  const auto envs = make_envs(spec, config.env, config.env_options, {.count = 1, .workers = 1, .restart = false});
  Env& env = *envs.front();
  RandomStream random = RandomStream::derive(static_cast<std::uint64_t>(config.run.seed), "trial");
  Trial trial;
  double squares = 0;
  std::vector<double> rewards;
  for (int step = 0; step < kTrialSteps; ++step) {
    if (!env.running()) env.reset(random.next_u64() >> 33);
    const std::vector<double> action = random_action(spec.action, random);
    env.begin_step(action);
    const StepResult result = env.step(action);
    if (result.fault) break;
    rewards.push_back(result.reward);
    ++trial.steps;
    if (!result.terminated && !result.truncated) continue;
    squares += sum_of_squares(rewards);
    trial.episode_steps += static_cast<double>(rewards.size());
    ++trial.episodes;
    rewards.clear();
  }
  trial.return_size = std::sqrt((squares + sum_of_squares(rewards)) / std::max(1, trial.steps));
  if (trial.episodes > 0) trial.episode_steps /= trial.episodes;
  return trial;
}

// Chooses one option after the other, and notes why. What was given stays.
class Chooser {
 public:
  explicit Chooser(const LoadedConfig& given) : given_(given) { out_.loaded = load_config_or_preset(kBase); }

  ChosenConfig choose() {
    const Config& config = given_.config;
    set("env.id", config.env.id, "");
    for (const auto& [key, value] : config.env_options) {
      set_option(out_.loaded, std::string(kEnvOptions) + key, value, "auto");
    }
    const Plan task = plan_task(given_);
    const EnvSpec& spec = task.env;
    out_.chosen.push_back(fmt::format(
        "No config was given: settings were chosen for {}. They stand in config.toml; those not named are as in {}:",
        spec.id, kBase));
    choose_environments(spec);
    choose_networks(spec);
    choose_noise(spec);
    const bool masked = std::ranges::any_of(spec.fields, [](const Field& f) { return f.role == Role::kMask; });
    const Trial trial = masked ? Trial{} : try_out(task);
    choose_rewards(trial);
    choose_length(spec, trial);
    return std::move(out_);
  }

 private:
  bool is_given(const std::string& key) const { return given_.origins.contains(key); }

  void set(const std::string& key, const OptionValue& value, const std::string& why) {
    set_option(out_.loaded, key, value, "auto");
    if (why.empty()) return;
    const std::string shown = fmt::format("{} = {}", key, to_toml(value));
    out_.chosen.push_back(fmt::format("  {:<34} {}", shown, why));
  }

  void choose_environments(const EnvSpec& spec) {
    if (is_given("env.count") || !is_bridged(spec.id)) return;
    set("env.count", std::int64_t{8}, "a Python environment: each worker steps several at a time");
  }

  void choose_networks(const EnvSpec& spec) {
    const std::size_t size = spec.observation_size;
    const bool wide = size > kMostInputs || spec.action.dims() > 6;
    if (is_given("policy.hidden") || !wide) return;
    set("policy.hidden", Widths{128, 128},
        fmt::format("{} numbers in, {} action dimensions", size, spec.action.dims()));
  }

  void choose_noise(const EnvSpec& spec) {
    bool continuous = false;
    for (std::size_t d = 0; d < spec.action.dims(); ++d) continuous = continuous || spec.action.continuous(d);
    if (!continuous || is_given("policy.noise_correlation")) return;
    set("policy.noise_correlation", 0.0, "noise that lasts helps some tasks and harms others");
  }

  void choose_rewards(const Trial& trial) {
    if (is_given("env.reward_scale") || is_given("env.normalise_rewards")) return;
    const double size = trial.return_size;
    if (size == 0 || !std::isfinite(size)) {
      set("env.reward_scale", 1.0, "");
      set("env.normalise_rewards", true,
          trial.steps > 0 ? "random actions found no reward, so its size is not known"
                          : "with a mask, no random steps were tried");
      return;
    }
    const std::string seen = fmt::format("random actions have discounted returns of about {:.2g}", size);
    const double usual = out_.loaded.config.env.reward_scale, scaled = size * usual;  // of the base
    if (scaled >= kLeast && scaled <= kMost) return set("env.reward_scale", usual, seen);
    set("env.reward_scale", std::pow(10.0, std::round(std::log10(3 / size))), seen);
  }

  void choose_length(const EnvSpec& spec, const Trial& trial) {
    // A task of Python's that has no limit was given one, which says nothing of it.
    const bool limited = spec.time_limit > 0 && (spec.time_limit < kBridgedTimeLimit || given_.config.env.time_limit);
    const bool ended = trial.episodes > 0;
    const double length = limited ? static_cast<double>(spec.time_limit) : ended ? trial.episode_steps : kTrialSteps;
    const std::string seen = limited ? fmt::format("episodes of up to {} steps", spec.time_limit)
                             : ended ? fmt::format("random actions have episodes of about {:.0f} steps", length)
                                     : "it is not known how long episodes are";
    if (length > kLongEpisode && !is_given("advantage.gamma")) set("advantage.gamma", 0.995, seen);
    std::int64_t steps = given_.config.learner.env_steps;
    if (is_given("learner.updates")) {
      const double pace = out_.loaded.config.staleness.env_steps_per_update.value();  // of the base
      steps = static_cast<std::int64_t>(pace * static_cast<double>(given_.config.learner.updates));
    } else if (!is_given("learner.env_steps")) {
      steps = std::clamp(static_cast<std::int64_t>(kEpisodes * length), kShortest, kLongest);
      set("learner.env_steps", steps, seen);
    }
    if (is_given("staleness.regime")) return;
    if (is_given("replay.capacity") || is_given("staleness.window")) {
      set("staleness.regime", std::string("custom"), "");
    } else if (static_cast<double>(steps) * kStaleWindow > static_cast<double>(kReplay)) {
      set("staleness.regime", std::string("custom"), "");
      set("replay.capacity", kReplay, "in a long run the oldest data no longer helps");
    }
  }

  const LoadedConfig& given_;
  ChosenConfig out_;
};

// The preset of the zoo for just this task.
std::optional<ChosenConfig> from_zoo(const Config& given) {
  for (const ZooEntry& entry : zoo()) {
    LoadedConfig preset = load_config_or_preset(entry.preset());
    const Config& config = preset.config;
    if (config.env.id != given.env.id) continue;
    if (task_options(given.env.id, config.env_options) != task_options(given.env.id, given.env_options)) continue;
    return ChosenConfig{std::move(preset),
                        {fmt::format("No config was given: {} is in the zoo, and its settings are taken ({}).",
                                     given.env.id, entry.preset())}};
  }
  return std::nullopt;
}

}  // namespace

ChosenConfig choose_config(const std::string& config, const std::function<void(LoadedConfig&)>& set) {
  ChosenConfig out;
  if (config == kAutomatic) {
    LoadedConfig given;
    set(given);
    std::optional<ChosenConfig> known = from_zoo(given.config);
    out = known ? std::move(*known) : Chooser(given).choose();
  } else if (!config.empty()) {
    out.loaded = load_config_or_preset(config);
  }
  set(out.loaded);
  return out;
}

}  // namespace gipo
