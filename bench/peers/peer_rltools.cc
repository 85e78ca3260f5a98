// RLtools' PPO on its own Pendulum with the work of configs/pendulum.toml: 75 rollouts of 4 environments x 1024 steps, two
// passes over each in batches of 256; 64x64 networks with ReLU, its default. Prints seconds of training and the greedy
// mean return of 100 episodes after it. Compiled by peer_rltools.py.

// Each needs those before it.
// clang-format off
#include <rl_tools/operations/cpu_mux.h>
#include <rl_tools/rl/environments/pendulum/operations_cpu.h>
#include <rl_tools/nn/optimizers/adam/instance/operations_generic.h>
#include <rl_tools/nn/operations_cpu_mux.h>
#include <rl_tools/nn/layers/standardize/operations_generic.h>
#include <rl_tools/nn_models/mlp_unconditional_stddev/operations_generic.h>
#include <rl_tools/nn_models/mlp/operations_generic.h>
#include <rl_tools/nn_models/sequential/operations_generic.h>
#include <rl_tools/nn/optimizers/adam/operations_generic.h>
#include <rl_tools/rl/algorithms/ppo/loop/core/config.h>
#include <rl_tools/rl/algorithms/ppo/loop/core/operations_generic.h>
// clang-format on

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace rlt = rl_tools;
using Device = rlt::devices::DEVICE_FACTORY<>;
using Index = Device::index_t;
using Random = Device::SPEC::RANDOM::ENGINE<>;
using Types = rlt::numeric_types::Policy<float>;
using Env = rlt::rl::environments::Pendulum<rlt::rl::environments::pendulum::Specification<float, Index>>;
static_assert(Device::DEVICE_ID == rlt::devices::DeviceId::CPU_OPENBLAS);

constexpr int kRollouts = 75, kEpisodes = 100;

// What is not said is the library's default.
struct Parameters : rlt::rl::algorithms::ppo::loop::core::DefaultParameters<Types, Index, Env> {
  static constexpr Index N_ENVIRONMENTS = 4, ON_POLICY_RUNNER_STEPS_PER_ENV = 1024;
  static constexpr Index DATASET_SIZE = N_ENVIRONMENTS * ON_POLICY_RUNNER_STEPS_PER_ENV;
  static constexpr Index BATCH_SIZE = 256, STEP_LIMIT = kRollouts, EPISODE_STEP_LIMIT = Env::EPISODE_STEP_LIMIT;
  struct PPO_PARAMETERS : rlt::rl::algorithms::ppo::DefaultParameters<Types, Index, BATCH_SIZE> {
    static constexpr Index N_EPOCHS = 2;
    static constexpr float GAMMA = 0.9f, INITIAL_ACTION_STD = 2, ACTION_ENTROPY_COEFFICIENT = 0;
  };
};
using Config = rlt::rl::algorithms::ppo::loop::core::Config<Types, Index, Random, Env, Parameters>;
using Training = Config::State<Config>;

double greedy_return(Device& device, Training& training) {
  Env env;
  Env::Parameters parameters;
  rlt::malloc(device, env);
  rlt::init(device, env);
  rlt::initial_parameters(device, env, parameters);
  rlt::Tensor<rlt::tensor::Specification<float, Index, rlt::tensor::Shape<Index, 1, 1, Env::Observation::DIM>>> seen;
  rlt::Tensor<rlt::tensor::Specification<float, Index, rlt::tensor::Shape<Index, 1, 1, Env::ACTION_DIM>>> action;
  rlt::malloc(device, seen);
  rlt::malloc(device, action);
  auto seen_row = rlt::matrix_view(device, seen);
  auto action_row = rlt::matrix_view(device, action);
  double sum = 0;
  for (int episode = 0; episode < kEpisodes; ++episode) {
    Env::State state, next;
    rlt::sample_initial_state(device, env, parameters, state, training.rng);
    for (Index t = 0; t < Env::EPISODE_STEP_LIMIT; ++t, state = next) {
      rlt::observe(device, env, parameters, state, Env::Observation{}, seen_row, training.rng);
      rlt::evaluate(device, training.ppo.actor, seen, action, training.actor_eval_buffers, training.rng,
                    rlt::Mode<rlt::mode::Evaluation<>>{});
      rlt::step(device, env, parameters, state, action_row, next, training.rng);
      sum += rlt::reward(device, env, parameters, state, action_row, next, training.rng);
    }
  }
  return sum / kEpisodes;
}

int main(int, char** arguments) {
  Device device;
  static Training training;
  rlt::malloc(device, training);
  rlt::init(device, training, static_cast<Index>(std::atoi(arguments[1])));
  const auto started = std::chrono::steady_clock::now();
  for (int rollout = 0; rollout < kRollouts; ++rollout) rlt::step(device, training);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  std::printf("%.6f %.3f\n", seconds.count(), greedy_return(device, training));
}
