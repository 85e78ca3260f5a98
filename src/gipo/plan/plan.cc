#include "gipo/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>

#include "gipo/config/path_text.h"
#include "gipo/core/error.h"
#include "gipo/env/bridge/bridge.h"
#include "gipo/objective/surrogate.h"
#include "gipo/plan/plan_task.h"
#include "gipo/policy/vla_spec.h"

namespace gipo {
namespace {

constexpr double kMostUpdates = 1e12;      // that learner.updates may be
constexpr std::size_t kMostTogether = 16;  // environments stepped by one inference of an evaluation

// The presets of staleness.regime.
struct Preset {
  double window_fraction;  // of all updates
  double env_steps_per_update;
  std::int64_t actors;
};
constexpr Preset kStale{kStaleWindow, 8, 2}, kFresh{0.0125, 128, 16};

class Planner {
  // The place is that of the first of the keys which the user set: a default is never the mistake.
  [[noreturn]] void refuse(std::initializer_list<const char*> keys, const std::string& why) const {
    std::string place = "default";
    for (const char* key : keys) {
      if (place == "default") place = origin_of(origins_, key);
    }
    throw Error(fmt::format("{}: {}", place, why));
  }

  // What f finds wrong is said with the place where the key was set.
  template <class F>
  decltype(auto) named(const char* key, F&& f) {
    try {
      return f();
    } catch (const Error& e) {
      const std::string why = e.what();
      refuse({key, "env.id"}, why.starts_with(key) ? why : fmt::format("{}: {}", key, why));
    }
  }

 public:
  explicit Planner(const LoadedConfig& loaded) : c_(loaded.config), origins_(loaded.origins) {}

  Plan make_task() {
    plan_.config = c_;
    set_env();
    return plan_;
  }

  Plan make() {
    make_task();
    check_rewards();
    named(c_.learner.backend == "check" ? "learner.check" : "learner.backend", [&] { check_backend(c_.learner); });
    named("learner.ranks", [&] { check_ranks(c_.learner); });
    named(c_.learner.device == "cpu" ? "learner.precision" : "learner.device", [&] { check_device(c_.learner); });
    named("surrogate.name", [&] { return Surrogate(c_.surrogate); });
    check_centre();
    if (c_.eval.target_return && c_.eval.every_updates == 0) {
      refuse({"eval.target_return"},
             fmt::format("eval.target_return = {} is not accepted with eval.every_updates = 0: there would be no "
                         "evaluation during the run; wanted eval.every_updates above 0",
                         *c_.eval.target_return));
    }
    if (c_.policy.shared > static_cast<std::int64_t>(c_.policy.hidden.size())) {
      refuse({"policy.shared", "policy.hidden"},
             fmt::format("policy.shared = {} is not accepted: policy.hidden = [{}] has {} layers", c_.policy.shared,
                         fmt::join(c_.policy.hidden, ", "), c_.policy.hidden.size()));
    }
    const std::vector<Encoder> encoders = named("policy.encoder", [&] {
      return choose_encoders(c_.policy.encoder, plan_.env.fields, runs_backend(c_.learner, "torch"));
    });
    check_frames(encoders);
    set_encoders(plan_.env, encoders);
    plan_.model = named("policy.distribution", [&] { return make_model_spec(c_.policy, plan_.env, encoders); });
    check_large();
    check_ratio();
    set_name();
    set_sampling();
    check_memory();
    check_groups();
    set_actors();
    if (plan_.clones()) {
      set_clone();
    } else if (c_.staleness.regime == Regime::kOnPolicy) {
      set_rollouts();
    } else {
      set_dial();
    }
    plan_.dial_updates = c_.learner.updates;
    plan_.t_old = c_.staleness.t_old.value_or(std::max<std::int64_t>(1, c_.learner.updates / 10));
    check_fit();
    return plan_;
  }

 private:
  // Sizes follow from the task's options, and what it is simulated by must be there: one is made.
  void set_env() {
    named("env.id", [&] { return task_options(c_.env.id, {}); });
    for (const auto& option : c_.env_options) {
      const std::string key = std::string(kEnvOptions) + option.first;
      named(key.c_str(), [&] { return task_options(c_.env.id, {option}); });
    }
    plan_.config.env_options = task_options(c_.env.id, c_.env_options);
    try {
      plan_.env = ask_spec(c_.env, plan_.config.env_options);
    } catch (const Error& e) {
      refuse({"env.options.xml_file", "env.options.main_body", "env.id"}, e.what());
    }
  }

  void check_rewards() const {
    if (c_.env.normalise_rewards && c_.env.reward_scale != 1.0) {
      refuse(
          {"env.reward_scale", "env.normalise_rewards"},
          fmt::format("env.reward_scale = {} is not accepted with env.normalise_rewards = true, which makes the scale: "
                      "leave it out",
                      c_.env.reward_scale));
    }
  }

  void check_centre() const {
    if (c_.learner.publish == Published::kAverage && c_.policy.shared > 0) {
      refuse(
          {"learner.publish", "policy.shared"},
          fmt::format("learner.publish = \"average\" is not accepted with policy.shared = {}: the critic has learned "
                      "from the latest policy's layers, not from the average's; wanted policy.shared = 0",
                      c_.policy.shared));
    }
    if (c_.surrogate.centre != Centre::kProximal || c_.learner.proximal_updates > 1) return;
    refuse({"learner.proximal_updates", "surrogate.centre"},
           "learner.proximal_updates = 1 is not accepted with surrogate.centre = \"proximal\": an average over one "
           "update is the policy itself, and no trust region is left; wanted above 1, such as 100");
  }

  void set_name() {
    plan_.name = c_.run.name;
    if (plan_.name.empty())
      plan_.name = fmt::format("{}-{}-{}", c_.env.id, plan_.clones() ? "clone" : c_.surrogate.name, c_.run.seed);
    std::replace(plan_.name.begin(), plan_.name.end(), ':', '-');
    if (c_.run.name.empty()) std::replace(plan_.name.begin(), plan_.name.end(), '/', '-');
    if (plan_.name.find('/') != std::string::npos || plan_.name == "." || plan_.name == "..") {
      refuse({"run.name", "surrogate.name"},
             fmt::format("run.name = \"{}\" is not accepted: wanted a folder name without a slash", plan_.name));
    }
    if (const std::string fault = name_fault(plan_.name); !fault.empty()) {
      refuse({"run.name", "env.id"}, fmt::format("run.name = {} is not accepted: {}", shown_text(plan_.name), fault));
    }
    plan_.run_dir = (std::filesystem::path(c_.run.dir) / plan_.name).string();
    if (const std::string fault = path_fault(plan_.run_dir); !fault.empty()) {
      refuse({"run.dir"}, fmt::format("run.dir = {} is not accepted: {}", shown_text(c_.run.dir), fault));
    }
  }

  void set_sampling() {
    const bool on_policy = c_.staleness.regime == Regime::kOnPolicy;
    const Sampling sampling = c_.replay.sampling.value_or(on_policy ? Sampling::kEpochs : Sampling::kSegments);
    plan_.sampling = sampling;
    if (on_policy && sampling != Sampling::kEpochs) {
      refuse({"replay.sampling"}, fmt::format("replay.sampling = \"{}\" is not accepted with staleness.regime = "
                                              "\"on_policy\": wanted epochs",
                                              word_of(sampling)));
    }
    if (!on_policy && sampling == Sampling::kEpochs) {
      refuse({"replay.sampling"},
             "replay.sampling = \"epochs\" is not accepted: it goes with staleness.regime = \"on_policy\"");
    }
    if (sampling != Sampling::kSegments && !made_at_collection(c_.advantage.mode)) {
      refuse({"advantage.mode", "replay.sampling", "staleness.regime"},
             fmt::format("advantage.mode = \"{}\" is not accepted with single steps (replay.sampling "
                         "= \"{}\"): wanted stored",
                         word_of(c_.advantage.mode), word_of(sampling)));
    }
  }

  void check_frames(const std::vector<Encoder>& encoders) const {
    if (c_.env.frame_stack == 1) return;
    const auto refuse_with = [&](const std::string& why) {
      refuse({"env.frame_stack", "policy.encoder", "env.id"},
             fmt::format("env.frame_stack = {} is not accepted: {}", c_.env.frame_stack, why));
    };
    bool any = false;
    for (std::size_t f = 0; f < plan_.env.fields.size(); ++f) {
      const Field& field = plan_.env.fields[f];
      if (field.stack == 1) continue;
      any = true;
      if (encoders[f] == Encoder::kFloats) {
        refuse_with(
            fmt::format("no encoder reads the field {}; wanted one for images (policy.encoder), with "
                        "learner.backend = \"torch\"",
                        field.name));
      }
    }
    if (!any) refuse_with(fmt::format("no field of {} is an image", c_.env.id));
  }

  void check_large() {
    if (!plan_.model.is_large()) return;
    named("policy.encoder", [&] { return vla_config_of(plan_.model); });
    if (is_in_place(plan_.model)) check_in_place();
    if (c_.learner.publish == Published::kAverage) {
      refuse({"learner.publish", "policy.encoder"},
             "learner.publish = \"average\" is not accepted with policy.encoder = \"openvla_oft\": its value head has "
             "learned from the latest policy's layers, not from the average's");
    }
    if (c_.learner.device != "cpu" && c_.learner.precision != Precision::kBf16) {
      refuse({"learner.precision", "policy.encoder"},
             "learner.precision = \"float32\" is not accepted with policy.encoder = \"openvla_oft\" on a CUDA device: "
             "wanted bf16");
    }
  }

  void check_in_place() const {
    const auto refuse_if = [&](bool given, const char* key, const char* why) {
      if (given)
        refuse({key, "policy.model"}, fmt::format("{} is not accepted with micro_batch in policy.model: {}", key, why));
    };
    const char* const ranks = "with learner.ranks there is no average of the weights";
    refuse_if(c_.learner.ranks > 1 && c_.surrogate.centre == Centre::kProximal, "surrogate.centre", ranks);
    refuse_if(c_.learner.ranks > 1 && c_.learner.proximal_coef > 0, "learner.proximal_coef", ranks);
    refuse_if(c_.learner.publish_every > 1, "learner.publish_every", "actors have the learner's own weights");
    refuse_if(c_.learner.policy_every > 1, "learner.policy_every", "policy and critic learn together");
    refuse_if(!c_.run.init_from.empty(), "run.init_from", "wanted the folder of a checkpoint in policy.model");
    refuse_if(c_.learner.backend != "torch", "learner.backend", "wanted torch");
  }

  void check_ratio() const {
    const std::size_t dims = plan_.model.distribution.dims();
    if (c_.surrogate.ratio != RatioOf::kGroup || dims % static_cast<std::size_t>(c_.surrogate.ratio_group) == 0) return;
    refuse({"surrogate.ratio_group", "surrogate.ratio"},
           fmt::format("surrogate.ratio_group = {} is not accepted: an action of {} has {} dimensions, which is no "
                       "multiple of it",
                       c_.surrogate.ratio_group, c_.env.id, dims));
  }

  void check_memory() const {
    const bool none = c_.policy.memory == Memory::kNone;
    if (none && c_.policy.burn_in > 0) {
      refuse({"policy.burn_in"}, fmt::format("policy.burn_in = {} is not accepted with policy.memory = \"none\": there "
                                             "is no state to prepare",
                                             c_.policy.burn_in));
    }
    if (none) return;
    const char* const word = word_of(c_.policy.memory);
    if (c_.policy.memory == Memory::kTransformer && c_.policy.memory_size % 4 != 0) {
      refuse({"policy.memory_size"},
             fmt::format("policy.memory_size = {} is not accepted with policy.memory = \"{}\": wanted a multiple of 4",
                         c_.policy.memory_size, word));
    }
    if (c_.learner.backend != "torch") {
      refuse({"policy.memory", "learner.backend"},
             fmt::format("policy.memory = \"{}\" needs learner.backend = \"torch\", and it is \"{}\"", word,
                         c_.learner.backend));
    }
    if (plan_.sampling != Sampling::kSegments) {
      refuse({"policy.memory", "replay.sampling", "staleness.regime"},
             fmt::format("policy.memory = \"{}\" is not accepted with single steps (replay.sampling = \"{}\"): wanted "
                         "segments",
                         word, word_of(plan_.sampling)));
    }
  }

  // A default is never refused, so that a file may be read with another mode.
  void check_groups() const {
    const bool groups = c_.advantage.mode == AdvantageMode::kGroup;
    const auto refuse_if = [&](bool refused, const char* key, const std::string& value, const std::string& why) {
      if (!refused) return;
      refuse({key, "advantage.mode"}, fmt::format("{} = {} is not accepted with advantage.mode = \"{}\": {}", key,
                                                  value, word_of(c_.advantage.mode), why));
    };
    const AdvantageOptions& o = c_.advantage;
    const AdvantageOptions usual;
    if (!groups) {
      const std::string why = "only advantage.mode = \"group\" has groups";
      refuse_if(o.group_size != usual.group_size, "advantage.group_size", fmt::format("{}", o.group_size), why);
      return refuse_if(o.filter_groups, "advantage.filter_groups", "true", why);
    }
    const std::string unread = "an advantage of a group is made of returns alone; leave it out";
    refuse_if(o.lambda != usual.lambda, "advantage.lambda", fmt::format("{}", o.lambda), unread);
    refuse_if(o.rho_bar != usual.rho_bar, "advantage.rho_bar", fmt::format("{}", o.rho_bar), unread);
    refuse_if(o.c_bar != usual.c_bar, "advantage.c_bar", fmt::format("{}", o.c_bar), unread);
    refuse_if(c_.env.normalise_rewards, "env.normalise_rewards", "true",
              "the returns of a group would be of different scales");
    refuse_if(c_.staleness.regime == Regime::kOnPolicy, "staleness.regime", "\"on_policy\"",
              "a rollout ends before its groups do");
    // A task of a Python package without one here has one of its own.
    refuse_if(plan_.env.time_limit == 0 && !is_bridged(c_.env.id), "env.id", fmt::format("\"{}\"", c_.env.id),
              "it has no time limit, and a group ends with its last episode; set env.time_limit");
  }

  void set_actors() {
    const Regime regime = c_.staleness.regime;
    plan_.actors =
        static_cast<std::size_t>(c_.staleness.actors.value_or(regime == Regime::kFresh      ? kFresh.actors
                                                              : regime == Regime::kOnPolicy ? 1
                                                                                            : kStale.actors));
    plan_.envs_per_actor = static_cast<std::size_t>(c_.env.count);
    // Lockstep actors on one thread take turns, so each may have all cores.
    const std::size_t at_once = c_.run.mode == RunMode::kAsync
                                    ? plan_.actors
                                    : std::min(plan_.actors, static_cast<std::size_t>(c_.run.threads));
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    // Actors of a lockstep run wait for each other anyway. A pool of EnvPool is stepped as a whole.
    plan_.shared_workers = is_bridged(c_.env.id) && !c_.env.id.starts_with("envpool:") && plan_.actors > 1 &&
                           c_.run.mode == RunMode::kLockstep && !c_.env.workers;
    if (plan_.shared_workers) {
      plan_.workers = std::min(cores, plan_.envs());
      return;
    }
    plan_.workers = static_cast<std::size_t>(
        c_.env.workers.value_or(std::max<std::int64_t>(1, static_cast<std::int64_t>(cores / at_once))));
  }

  // Nothing is collected, so that nothing of the dial means anything: all of it is 1.
  void set_clone() {
    if (plan_.model.has_memory()) {
      refuse({"policy.memory"},
             fmt::format("policy.memory = \"{}\" is not accepted: demonstrations are learned from in "
                         "single steps; wanted none",
                         word_of(c_.policy.memory)));
    }
    plan_.config.learner.env_steps = 0;  // its length is a number of updates
    plan_.segment_length = 1;
    plan_.capacity = plan_.warmup = 1;
    plan_.env_steps_per_update = plan_.window = 1;
  }

  void set_rollouts() {
    if (c_.run.mode == RunMode::kAsync) {
      refuse({"run.mode"},
             "run.mode = \"async\" is not accepted with staleness.regime = \"on_policy\": wanted lockstep");
    }
    for (const char* key : {"staleness.env_steps_per_update", "staleness.window", "staleness.warmup"}) {
      if (origins_.contains(key)) {
        refuse({key}, fmt::format("{} follows from replay.capacity (the rollout) and learner.epochs with "
                                  "staleness.regime = \"on_policy\": leave it out",
                                  key));
      }
    }
    if (!c_.replay.capacity)
      refuse({"replay.capacity", "staleness.regime"},
             "replay.capacity, the steps of a rollout over all environments, "
             "is wanted with staleness.regime = \"on_policy\"");
    const std::int64_t rollout = *c_.replay.capacity, batch = c_.learner.batch_size;
    const auto envs = static_cast<std::int64_t>(plan_.envs());
    if (rollout % envs != 0 || rollout % batch != 0) {
      refuse({"replay.capacity"}, fmt::format("replay.capacity = {} is not accepted: a rollout is wanted that is a "
                                              "multiple of {} environments and of learner.batch_size = {}",
                                              rollout, envs, batch));
    }
    plan_.capacity = rollout;
    plan_.updates_per_rollout = c_.learner.epochs * rollout / batch;
    plan_.env_steps_per_update = static_cast<double>(rollout) / static_cast<double>(plan_.updates_per_rollout);
    plan_.window = static_cast<double>(plan_.updates_per_rollout);
    set_updates();
    plan_.warmup = rollout;
    plan_.segment_length = static_cast<std::size_t>(c_.replay.segment_length.value_or(rollout / envs));
  }

  // Env steps are counted in updates from here on. What they are counted by must stand.
  void set_updates() {
    if (c_.learner.env_steps == 0) return;
    const std::int64_t updates = plan_.updates_for(c_.learner.env_steps);
    if (static_cast<double>(updates) > kMostUpdates) {
      refuse(
          {"learner.env_steps"},
          fmt::format("learner.env_steps = {} is not accepted: at {:.6g} env steps for each update the run would have "
                      "more than {} updates",
                      c_.learner.env_steps, plan_.env_steps_per_update, kMostUpdates));
    }
    c_.learner.updates = plan_.config.learner.updates = updates;
    plan_.config.learner.env_steps = 0;
  }

  // Env steps before the first update and for each of those after it, where the length is given in env steps: these two
  // may then not follow from the number of updates.
  void set_updates_by_pace() {
    const StalenessOptions& s = c_.staleness;
    if (c_.learner.env_steps == 0) return;
    if (c_.run.mode == RunMode::kAsync && s.pacing == Pacing::kFree) {
      refuse(
          {"learner.env_steps"},
          fmt::format("learner.env_steps = {} is not accepted with staleness.pacing = \"free\", where updates do not "
                      "wait for env steps: give learner.updates",
                      c_.learner.env_steps));
    }
    const bool custom = s.regime == Regime::kCustom;
    if (!custom && c_.replay.capacity && !s.env_steps_per_update && !s.window) {
      refuse({"learner.env_steps"},
             fmt::format("learner.env_steps = {} is not accepted with replay.capacity = {} alone, which gives the pace "
                         "only together with learner.updates: give staleness.env_steps_per_update, or learner.updates",
                         c_.learner.env_steps, *c_.replay.capacity));
    }
    const double preset = s.regime == Regime::kFresh ? kFresh.env_steps_per_update : kStale.env_steps_per_update;
    plan_.env_steps_per_update = s.env_steps_per_update           ? *s.env_steps_per_update
                                 : c_.replay.capacity && s.window ? static_cast<double>(*c_.replay.capacity) / *s.window
                                                                  : preset;
    set_updates();
  }

  // Two of {capacity, env_steps_per_update, window} give the third; the regime gives what is missing.
  void set_dial() {
    const StalenessOptions& s = c_.staleness;
    set_warmup();
    set_updates_by_pace();
    const auto updates = static_cast<double>(c_.learner.updates);
    Maybe<double> capacity, pace = s.env_steps_per_update, window = s.window;
    if (c_.replay.capacity) capacity = static_cast<double>(*c_.replay.capacity);
    const bool custom = s.regime == Regime::kCustom;
    const Preset& preset = s.regime == Regime::kFresh ? kFresh : kStale;
    if (!custom && !window && !(capacity && pace)) window = preset.window_fraction * updates;
    if (!pace && !(capacity && window)) pace = preset.env_steps_per_update;
    if (custom && !capacity && !window) {
      refuse({"staleness.regime"},
             "staleness.regime = \"custom\" wants two of replay.capacity, "
             "staleness.env_steps_per_update and staleness.window");
    }
    if (!capacity) capacity = std::round(*window * *pace);
    if (!pace) pace = *capacity / *window;
    if (!window) window = *capacity / *pace;
    if (std::abs(*window * *pace - *capacity) > std::max(1.0, 1e-3 * *capacity)) {
      refuse({"replay.capacity"}, fmt::format("the dial is set three times and does not fit: replay.capacity = {} but "
                                              "staleness.window = {} times staleness.env_steps_per_update = {} is {}: "
                                              "leave one out",
                                              *capacity, *window, *pace, *window * *pace));
    }
    check_regime(*window / updates);
    if (*capacity < 1 || *capacity > 1e10)
      refuse({"replay.capacity", "staleness.window", "staleness.env_steps_per_update", "learner.updates",
              "learner.env_steps"},
             fmt::format("the dial gives a capacity of {} transitions: wanted 1 to 1e10", *capacity));
    plan_.capacity = static_cast<std::int64_t>(*capacity);
    plan_.env_steps_per_update = *pace;
    plan_.window = *window;
  }

  void set_warmup() {
    plan_.segment_length = static_cast<std::size_t>(c_.replay.segment_length.value_or(64));
    const auto first_segments = static_cast<std::int64_t>(plan_.envs() * plan_.segment_length);
    plan_.warmup = c_.staleness.warmup.value_or(std::max(4 * c_.learner.batch_size, first_segments));
    if (plan_.warmup < first_segments) {
      refuse({"staleness.warmup"},
             fmt::format("staleness.warmup = {} is not accepted: at least {} wanted, one segment of "
                         "{} steps from each of {} environments",
                         plan_.warmup, first_segments, plan_.segment_length, plan_.envs()));
    }
  }

  // A regime that the numbers contradict would be a label on the wrong data.
  void check_regime(double fraction) const {
    const Regime regime = c_.staleness.regime;
    const bool fits = regime == Regime::kCustom || (regime == Regime::kFresh && fraction < 0.1) ||
                      (regime == Regime::kStale && std::abs(fraction - kStale.window_fraction) < 0.01);
    if (!fits) {
      refuse({"staleness.regime", "staleness.window", "replay.capacity", "staleness.env_steps_per_update"},
             fmt::format("staleness.regime = \"{}\" keeps data for {} of all updates, but the dial's "
                         "numbers give {:.4g} of {}: leave one out, or set staleness.regime = \"custom\"",
                         word_of(regime), regime == Regime::kFresh ? "under 0.1" : fmt::format("{}", kStaleWindow),
                         fraction, c_.learner.updates));
    }
  }

  void check_fit() const {
    if (!plan_.countable()) {
      refuse({"learner.updates", "learner.env_steps", "staleness.env_steps_per_update", "staleness.window",
              "replay.capacity"},
             fmt::format("learner.updates = {} is not accepted: the run would take more than 1e15 env steps",
                         c_.learner.updates));
    }
    if (plan_.capacity < static_cast<std::int64_t>(plan_.segment_length)) {
      refuse({"replay.segment_length", "replay.capacity", "staleness.window", "learner.updates", "learner.env_steps"},
             fmt::format("replay.segment_length = {} is not accepted: a replay of {} transitions "
                         "cannot hold a segment",
                         plan_.segment_length, plan_.capacity));
    }
  }

  Config c_;  // with what follows from it, as far as it is known
  const Origins& origins_;
  Plan plan_;
};

}  // namespace

std::int64_t Plan::env_steps_due(std::int64_t update) const {
  if (on_policy()) return (update / updates_per_rollout + 1) * capacity;
  return warmup + static_cast<std::int64_t>(std::floor(static_cast<double>(update) * env_steps_per_update));
}

bool Plan::countable() const {
  const auto updates = static_cast<double>(config.learner.updates);
  const double per_update =
      on_policy() ? static_cast<double>(capacity) / static_cast<double>(updates_per_rollout) : env_steps_per_update;
  return updates * per_update <= 1e15;
}

std::int64_t Plan::total_env_steps(std::int64_t updates) const {
  const auto step = static_cast<std::int64_t>(envs());
  return (env_steps_due(updates - 1) + step - 1) / step * step;
}

std::int64_t Plan::updates_for(std::int64_t env_steps) const {
  if (on_policy()) return (env_steps + capacity - 1) / capacity * updates_per_rollout;
  const double enough = static_cast<double>(env_steps) / env_steps_per_update + 2;
  std::int64_t low = 1, high = static_cast<std::int64_t>(std::min(enough, kMostUpdates + 1));
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (total_env_steps(middle) >= env_steps) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

TransitionSpec Plan::transition() const {
  return {env.fields.empty() ? plain_fields(env.observation_size) : env.fields,
          env.action.dims(),
          clones() || made_at_collection(config.advantage.mode),
          model.state_size(),
          model.distribution.choices,
          model.has_memory() ? static_cast<std::size_t>(config.policy.burn_in) : 0,
          model.has_memory() ? segment_length : 0};
}

ReplayShape Plan::replay_shape() const {
  return {static_cast<std::size_t>(capacity), segment_length, transition(), sampling};
}

std::size_t Plan::replay_bytes() const {
  return static_cast<std::size_t>(capacity) * ReplayBuffer::bytes_per_transition(replay_shape());
}

std::int64_t Plan::rounds_between_drains() const {
  // Steps that take the slowest native task a fifth of a second; those of a task of a Python package may take any time.
  constexpr std::int64_t kSteps = 1024, kBridgedRounds = 8;
  return env.saves_state ? std::max<std::int64_t>(1, kSteps / static_cast<std::int64_t>(envs())) : kBridgedRounds;
}

LearnerSetup Plan::learner_setup() const {
  LearnerSetup setup{model, config.learner, config.surrogate, config.advantage, t_old, window};
  if (config.advantage.mode == AdvantageMode::kGroup) {
    // What actors have made of a group is what is learned from.
    setup.advantage.mode = AdvantageMode::kStored;
    setup.advantage.normalise = false;
  }
  if (!clones()) return setup;
  // The weight 1 on advantages of 1: the gradient is that of the mean log-likelihood, in every backend.
  setup.surrogate = {};
  setup.surrogate.name = "topr";
  setup.advantage.mode = AdvantageMode::kStored;
  setup.advantage.normalise = false;
  setup.learner.kl_coef = setup.learner.proximal_coef = 0;
  setup.learner.policy_every = 1;
  return setup;
}

DemonstrationUse Plan::demonstration_use() const {
  return {model,
          transition(),
          config.clone,
          config.advantage.gamma,
          config.env.reward_scale,
          static_cast<std::uint64_t>(config.run.seed)};
}

std::string dial(const Plan& p) {
  const auto updates = static_cast<double>(p.config.learner.updates);
  return fmt::format(
      "window {:.6g} updates ({:.3g} of all) = capacity {} transitions / {:.6g} env steps per update; old from a gap "
      "of {}; {} actors x {} environments",
      p.window, p.window / updates, p.capacity, p.env_steps_per_update, p.t_old, p.actors, p.envs_per_actor);
}

std::size_t evaluated_together(std::int64_t episodes) {
  return std::min(static_cast<std::size_t>(episodes), kMostTogether);
}

std::size_t evaluation_workers() { return std::max(1u, std::thread::hardware_concurrency()); }

Plan plan_task(const LoadedConfig& loaded) { return Planner(loaded).make_task(); }

Plan make_plan(const LoadedConfig& loaded) { return Planner(loaded).make(); }

}  // namespace gipo
