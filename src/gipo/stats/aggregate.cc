#include "gipo/stats/aggregate.h"

#include <algorithm>
#include <numeric>

#include "gipo/core/error.h"
#include "gipo/stats/quantile.h"

namespace gipo {
namespace {

std::size_t total_runs(const TaskScores& scores) {
  std::size_t n = 0;
  for (const auto& runs : scores) n += runs.size();
  return n;
}

std::vector<std::uint32_t> each_once(const TaskScores& scores) {
  return std::vector<std::uint32_t>(total_runs(scores), 1);
}

}  // namespace

RankedScores::RankedScores(const TaskScores& scores, double target) : target_(target) {
  for (const auto& runs : scores) {
    GIPO_CHECK(!runs.empty());
    task_sizes_.push_back(runs.size());
    values_.insert(values_.end(), runs.begin(), runs.end());
  }
  order_.resize(values_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) { return values_[a] < values_[b]; });
}

Aggregates RankedScores::aggregates(std::span<const std::uint32_t> counts) const {
  GIPO_CHECK(counts.size() == size());
  const auto n = static_cast<double>(size()), tasks = static_cast<double>(task_sizes_.size());
  Aggregates result;
  std::vector<double> means(task_sizes_.size());
  double reached = 0;
  for (std::size_t task = 0, i = 0; task < means.size(); ++task) {
    double sum = 0;
    for (std::size_t run = 0; run < task_sizes_[task]; ++run, ++i) {
      sum += counts[i] * values_[i];
      reached += counts[i] * std::min(values_[i], target_);
    }
    means[task] = sum / static_cast<double>(task_sizes_[task]);
    result.mean += means[task] / tasks;
  }
  result.optimality_gap = target_ - reached / n;
  result.median = quantile<double>(means, 0.5);

  const std::size_t cut = size() / 4;
  std::size_t below = cut, left = size() - 2 * cut;
  double sum = 0;
  for (const std::size_t i : order_) {
    std::size_t count = counts[i];
    const std::size_t dropped = std::min(count, below);
    below -= dropped;
    count = std::min(count - dropped, left);
    left -= count;
    sum += static_cast<double>(count) * values_[i];
  }
  result.iqm = sum / static_cast<double>(size() - 2 * cut);
  return result;
}

void RankedScores::profile(std::span<const std::uint32_t> counts, std::span<const double> taus,
                           std::span<double> fractions) const {
  GIPO_CHECK(counts.size() == size() && taus.size() == fractions.size());
  std::uint64_t not_above = 0;
  std::size_t rank = 0;
  for (std::size_t i = 0; i < taus.size(); ++i) {
    for (; rank < size() && values_[order_[rank]] <= taus[i]; ++rank) not_above += counts[order_[rank]];
    fractions[i] = static_cast<double>(size() - not_above) / static_cast<double>(size());
  }
}

RankedPair::RankedPair(const TaskScores& x, const TaskScores& y) {
  GIPO_CHECK(x.size() == y.size());
  std::uint32_t x_begin = 0, y_begin = 0;
  for (std::size_t task = 0; task < x.size(); ++task) {
    Task& made = tasks_.emplace_back();
    made.pairs = static_cast<double>(x[task].size()) * static_cast<double>(y[task].size());
    for (std::uint32_t i = 0; i < x[task].size(); ++i) made.entries.push_back({x_begin + i, true, false});
    for (std::uint32_t i = 0; i < y[task].size(); ++i) made.entries.push_back({y_begin + i, false, false});
    const auto score = [&](const Entry& e) { return e.of_x ? x[task][e.index - x_begin] : y[task][e.index - y_begin]; };
    std::stable_sort(made.entries.begin(), made.entries.end(),
                     [&](const Entry& a, const Entry& b) { return score(a) < score(b); });
    for (std::size_t i = 0; i < made.entries.size(); ++i) {
      made.entries[i].ends_tie = i + 1 == made.entries.size() || score(made.entries[i]) < score(made.entries[i + 1]);
    }
    x_begin += static_cast<std::uint32_t>(x[task].size());
    y_begin += static_cast<std::uint32_t>(y[task].size());
  }
}

double RankedPair::improvement(std::span<const std::uint32_t> x_counts, std::span<const std::uint32_t> y_counts) const {
  double sum = 0;
  for (const Task& task : tasks_) {
    // Twice U, so that ties stay whole numbers.
    std::uint64_t twice_u = 0, y_below = 0, x_here = 0, y_here = 0;
    for (const Entry& e : task.entries) {
      (e.of_x ? x_here : y_here) += e.of_x ? x_counts[e.index] : y_counts[e.index];
      if (!e.ends_tie) continue;
      twice_u += x_here * (2 * y_below + y_here);
      y_below += y_here;
      x_here = y_here = 0;
    }
    sum += static_cast<double>(twice_u) / (2 * task.pairs);
  }
  return sum / static_cast<double>(tasks_.size());
}

Aggregates aggregates(const TaskScores& scores, double target) {
  return RankedScores(scores, target).aggregates(each_once(scores));
}

std::vector<double> profile(const TaskScores& scores, std::span<const double> taus) {
  std::vector<double> fractions(taus.size());
  RankedScores(scores).profile(each_once(scores), taus, fractions);
  return fractions;
}

double probability_of_improvement(const TaskScores& x, const TaskScores& y) {
  return RankedPair(x, y).improvement(each_once(x), each_once(y));
}

}  // namespace gipo
