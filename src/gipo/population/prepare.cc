#include "gipo/population/prepare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>

#include "gipo/config/words.h"
#include "gipo/core/error.h"
#include "gipo/objective/surrogate.h"
#include "gipo/policy/mlp_policy.h"
#include "gipo/population/layout.h"
#include "gipo/train/faults.h"

namespace gipo::population {
namespace {

constexpr struct {
  const char* id;
  Task task;
} kTasks[] = {{"CartPole-v1", Task::kCartPole},
              {"Acrobot-v1", Task::kAcrobot},
              {"Pendulum-v1", Task::kPendulum},
              {"MountainCar-v0", Task::kMountainCar},
              {"MountainCarContinuous-v0", Task::kMountainCarContinuous}};

constexpr double kMostSteps = 2e9;   // what a 32-bit number counts
constexpr int kShortestEpisode = 4;  // no classic task ends one earlier, but by its time limit
constexpr int kShortestHosted = 2;   // on average

std::optional<Task> task_of(const EnvSpec& env) {
  for (const auto& known : kTasks) {
    if (env.id == known.id) return known.task;
  }
  if (env.engine.starts_with("MuJoCo ")) return Task::kHosted;
  return std::nullopt;
}

Net net_of(const MlpShape& shape, std::size_t extra) {
  Net net;
  int in = static_cast<int>(shape.input);
  std::vector<int> widths(shape.hidden.begin(), shape.hidden.end());
  widths.push_back(static_cast<int>(shape.output));
  for (const int out : widths) {
    Layer& y = net.layers[net.count++];
    y = {in, out, fours(in + 1), odd_fours(out), odd_fours(in + 1), net.parameters};
    net.parameters += y.rows * y.stride;
    in = out;
  }
  net.extra = static_cast<int>(extra);
  net.extra_at = net.parameters;
  net.parameters += fours(net.extra);
  return net;
}

Advantages advantages_of(AdvantageMode mode) {
  return mode == AdvantageMode::kVtrace ? Advantages::kVtrace
         : mode == AdvantageMode::kGae  ? Advantages::kGae
                                        : Advantages::kStored;
}

// A segment has at least half of the longest, or is what an episode left; the replay holds no more segments than that
// allows.
int most_segments(const Plan& plan, const RunSpec& s) {
  const int least = s.task == Task::kHosted ? kShortestHosted : kShortestEpisode;
  const int shortest = s.time_limit > 0 ? std::min(least, s.time_limit) : least;
  const int mean = std::max(1, std::min(shortest, static_cast<int>(plan.segment_length) / 2));
  return static_cast<int>(plan.capacity) / mean + 2;
}

// Wide layers give all threads tiles of few samples, and leave less room for more.
int chunk_of(const MlpShapes& shapes) {
  std::int64_t widest = 0;
  for (const MlpShape& shape : {shapes.policy, shapes.critic}) {
    for (const std::int64_t width : shape.hidden) widest = std::max(widest, width);
  }
  return widest > 32 ? 32 : 64;
}

// (place in the file's order, place on the card) for every parameter.
template <class F>
void each_parameter(const Net& net, F&& f) {
  std::size_t at = 0;
  const auto place = [&](int on_card) { f(at++, static_cast<std::size_t>(on_card)); };
  for (int l = 0; l < net.count; ++l) {
    const Layer& y = net.layers[l];
    for (int o = 0; o < y.out; ++o) {
      for (int k = 0; k < y.in; ++k) place(y.offset + k * y.stride + o);
    }
    for (int o = 0; o < y.out; ++o) place(y.offset + y.in * y.stride + o);
  }
  for (int e = 0; e < net.extra; ++e) place(net.extra_at + e);
}

}  // namespace

void check_plan(const Plan& plan) {
  const Config& c = plan.config;
  const auto refuse = [&](const std::string& what, const std::string& wanted) {
    throw Error(
        fmt::format("{}: {} cannot be trained on a card: wanted {}; without --device cuda the run is one of the "
                    "processor's",
                    plan.name, what, wanted));
  };
  const auto refuse_if = [&](bool refused, const std::string& what, const std::string& wanted) {
    if (refused) refuse(what, wanted);
  };
  if (!task_of(plan.env)) {
    std::vector<std::string> known;
    for (const auto& task : kTasks) known.emplace_back(task.id);
    refuse(fmt::format("env.id = \"{}\"", plan.env.id),
           fmt::format("{}, or a MuJoCo task of `gipo list envs`", fmt::join(known, ", ")));
  }
  const DistributionSpec& distribution = plan.model.distribution;
  refuse_if(distribution.dims() > 1 && distribution.kind() != DistributionKind::kGaussian,
            "policy.distribution = \"binned\" of several action dimensions", "gaussian");
  refuse_if(distribution.dims() > 1 && c.surrogate.ratio != RatioOf::kJoint,
            fmt::format("surrogate.ratio = \"{}\"", word_of(c.surrogate.ratio)), "joint");
  refuse_if(c.advantage.mode == AdvantageMode::kGroup, "advantage.mode = \"group\"", "vtrace, gae or stored");
  refuse_if(plan.clones(), fmt::format("clone.data = \"{}\"", c.clone.data), "none");
  refuse_if(c.learner.backend != "cpu", fmt::format("learner.backend = \"{}\"", c.learner.backend),
            "cpu, whose results it has");
  refuse_if(c.run.mode != RunMode::kLockstep, "run.mode = \"async\"", "lockstep");
  refuse_if(c.run.target_return.has_value(), "run.target_return", "none");
  refuse_if(c.eval.every_updates > 0, fmt::format("eval.every_updates = {}", c.eval.every_updates), "0");
  refuse_if(!c.run.init_from.empty(), fmt::format("run.init_from = \"{}\"", c.run.init_from), "none");
  refuse_if(c.policy.shared > 0, fmt::format("policy.shared = {}", c.policy.shared), "0");
  refuse_if(c.policy.layer_norm, "policy.layer_norm = true", "false");
  refuse_if(c.learner.publish_every > 1, fmt::format("learner.publish_every = {}", c.learner.publish_every), "1");
  const std::size_t most = kMostLayers - 1;
  const Widths critic = c.policy.critic_hidden.value_or(c.policy.hidden);
  refuse_if(c.policy.hidden.size() > most, fmt::format("policy.hidden of {} layers", c.policy.hidden.size()),
            fmt::format("at most {}", most));
  refuse_if(critic.size() > most, fmt::format("policy.critic_hidden of {} layers", critic.size()),
            fmt::format("at most {}", most));
  refuse_if(plan.model.distribution.outputs() > kMostOutputs, fmt::format("policy.bins = {}", c.policy.bins),
            fmt::format("at most {}", kMostOutputs));
  const double most_steps =
      std::max({static_cast<double>(plan.total_env_steps()), 2.0 * static_cast<double>(plan.capacity),
                static_cast<double>(c.learner.updates)});
  refuse_if(most_steps > kMostSteps, fmt::format("a run of {} env steps", plan.total_env_steps()),
            fmt::format("at most {}", kMostSteps));
}

RunSpec card_spec(const Plan& plan, std::int64_t updates) {
  const Config& c = plan.config;
  const MlpShapes shapes = mlp_shapes(plan.model);
  const DistributionSpec& distribution = plan.model.distribution;
  RunSpec s;
  s.task = *task_of(plan.env);
  s.observation = static_cast<int>(plan.env.observation_size);
  s.envs = static_cast<int>(plan.envs());
  s.time_limit = static_cast<int>(std::min<std::int64_t>(plan.env.time_limit, 2'000'000'000));
  s.most_faults = static_cast<int>(kMostFaults);
  s.choices = static_cast<int>(distribution.choices[0]);
  s.dims = static_cast<int>(distribution.dims());
  if (plan.env.action.continuous(0)) {
    s.bins = s.choices;
    s.low = static_cast<double>(plan.env.action.low[0]);
    s.high = static_cast<double>(plan.env.action.high[0]);
  }
  s.reward_scale = c.env.reward_scale;
  s.noise_correlation = distribution.extra_parameters() > 0 ? c.policy.noise_correlation : 0;
  s.normalise_observations = c.env.normalise_observations;
  s.normalise_rewards = c.env.normalise_rewards;
  s.policy = net_of(shapes.policy, distribution.extra_parameters());
  s.critic = net_of(shapes.critic, 0);
  s.activation = c.policy.activation;
  const LearnerSetup setup = plan.learner_setup();
  s.keeps_average = keeps_average(setup);
  s.looks_at_average = looks_at_average(setup);
  s.publishes_average = c.learner.publish == Published::kAverage;
  const Surrogate surrogate(c.surrogate);
  s.surrogate = surrogate.choice();
  s.centred = surrogate.centred();
  s.importance_max = surrogate.importance_max();
  s.advantages = advantages_of(c.advantage.mode);
  s.gamma = c.advantage.gamma;
  s.lambda = c.advantage.lambda;
  s.rho_bar = c.advantage.rho_bar;
  s.c_bar = c.advantage.c_bar;
  s.normalise_advantages = c.advantage.normalise;
  s.batch = static_cast<int>(c.learner.batch_size);
  s.chunk = chunk_of(shapes);
  s.segment_length = static_cast<int>(plan.segment_length);
  s.single_steps = plan.sampling != Sampling::kSegments;
  s.rollout_updates = static_cast<int>(plan.updates_per_rollout);
  s.updates = c.learner.updates;
  s.warmup = plan.warmup;
  s.log_every = c.log.every_updates;
  s.policy_every = c.learner.policy_every;
  s.warmup_updates = c.learner.warmup_updates;
  s.max_bad_updates = c.learner.max_bad_updates;
  s.env_steps_per_update = plan.env_steps_per_update;
  s.policy_lr = c.learner.policy_lr;
  s.value_lr = c.learner.value_lr;
  s.weight_decay = c.learner.weight_decay;
  s.beta1 = c.learner.beta1;
  s.beta2 = c.learner.beta2;
  s.epsilon = c.learner.adam_epsilon;
  s.schedule = c.learner.schedule;
  s.entropy_schedule = c.learner.entropy_schedule;
  s.value_coef = c.learner.value_coef;
  s.entropy_coef = c.learner.entropy_coef;
  s.kl_coef = c.learner.kl_coef;
  s.proximal_coef = c.learner.proximal_coef;
  s.proximal_updates = c.learner.proximal_updates;
  s.max_grad_norm = c.learner.max_grad_norm;
  s.capacity = static_cast<int>(plan.capacity);
  s.most_segments = most_segments(plan, s);
  s.rows = s.capacity + s.most_segments + s.segment_length + 2;
  s.gap_stride = std::clamp(s.batch / 4, 1, 64);
  s.gap_pool = kGapPoolUpdates * ((s.batch + s.gap_stride - 1) / s.gap_stride);
  s.most_logs = static_cast<int>(updates / s.log_every) + 2;
  // Where episodes are as short as they hardly ever are, a launch ends earlier.
  const std::int64_t rollouts = plan.on_policy() ? updates / plan.updates_per_rollout + 2 : 0;
  const double steps = plan.on_policy()
                           ? static_cast<double>(rollouts) * s.capacity
                           : static_cast<double>(updates) * s.env_steps_per_update + static_cast<double>(s.warmup);
  s.most_episodes = 2 * s.envs + static_cast<int>(steps / (s.task == Task::kHosted ? kShortestHosted : 8));
  return s;
}

RunSpec spread(RunSpec spec, int threads, std::size_t room) {
  Shared& shared = spec.shared;
  const auto all = {&shared.critic, &shared.policy, &shared.outputs, &shared.average, &shared.gradient};
  for (bool* const array : all) *array = false;
  for (bool* const array : all) {
    *array = true;
    if (shared_bytes(spec, threads) > room) *array = false;
  }
  return spec;
}

std::size_t shared_bytes(const RunSpec& spec, int threads) {
  Carver carver(nullptr);
  carve_workspace<true>(spec, RunMemory{}, threads, carver);
  return carver.bytes();
}

std::size_t memory_bytes(const RunSpec& spec) {
  Carver carver(nullptr);
  RunMemory memory{};
  carve_head(spec, memory, carver);
  carve_body(spec, memory, carver);
  carve_report(spec, memory, carver);
  carve_asked(spec, memory, carver);
  carve_told(spec, memory, carver);
  return carver.bytes();
}

void to_card(const Net& net, std::span<const float> parameters, float* card) {
  each_parameter(net, [&](std::size_t at, std::size_t to) { card[to] = parameters[at]; });
}

AlignedVector<float> from_card(const Net& net, const float* card) {
  AlignedVector<float> parameters;
  each_parameter(net, [&](std::size_t, std::size_t from) { parameters.push_back(card[from]); });
  return parameters;
}

void write_head(const Plan& plan, const RunSpec& spec, char* head) {
  Carver carver(head);
  RunMemory m;
  carve_head(spec, m, carver);
  const auto seed = static_cast<std::uint64_t>(plan.config.run.seed);
  const Weights first = initial_weights(plan.model, RandomStream::derive(seed, "weights"));
  to_card(spec.policy, first.policy, m.policy);
  to_card(spec.critic, first.critic, m.critic);
  if (spec.keeps_average) to_card(spec.policy, first.policy, m.average);
  RunState& state = *new (m.state) RunState();
  state.replay.key = derive_seed(seed, "replay");
  std::fill_n(m.inverse_std, spec.observation, 1.0f);
  state.limit = state.reward_limit = HUGE_VALF;
  for (std::size_t i = 0; i < plan.envs(); ++i) {
    Slot& slot = *new (m.slots + i) Slot();
    slot.env.key = derive_seed(derive_seed(seed, "env", i), "env");
    slot.action.key = derive_seed(seed, "action", i);
  }
}

Weights weights_of(const Plan& plan, const RunSpec& spec, const char* head) {
  Carver carver(const_cast<char*>(head));
  RunMemory m;
  carve_head(spec, m, carver);
  const RunState& state = *m.state;
  Weights weights = empty_weights(plan.model);
  weights.version = weights.policy_version = state.version;
  weights.policy = from_card(spec.policy, spec.publishes_average ? m.average : m.policy);
  weights.critic = from_card(spec.critic, m.critic);
  for (int d = 0; d < spec.observation; ++d) {
    weights.scale.mean[static_cast<std::size_t>(d)] = m.mean[d];
    weights.scale.inverse_std[static_cast<std::size_t>(d)] = m.inverse_std[d];
  }
  weights.scale.limit = state.limit;
  if (state.returns.count > 0) {
    weights.returns =
        RunningMoments(state.returns.count, {state.returns.mean}, {state.returns.square / state.returns.count});
  }
  return weights;
}

}  // namespace gipo::population
