#include "gipo/study/halving.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gipo/core/error.h"

namespace gipo {

std::vector<std::size_t> round_seeds(std::size_t first, std::size_t all) {
  std::vector<std::size_t> rounds;
  for (std::size_t n = first; n < all; n *= 2) rounds.push_back(n);
  rounds.push_back(all);
  return rounds;
}

std::size_t going_on(std::size_t n, double keep) {
  const auto share = static_cast<std::size_t>(std::lround(keep * static_cast<double>(n)));
  return std::min(n, std::max<std::size_t>(2, share));
}

Halving::Halving(std::size_t candidates, std::size_t tasks, std::vector<std::size_t> seeds_of_rounds, double keep)
    : tasks_(tasks), seeds_(std::move(seeds_of_rounds)), keep_(keep), alive_(candidates), standings_(candidates) {
  GIPO_CHECK(candidates > 0 && tasks > 0 && !seeds_.empty());
  std::iota(alive_.begin(), alive_.end(), std::size_t{0});
}

void Halving::take(const ScoreOf& score) {
  GIPO_CHECK(!done());
  for (const std::size_t c : alive_) {
    standings_[c] = {round_ + 1, seeds(), std::vector<double>(tasks_, 0.0), 0, 0, false};
  }
  for (std::size_t task = 0; task < tasks_; ++task) {
    double worst = 0;
    std::vector<std::size_t> failed(standings_.size(), 0);
    for (const std::size_t c : alive_) {
      for (std::size_t seed = 0; seed < seeds(); ++seed) {
        const std::optional<double> s = score(c, task, seed);
        if (!s) ++failed[c];
        standings_[c].tasks[task] += s.value_or(0);
        worst = std::min(worst, s.value_or(0));
      }
    }
    for (const std::size_t c : alive_) {
      double& sum = standings_[c].tasks[task];
      sum = (sum + worst * static_cast<double>(failed[c])) / static_cast<double>(seeds());
      standings_[c].mean += sum / static_cast<double>(tasks_);
      standings_[c].failed += failed[c];
    }
  }
  ranking_ = alive_;
  std::stable_sort(ranking_.begin(), ranking_.end(),
                   [&](std::size_t a, std::size_t b) { return standings_[a].mean > standings_[b].mean; });
  ++round_;
  alive_.assign(ranking_.begin(),
                ranking_.begin() + static_cast<std::ptrdiff_t>(done() ? 1 : going_on(ranking_.size(), keep_)));
  std::sort(alive_.begin(), alive_.end());
  for (const std::size_t c : ranking_) standings_[c].dropped = !std::binary_search(alive_.begin(), alive_.end(), c);
}

std::optional<std::size_t> Halving::runner_up() const {
  return ranking_.size() > 1 ? std::optional(ranking_[1]) : std::nullopt;
}

}  // namespace gipo
