#include "gipo/stats/bootstrap.h"

#include <algorithm>
#include <array>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/stats/quantile.h"

namespace gipo {
namespace {

using Counts = std::vector<std::uint32_t>;
using Sample = std::vector<double>;  // one figure over all repetitions

// As many draws as there are runs, with replacement, for each task apart.
void draw(const RankedScores& scores, RandomStream& random, Counts& counts) {
  std::fill(counts.begin(), counts.end(), 0u);
  std::size_t begin = 0;
  for (const std::size_t runs : scores.task_sizes()) {
    for (std::size_t i = 0; i < runs; ++i) {
      // The high word of a product: uniform to within runs / 2^32, and without a division.
      const std::uint64_t product = static_cast<std::uint64_t>(random.next_u32()) * runs;
      ++counts[begin + static_cast<std::size_t>(product >> 32)];
    }
    begin += runs;
  }
}

Estimate with_interval(double value, Sample& sample, double confidence) {
  const std::array<double, 2> q = {(1 - confidence) / 2, (1 + confidence) / 2};
  std::array<double, 2> ends{};
  quantiles<double>(sample, q, ends);
  return {value, ends[0], ends[1]};
}

// One method: its ranked scores, its stream, and what each repetition gave.
struct Method {
  RankedScores scores;
  RandomStream random;
  Counts counts;
  std::array<Sample, 4> figures;  // IQM, median, mean, optimality gap
  std::vector<Sample> profile;    // [taus]
};

std::vector<Method> begin(const ScoreTable& table, const BootstrapOptions& o) {
  std::vector<Method> methods;
  for (std::size_t m = 0; m < table.methods.size(); ++m) {
    RankedScores scores(table.scores[m], o.target);
    const std::size_t size = scores.size();
    methods.push_back({std::move(scores),
                       RandomStream::derive(o.seed, "bootstrap", m),
                       Counts(size, 1u),
                       {},
                       std::vector<Sample>(o.taus.size())});
    for (Sample& figure : methods.back().figures) figure.reserve(static_cast<std::size_t>(o.repetitions));
  }
  return methods;
}

void repeat(Method& m, const BootstrapOptions& o, bool profiled, std::vector<double>& fractions) {
  draw(m.scores, m.random, m.counts);
  const Aggregates a = m.scores.aggregates(m.counts);
  const std::array<double, 4> figures = {a.iqm, a.median, a.mean, a.optimality_gap};
  for (std::size_t i = 0; i < figures.size(); ++i) m.figures[i].push_back(figures[i]);
  if (!profiled) return;
  m.scores.profile(m.counts, o.taus, fractions);
  for (std::size_t i = 0; i < fractions.size(); ++i) m.profile[i].push_back(fractions[i]);
}

MethodEstimates end(Method& m, const TaskScores& scores, const BootstrapOptions& o) {
  const Aggregates a = aggregates(scores, o.target);
  const auto finish = [&](double value, Sample& sample) { return with_interval(value, sample, o.confidence); };
  MethodEstimates result = {finish(a.iqm, m.figures[0]),
                            finish(a.median, m.figures[1]),
                            finish(a.mean, m.figures[2]),
                            finish(a.optimality_gap, m.figures[3]),
                            {}};
  const std::vector<double> fractions = profile(scores, o.taus);
  for (std::size_t i = 0; i < fractions.size(); ++i) {
    result.profile.push_back(finish(fractions[i], m.profile[i]));
  }
  return result;
}

}  // namespace

Estimates estimate(const ScoreTable& table, const BootstrapOptions& o) {
  GIPO_CHECK(o.repetitions > 0 && std::is_sorted(o.taus.begin(), o.taus.end()));
  std::vector<Method> methods = begin(table, o);
  struct Pair {
    std::size_t x, y;
    RankedPair ranked;
    Sample sample;
  };
  std::vector<Pair> pairs;
  for (std::size_t x = 0; x < methods.size(); ++x) {
    for (std::size_t y = x + 1; y < methods.size(); ++y) {
      pairs.push_back({x, y, RankedPair(table.scores[x], table.scores[y]), {}});
    }
  }

  std::vector<double> fractions(o.taus.size());
  for (std::int64_t i = 0; i < o.repetitions; ++i) {
    for (Method& m : methods) repeat(m, o, i < o.profile_repetitions, fractions);
    for (Pair& p : pairs) p.sample.push_back(p.ranked.improvement(methods[p.x].counts, methods[p.y].counts));
  }

  Estimates result;
  for (std::size_t m = 0; m < methods.size(); ++m) result.methods.push_back(end(methods[m], table.scores[m], o));
  for (Pair& p : pairs) {
    const double value = probability_of_improvement(table.scores[p.x], table.scores[p.y]);
    result.improvements.push_back({p.x, p.y, with_interval(value, p.sample, o.confidence)});
  }
  return result;
}

}  // namespace gipo
