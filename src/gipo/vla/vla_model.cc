#include "gipo/vla/vla_model.h"

#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/core/random.h"

namespace gipo {

void choose_chunk(std::span<const float> logits, double temperature, RandomStream* random,
                  std::span<std::int32_t> action, std::span<float> log_prob) {
  GIPO_CHECK(logits.size() == action.size() * kHeadChoices && log_prob.size() == action.size());
  for (std::size_t t = 0; t < action.size(); ++t) {
    const std::span<const float> row = logits.subspan(t * kHeadChoices, kHeadChoices);
    const auto best = std::max_element(row.begin(), row.end());
    double sum = 0;
    const auto weight = [&](std::size_t k) { return std::exp(static_cast<double>(row[k] - *best) / temperature); };
    for (std::size_t k = 0; k < row.size(); ++k) sum += weight(k);
    std::size_t chosen = static_cast<std::size_t>(best - row.begin());
    if (random != nullptr) {
      double left = random->uniform() * sum;
      for (chosen = 0; chosen + 1 < row.size() && (left -= weight(chosen)) >= 0;) ++chosen;
    }
    action[t] = static_cast<std::int32_t>(chosen);
    log_prob[t] = static_cast<float>(static_cast<double>(row[chosen] - *best) / temperature - std::log(sum));
  }
}

}  // namespace gipo
