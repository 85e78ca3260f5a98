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
  if (options.schedule == "constant") return 1.0;
  const double span = std::max(1.0, static_cast<double>(options.updates) - warm);
  const double done = std::clamp((t - warm) / span, 0.0, 1.0);
  if (options.schedule == "linear") return 1.0 - done;
  return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

std::unique_ptr<Learner> make_learner(const LearnerSetup& setup, RandomStream random, ThreadPool& pool) {
  return std::make_unique<CpuLearner<float>>(setup, random, pool);
}

}  // namespace gipo
