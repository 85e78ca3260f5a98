#include "gipo/learner/learner.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gipo/learner/cpu_learner.h"

namespace gipo {

void UpdateStats::append_to(std::vector<std::pair<std::string, double>>& figures) const {
  figures.insert(figures.end(), {{"policy_loss", policy_loss},
                                 {"value_loss", value_loss},
                                 {"entropy", entropy},
                                 {"proximal_kl", proximal_kl},
                                 {"explained_variance", explained_variance},
                                 {"policy_grad_norm", policy_grad_norm},
                                 {"value_grad_norm", value_grad_norm},
                                 {"policy_lr", policy_lr},
                                 {"value_lr", value_lr},
                                 {"advantage_mean", advantage_mean},
                                 {"advantage_std", advantage_std},
                                 {"advantage_abs_max", advantage_abs_max},
                                 {"value_mean", value_mean},
                                 {"reward_factor", reward_factor}});
}

double schedule_factor(const LearnerOptions& options, std::int64_t update) {
  const auto t = static_cast<double>(update), warm = static_cast<double>(options.warmup_updates);
  if (t < warm) return (t + 1.0) / warm;
  if (options.schedule == Schedule::kConstant) return 1.0;
  const double span = std::max(1.0, static_cast<double>(options.updates) - warm);
  const double done = std::clamp((t - warm) / span, 0.0, 1.0);
  if (options.schedule == Schedule::kLinear) return 1.0 - done;
  return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

// As CpuLearner's constructor allocates it.
LearnerMemory learner_memory(const LearnerSetup& setup) {
  const ModelSpec& model = setup.model;
  const auto batch = static_cast<std::size_t>(setup.learner.batch_size);
  const bool proximal = setup.learner.proximal_coef > 0;
  const auto n = static_cast<double>(batch), dims = static_cast<double>(model.distribution.dims);
  const auto policy = static_cast<double>(model.policy_parameters());
  const double ratios = setup.surrogate.ratio == RatioOf::kDimension ? n * dims : n;
  const auto outputs = static_cast<double>(model.distribution.outputs());
  LearnerMemory memory;
  // Parameters, gradient and two moments; the average.
  memory.held = 4 * (4 * (policy + static_cast<double>(model.critic_parameters())) + (proximal ? policy : 0));
  memory.held += Mlp<float>::bytes_needed(model.policy_shape, model.shared > 0 ? 2 * batch : batch) +
                 Mlp<float>::bytes_needed(model.critic_shape, 2 * batch) +
                 Mlp<float>::bytes_needed(model.policy_shape, proximal ? batch : 0);
  // Workspace; the last is that of the diagnostics.
  memory.held += 4 * n * (2 * static_cast<double>(model.observation_size) + 3 * dims + 4 * outputs + 12) + 28 * ratios +
                 48 * ratios;
  if (model.uniform_init) return memory;
  // An orthogonal matrix is made in double precision from three more of its size.
  for (const MlpShape& shape : {model.policy_shape, model.critic_shape}) {
    auto in = static_cast<double>(shape.input);
    for (std::size_t i = 0; i <= shape.hidden.size(); ++i) {
      const auto out =
          static_cast<double>(i < shape.hidden.size() ? static_cast<std::size_t>(shape.hidden[i]) : shape.output);
      memory.at_first = std::max(memory.at_first, 4 * sizeof(double) * in * out);
      in = out;
    }
  }
  return memory;
}

double saved_learner_bytes(const LearnerSetup& setup) {
  const auto policy = static_cast<double>(setup.model.policy_parameters());
  const auto both = policy + static_cast<double>(setup.model.critic_parameters());
  return 4 * (3 * both + (setup.learner.proximal_coef > 0 ? policy : 0)) +
         8 * static_cast<double>(setup.model.observation_size);
}

std::unique_ptr<Learner> make_learner(const LearnerSetup& setup, RandomStream random, ThreadPool& pool) {
  return std::make_unique<CpuLearner<float>>(setup, random, pool);
}

}  // namespace gipo
