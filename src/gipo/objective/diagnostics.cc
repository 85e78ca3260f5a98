#include "gipo/objective/diagnostics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "gipo/core/error.h"
#include "gipo/objective/surrogate.h"
#include "gipo/stats/quantile.h"

namespace gipo {
namespace {

// The figures of one subset. Sums first, means after finish().
struct Summary {
  double samples = 0, entries = 0;  // a sample has `dims` entries
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
    {"new_frac", [](auto& all, auto& fresh, auto&) { return over(fresh.samples, all.samples); }},
    {"old_frac", [](auto& all, auto&, auto& old) { return over(old.samples, all.samples); }},
    {"old_gap_p95", [](auto&, auto&, auto& old) { return old.gap_p95; }},
    {"share_old", [](auto& all, auto&, auto& old) { return over(old.contribution_sum, all.contribution_sum); }},
    {"ess_old", [](auto&, auto&, auto& old) { return old.ess(); }},
    {"ess_old_norm", [](auto&, auto&, auto& old) { return over(old.ess(), old.entries); }},
    {"ess", [](auto& all, auto&, auto&) { return all.ess(); }},
    {"ess_norm", [](auto& all, auto&, auto&) { return over(all.ess(), all.entries); }},
    {"abs_log_rho_p95", [](auto& all, auto&, auto&) { return all.d95; }},  // the paper's name of d95
};

bool belongs(Subset subset, std::int64_t gap, std::int64_t t_old) {
  return subset == Subset::kAll || (subset == Subset::kNew ? gap <= kNewGap : gap >= t_old);
}

// |m A| in double, where no product of two floats underflows.
double contribution(const DiagnosticsInput& in, std::size_t i) {
  return std::abs(static_cast<double>(in.multiplier[i]) * static_cast<double>(in.advantage[i]));
}

void add_entry(Summary& s, const DiagnosticsInput& in, std::size_t i, double rho) {
  const double m = std::abs(static_cast<double>(in.multiplier[i])), u = contribution(in, i);
  const bool zero = m == 0, finite = std::isfinite(in.log_ratio[i]) && std::isfinite(in.advantage[i]);
  s.entries += 1;
  s.ratio_mean += rho;
  s.ratio_max = std::max(s.ratio_max, rho);
  s.log_ratio_mean += in.log_ratio[i];
  s.near_zero_frac += u <= kTauU;
  // A zero is the clip's own, or what float left of a tiny weight: told apart, never added up.
  s.dead_frac += zero && in.clips_to_zero;
  s.underflow_frac += zero && !in.clips_to_zero && finite;
  s.suppressed_frac += m > 0 && m <= kTauM;
  s.clip_frac += std::abs(rho - 1) > in.epsilon;
  s.contribution_sum += u;
  s.contribution_squares += u * u;
}

void finish(Summary& s) {
  s.gap_mean = over(s.gap_mean, s.samples);
  s.age_mean = over(s.age_mean, s.samples);
  for (double Summary::*sum :
       {&Summary::ratio_mean, &Summary::log_ratio_mean, &Summary::near_zero_frac, &Summary::dead_frac,
        &Summary::underflow_frac, &Summary::suppressed_frac, &Summary::clip_frac}) {
    s.*sum = over(s.*sum, s.entries);
  }
  // Samples come from mu: minus the mean log ratio of whole actions estimates KL(mu || pi).
  s.kl = -s.log_ratio_mean * over(s.entries, s.samples);
  s.contribution_mean = over(s.contribution_sum, s.entries);
}

// `rho` and `scratch` as Diagnostics::scratch_: the first third, and the other two.
Summary summarise(const DiagnosticsInput& in, Subset subset, std::span<const float> rho, std::span<float> scratch,
                  std::span<double> gaps) {
  const std::span<float> ratios = scratch.first(rho.size()), distances = scratch.last(rho.size());
  Summary s;
  std::size_t samples = 0, entries = 0;
  for (std::size_t n = 0; n < in.gap.size(); ++n) {
    if (!belongs(subset, in.gap[n], in.t_old)) continue;
    s.gap_mean += static_cast<double>(in.gap[n]);
    ++samples;
    s.age_mean += in.age[n];
    for (std::size_t i = n * in.dims; i < (n + 1) * in.dims; ++i, ++entries) {
      ratios[entries] = rho[i];
      distances[entries] = std::abs(in.log_ratio[i]);
      add_entry(s, in, i, rho[i]);
    }
  }
  s.samples = static_cast<double>(samples);
  constexpr std::array<double, 3> levels = {0.5, 0.9, 0.99};
  std::array<double, 3> found{};
  quantiles<float>(ratios.first(entries), levels, found);
  s.ratio_p50 = found[0], s.ratio_p90 = found[1], s.ratio_p99 = found[2];
  s.d95 = quantile<float>(distances.first(entries), 0.95);
  std::size_t pooled = 0;
  for (const std::int64_t gap : in.gap_pool.empty() ? in.gap : in.gap_pool) {
    if (belongs(subset, gap, in.t_old)) gaps[pooled++] = static_cast<double>(gap);
  }
  s.gap_p95 = quantile<double>(gaps.first(pooled), 0.95);
  finish(s);
  return s;
}

// The first edge that is not below the value; NaN falls into the last column.
std::size_t column(const std::array<double, 7>& edges, double value) {
  std::size_t k = 0;
  for (const double edge : edges) k += !(value <= edge);
  return k;
}

std::size_t age_row(std::int64_t gap, double window) {
  const double eighths = static_cast<double>(kAgeBins) * static_cast<double>(gap) / window;
  if (!(eighths > 0)) return 0;
  return static_cast<std::size_t>(std::min(eighths, static_cast<double>(kAgeBins - 1)));
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
  scratch_.resize(3 * entries);
  gap_scratch_.resize(std::max(in.gap.size(), in.gap_pool.size()));
  contribution_ = {};
  log_ratio_ = {};

  // Ratios and histograms, over all samples.
  constexpr float limit = static_cast<float>(kMaxLogRatio);
  for (std::size_t n = 0, i = 0; n < in.gap.size(); ++n) {
    const std::size_t row = age_row(in.gap[n], in.window);
    for (const std::size_t end = i + in.dims; i < end; ++i) {
      scratch_[i] = std::exp(std::clamp(in.log_ratio[i], -limit, limit));
      ++contribution_[row][column(kContributionEdges, contribution(in, i))];
      ++log_ratio_[row][column(kLogRatioEdges, std::abs(static_cast<double>(in.log_ratio[i])))];
    }
  }

  // The same figures for all, new and old; then those that stand once.
  const std::span<float> rho = std::span(scratch_).first(entries), scratch = std::span(scratch_).subspan(entries);
  Summaries summaries;
  std::size_t next = 0;
  for (std::size_t k = 0; k < summaries.size(); ++k) {
    summaries[k] = summarise(in, kSubsets[k].first, rho, scratch, gap_scratch_);
    const bool empty = summaries[k].samples == 0;  // nothing to say, which is not the same as zero
    for (const Figure& figure : kFigures) figures_[next++].second = empty ? kNothing : summaries[k].*figure.value;
  }
  for (const JointFigure& figure : kJointFigures) {
    figures_[next++].second = figure.value(summaries[0], summaries[1], summaries[2]);
  }
  return figures_;
}

}  // namespace gipo
