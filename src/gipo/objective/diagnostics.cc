#include "gipo/objective/diagnostics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "gipo/core/error.h"
#include "gipo/objective/surrogate.h"
#include "gipo/stats/quantile.h"
#include "gipo/stats/sort_floats.h"

namespace gipo {
namespace {

// The figures of one subset. Sums first, means after finish().
struct Summary {
  double samples = 0, entries = 0;  // a sample has `dims` entries
  double pooled = 0;                // gaps of the pool
  double gap_mean = 0, gap_p95 = 0, age_mean = 0;
  double ratio_mean = 0, ratio_p50 = 0, ratio_p90 = 0, ratio_p99 = 0, ratio_max = 0;
  double log_ratio_mean = 0, d95 = 0, kl = 0;
  double near_zero_frac = 0, dead_frac = 0, underflow_frac = 0, suppressed_frac = 0, clip_frac = 0;
  double contribution_mean = 0, contribution_sum = 0, contribution_squares = 0;

  // Effective sample size of the contributions u: (sum u)^2 / sum u^2.
  double ess() const {
    return contribution_squares > 0 ? contribution_sum * contribution_sum / contribution_squares : 0;
  }
};

struct Figure {
  std::string_view name;
  double Summary::*value;
};
constexpr Figure kFigures[] = {
    {"gap_mean", &Summary::gap_mean},
    {"gap_p95", &Summary::gap_p95},
    {"age_mean", &Summary::age_mean},
    {"ratio_mean", &Summary::ratio_mean},
    {"ratio_p50", &Summary::ratio_p50},
    {"ratio_p90", &Summary::ratio_p90},
    {"ratio_p99", &Summary::ratio_p99},
    {"ratio_max", &Summary::ratio_max},
    {"log_ratio_mean", &Summary::log_ratio_mean},
    {"d95", &Summary::d95},
    {"near_zero_frac", &Summary::near_zero_frac},
    {"dead_frac", &Summary::dead_frac},
    {"underflow_frac", &Summary::underflow_frac},
    {"suppressed_frac", &Summary::suppressed_frac},
    {"kl", &Summary::kl},
    {"clip_frac", &Summary::clip_frac},
    {"contribution_mean", &Summary::contribution_mean},
};

enum class Subset { kAll, kNew, kOld };
constexpr std::pair<Subset, std::string_view> kSubsets[] = {
    {Subset::kAll, ""}, {Subset::kNew, "_new"}, {Subset::kOld, "_old"}};

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

using Summaries = std::array<Summary, 3>;  // as kSubsets
double over(double part, double whole) { return whole == 0 ? 0 : part / whole; }

// Figures that stand once.
struct JointFigure {
  std::string_view name;
  double (*value)(const Summary& all, const Summary& fresh, const Summary& old);
};
constexpr JointFigure kJointFigures[] = {
    {"new_frac", [](auto& all, auto& fresh, auto&) { return over(fresh.pooled, all.pooled); }},
    {"old_frac", [](auto& all, auto&, auto& old) { return over(old.pooled, all.pooled); }},
    {"old_gap_p95", [](auto&, auto&, auto& old) { return old.gap_p95; }},
    {"share_old", [](auto& all, auto&, auto& old) { return over(old.contribution_sum, all.contribution_sum); }},
    {"ess_old", [](auto&, auto&, auto& old) { return old.ess(); }},
    {"ess_old_norm", [](auto&, auto&, auto& old) { return over(old.ess(), old.entries); }},
    {"ess", [](auto& all, auto&, auto&) { return all.ess(); }},
    {"ess_norm", [](auto& all, auto&, auto&) { return over(all.ess(), all.entries); }},
    {"abs_log_rho_p95", [](auto& all, auto&, auto&) { return all.d95; }},  // the paper's name of d95
};

// Which subsets a gap belongs to besides all: bit 0 new, bit 1 old. Where t_old is small a sample may be both.
std::size_t classes(std::int64_t gap, std::int64_t t_old) {
  return (gap <= kNewGap ? 1u : 0u) | (gap >= t_old ? 2u : 0u);
}
bool belongs(std::size_t classes, Subset subset) {
  return subset == Subset::kAll || (classes & (subset == Subset::kNew ? 1u : 2u)) != 0;
}

// |m A| in double, where no product of two floats underflows.
double contribution(const DiagnosticsInput& in, std::size_t i) {
  return std::abs(static_cast<double>(in.multiplier[i]) * static_cast<double>(in.advantage[i]));
}

void add_entry(Summary& s, const DiagnosticsInput& in, std::size_t i, double rho, double u) {
  // Without branches (& rather than &&): what a sample does is not to be predicted.
  constexpr float most = std::numeric_limits<float>::max();
  const float m = std::abs(in.multiplier[i]);
  const bool zero = m == 0, clips = in.clips_to_zero;
  const bool finite = (std::abs(in.log_ratio[i]) <= most) & (std::abs(in.advantage[i]) <= most);
  s.entries += 1;
  s.ratio_mean += rho;
  s.ratio_max = std::max(s.ratio_max, rho);
  s.log_ratio_mean += in.log_ratio[i];
  s.near_zero_frac += u <= kTauU;
  // A zero is the clip's own, or what float left of a tiny weight: told apart, never added up.
  s.dead_frac += zero & clips;
  s.underflow_frac += zero & !clips & finite;
  s.suppressed_frac += (m > 0) & (m <= kTauM);
  s.clip_frac += std::abs(rho - 1) > in.epsilon;
  s.contribution_sum += u;
  s.contribution_squares += u * u;
}

// The figures that are sums, as means over samples or entries where they are shown.
constexpr double Summary::*kSampleMeans[] = {&Summary::gap_mean, &Summary::age_mean};
constexpr double Summary::*kEntryMeans[] = {&Summary::ratio_mean, &Summary::log_ratio_mean, &Summary::near_zero_frac,
                                            &Summary::dead_frac,  &Summary::underflow_frac, &Summary::suppressed_frac,
                                            &Summary::clip_frac};

void merge(Summary& into, const Summary& from) {
  for (double Summary::*sum : kSampleMeans) into.*sum += from.*sum;
  for (double Summary::*sum : kEntryMeans) into.*sum += from.*sum;
  into.samples += from.samples;
  into.entries += from.entries;
  into.ratio_max = std::max(into.ratio_max, from.ratio_max);
  into.contribution_sum += from.contribution_sum;
  into.contribution_squares += from.contribution_squares;
}

void finish(Summary& s) {
  for (double Summary::*sum : kSampleMeans) s.*sum = over(s.*sum, s.samples);
  for (double Summary::*sum : kEntryMeans) s.*sum = over(s.*sum, s.entries);
  // Samples come from mu: minus the mean log ratio of whole actions estimates KL(mu || pi).
  s.kl = -s.log_ratio_mean * over(s.entries, s.samples);
  s.contribution_mean = over(s.contribution_sum, s.entries);
}

// Quantile of ascending values as NumPy defines it: linear between neighbours. `at(k)` is the k-th value.
template <class At>
double sorted_quantile(std::size_t n, double q, At&& at) {
  const double position = q * static_cast<double>(n - 1);
  const auto k = static_cast<std::size_t>(position);
  const double low = at(k), high = at(std::min(k + 1, n - 1)), part = position - static_cast<double>(k);
  return part == 0 || low == high ? low : low + (high - low) * part;
}

// The q-quantile of |x| for ascending x: its largest values stand at the two ends.
double magnitude_quantile(std::span<const float> sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto k = static_cast<std::size_t>(position);
  std::size_t first = 0, last = sorted.size();  // what is left
  double above = 0, value = 0;                  // the (k+1)-th and the k-th smallest, once found
  for (std::size_t rank = sorted.size(); rank-- > k;) {
    above = value;
    const float low = std::abs(sorted[first]), high = std::abs(sorted[last - 1]);
    value = std::max(low, high);
    low > high ? ++first : --last;
  }
  const double part = position - static_cast<double>(k);
  return part == 0 || value == above ? value : value + (above - value) * part;
}

// `keys`: all log ratios in ascending order, tagged with their classes.
void add_quantiles(Summary& s, const DiagnosticsInput& in, Subset subset, std::span<const std::uint64_t> keys,
                   std::span<float> sorted, std::span<double> gaps) {
  std::size_t entries = 0, pooled = 0;
  for (const std::int64_t gap : in.gap_pool.empty() ? in.gap : in.gap_pool) {
    gaps[pooled] = static_cast<double>(gap);
    pooled += belongs(classes(gap, in.t_old), subset);
  }
  s.gap_p95 = quantile<double>(gaps.first(pooled), 0.95);
  s.pooled = static_cast<double>(pooled);
  if (s.entries == 0) return;
  for (const std::uint64_t key : keys) {
    sorted[entries] = float_of(key);
    entries += belongs(tag_of(key), subset);
  }
  const std::span<const float> chosen = sorted.first(entries);
  const bool nan = std::isnan(chosen.front()) || std::isnan(chosen.back());
  const auto rho = [&](std::size_t k) { return std::exp(std::clamp<double>(chosen[k], -kMaxLogRatio, kMaxLogRatio)); };
  s.ratio_p50 = nan ? kNothing : sorted_quantile(entries, 0.5, rho);
  s.ratio_p90 = nan ? kNothing : sorted_quantile(entries, 0.9, rho);
  s.ratio_p99 = nan ? kNothing : sorted_quantile(entries, 0.99, rho);
  s.d95 = nan ? kNothing : magnitude_quantile(chosen, 0.95);
}

// The first of the seven edges that is not below the value, by bisection; NaN falls into the last column.
std::size_t column(const std::array<double, 7>& edges, double value) {
  std::size_t k = !(value <= edges[3]) ? 4 : 0;
  k += !(value <= edges[k + 1]) ? 2 : 0;
  k += !(value <= edges[k]) ? 1 : 0;
  return k;
}

std::size_t age_row(std::int64_t gap, double rows_per_update) {
  const double eighths = static_cast<double>(gap) * rows_per_update;
  // In this order NaN, of a window of zero, becomes 0.
  return static_cast<std::size_t>(std::min(static_cast<double>(kAgeBins - 1), std::max(0.0, eighths)));
}

std::vector<std::pair<std::string, double>> named_figures() {
  std::vector<std::pair<std::string, double>> figures;
  for (const auto& [subset, suffix] : kSubsets) {
    for (const Figure& figure : kFigures) figures.emplace_back(std::string(figure.name) + std::string(suffix), 0.0);
  }
  for (const JointFigure& figure : kJointFigures) figures.emplace_back(std::string(figure.name), 0.0);
  return figures;
}

}  // namespace

const std::vector<std::pair<std::string, double>>& Diagnostics::compute(const DiagnosticsInput& in) {
  const std::size_t entries = in.log_ratio.size();
  GIPO_CHECK(in.dims > 0 && in.gap.size() * in.dims == entries && in.age.size() == in.gap.size());
  GIPO_CHECK(in.advantage.size() == entries && in.multiplier.size() == entries);
  if (figures_.empty()) figures_ = named_figures();
  keys_.resize(entries);
  key_scratch_.resize(entries);
  sorted_.resize(entries + 1);
  gap_scratch_.resize(std::max(in.gap.size(), in.gap_pool.size()) + 1);
  contribution_ = {};
  log_ratio_ = {};

  // One pass for ratios, histograms and sums, the sums apart for each combination of new and old.
  constexpr float limit = static_cast<float>(kMaxLogRatio);
  const double rows_per_update = static_cast<double>(kAgeBins) / in.window;
  std::array<Summary, 4> parts;
  for (std::size_t n = 0, i = 0; n < in.gap.size(); ++n) {
    const std::size_t row = age_row(in.gap[n], rows_per_update);
    const std::size_t tag = classes(in.gap[n], in.t_old);
    Summary& part = parts[tag];
    part.samples += 1;
    part.gap_mean += static_cast<double>(in.gap[n]);
    part.age_mean += in.age[n];
    for (const std::size_t end = i + in.dims; i < end; ++i) {
      keys_[i] = float_key(in.log_ratio[i], static_cast<std::uint32_t>(tag));
      const double rho = std::exp(std::clamp(in.log_ratio[i], -limit, limit)), u = contribution(in, i);
      add_entry(part, in, i, rho, u);
      ++contribution_[row][column(kContributionEdges, u)];
      ++log_ratio_[row][column(kLogRatioEdges, std::abs(static_cast<double>(in.log_ratio[i])))];
    }
  }

  // The same figures for all, new and old; then those that stand once.
  sort_float_keys(keys_, key_scratch_);
  Summaries summaries;
  std::size_t next = 0;
  for (std::size_t k = 0; k < summaries.size(); ++k) {
    const Subset subset = kSubsets[k].first;
    for (std::size_t c = 0; c < parts.size(); ++c) {
      if (belongs(c, subset)) merge(summaries[k], parts[c]);
    }
    finish(summaries[k]);
    add_quantiles(summaries[k], in, subset, keys_, sorted_, gap_scratch_);
    const bool empty = summaries[k].samples == 0;  // nothing to say, which is not the same as zero
    for (const Figure& figure : kFigures) figures_[next++].second = empty ? kNothing : summaries[k].*figure.value;
  }
  for (const JointFigure& figure : kJointFigures) {
    figures_[next++].second = figure.value(summaries[0], summaries[1], summaries[2]);
  }
  return figures_;
}

}  // namespace gipo
