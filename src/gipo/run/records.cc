#include "gipo/run/records.h"

#include <fmt/format.h>

#include <cmath>

namespace gipo {

ReturnStats return_stats(std::span<const double> returns, std::span<const Success> success) {
  ReturnStats stats;
  stats.episodes = static_cast<std::int64_t>(returns.size());
  if (returns.empty()) return stats;
  const auto n = static_cast<double>(returns.size());
  for (const double r : returns) stats.mean += r / n;
  for (const double r : returns) stats.std += (r - stats.mean) * (r - stats.mean) / n;
  stats.std = std::sqrt(stats.std);
  double known = 0, ever = 0, last = 0;
  for (const Success& s : success) known += s.known, ever += s.ever, last += s.last;
  if (known > 0) stats.success_rate = ever / known, stats.success_rate_last = last / known;
  return stats;
}

std::map<std::string, std::string> metadata_of(const BestEvaluation& best) {
  return {{"env_steps", std::to_string(best.env_steps)},
          {"eval_mean", fmt::format("{}", best.returns.mean)},
          {"eval_std", fmt::format("{}", best.returns.std)},
          {"eval_episodes", std::to_string(best.returns.episodes)}};
}

}  // namespace gipo
