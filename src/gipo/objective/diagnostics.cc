#include "gipo/objective/diagnostics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>

#include "gipo/core/error.h"
#include "gipo/kernels/fast_exp.h"
#include "gipo/objective/surrogate.h"
#include "gipo/stats/sort_keys.h"

namespace gipo {
namespace {

// The figures of one subset. Sums first, means after finish().
struct Summary {
  double samples = 0, entries = 0;  // a sample has `dims` entries
  double pooled = 0;                // gaps of the pool
  double gap_mean = 0, gap_p95 = 0, age_mean = 0;
  double ratio_mean = 0, ratio_p50 = 0, ratio_p90 = 0, ratio_p99 = 0, ratio_max = 0;
  double log_ratio_mean = 0, d95 = 0, trust_d95 = 0, kl = 0;
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
    {"trust_d95", &Summary::trust_d95},
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

// The greatest float that is not above a value >= 0: a float exceeds the one where it exceeds the other.
constexpr float at_most(double value) {
  const float near = static_cast<float>(value);
  return static_cast<double>(near) <= value ? near : std::bit_cast<float>(std::bit_cast<std::uint32_t>(near) - 1);
}
// The least float that is not below a value >= 0.
constexpr float at_least(double value) {
  const float near = static_cast<float>(value);
  return static_cast<double>(near) >= value ? near : std::bit_cast<float>(std::bit_cast<std::uint32_t>(near) + 1);
}
template <std::size_t N>
constexpr std::array<float, N> at_most(const std::array<double, N>& values) {
  std::array<float, N> out{};
  for (std::size_t k = 0; k < N; ++k) out[k] = values[k] < 0 ? -at_least(-values[k]) : at_most(values[k]);
  return out;
}

// How many of the edges the value exceeds; NaN exceeds them all.
template <std::size_t N>
inline std::uint32_t column(const std::array<float, N>& edges, float value) {
  std::uint32_t k = 0;
  for (const float edge : edges) k += !(value <= edge);
  return k;
}

// Four counts in one number.
constexpr unsigned kNearZero = 0, kZero = 8, kSuppressed = 16, kClipped = 24;
constexpr std::size_t kMostCounted = 255;
double count_of(std::uint32_t counts, unsigned which) { return (counts >> which) & 0xff; }

// For each entry its ratio, 1 in each count that it belongs to, and its columns in the histograms: of the contribution
// times eight, plus that of the log ratio. Nothing here depends on another entry, so that the loop becomes vectors.
void classify(const DiagnosticsInput& in, float* __restrict rhos, std::uint32_t* __restrict counts,
              std::uint32_t* __restrict columns) {
  constexpr float kLimit = static_cast<float>(kMaxLogRatio), kLargest = std::numeric_limits<float>::max();
  constexpr std::array<float, 7> kContributions = at_most(kContributionEdges), kLogRatios = at_most(kLogRatioEdges);
  constexpr float kMostU = at_most(kTauU), kMostM = at_most(kTauM);
  const float epsilon = at_most(in.epsilon);
  const std::uint32_t any_zero = in.clips_to_zero ? 1 : 0;
  const std::size_t n = in.log_ratio.size();
  for (std::size_t i = 0; i < n; ++i) {
    const float x = in.log_ratio[i], m = std::abs(in.multiplier[i]), a = std::abs(in.advantage[i]), u = m * a;
    const float low = x < -kLimit ? -kLimit : x, rho = fast_exp(low > kLimit ? kLimit : low);
    const std::uint32_t zero = m == 0, finite = (std::abs(x) <= kLargest) & (a <= kLargest);
    const std::uint32_t underflow = (m > 0) & (a > 0) & (u <= 0);  // of a contribution that is not zero
    rhos[i] = rho;
    // A zero is the clip's own, or what float left of a tiny weight: told apart, never added up.
    counts[i] = static_cast<std::uint32_t>(u <= kMostU) << kNearZero | (zero & (any_zero | finite)) << kZero |
                static_cast<std::uint32_t>((m > 0) & (m <= kMostM)) << kSuppressed |
                static_cast<std::uint32_t>(std::abs(rho - 1) > epsilon) << kClipped;
    columns[i] = (column(kContributions, u) + underflow) * 8 + column(kLogRatios, std::abs(x));
  }
}

// Of the entries of one row of the histograms.
struct AgeSums {
  double entries = 0, sum = 0, squares = 0, zero = 0;  // sum and squares of the contributions
};

// Entries from `begin` to `end`, all of one age, into `s` and into the histograms' rows of that age.
void add_entries(Summary& s, const DiagnosticsInput& in, const float* rhos, const std::uint32_t* counts,
                 const std::uint32_t* columns, std::size_t begin, std::size_t end,
                 std::array<std::uint32_t, 8>& contributions, std::array<std::uint32_t, 8>& log_ratios, AgeSums& age) {
  double ratio = 0, log_ratio = 0, sum = 0, squares = 0;
  float ratio_max = 0;
  for (std::size_t i = begin; i < end;) {
    std::uint32_t counted = 0;
    for (const std::size_t stop = std::min(end, i + kMostCounted); i < stop; ++i) {
      // No product of two floats underflows in double.
      const double u = std::abs(static_cast<double>(in.multiplier[i]) * static_cast<double>(in.advantage[i]));
      ratio += rhos[i];
      ratio_max = std::max(ratio_max, rhos[i]);
      log_ratio += in.log_ratio[i];
      sum += u;
      squares += u * u;
      counted += counts[i];
      ++contributions[columns[i] / 8];
      ++log_ratios[columns[i] % 8];
    }
    s.near_zero_frac += count_of(counted, kNearZero);
    (in.clips_to_zero ? s.dead_frac : s.underflow_frac) += count_of(counted, kZero);
    age.zero += count_of(counted, kZero);
    s.suppressed_frac += count_of(counted, kSuppressed);
    s.clip_frac += count_of(counted, kClipped);
  }
  s.entries += static_cast<double>(end - begin);
  s.ratio_mean += ratio;
  s.ratio_max = std::max<double>(s.ratio_max, ratio_max);
  s.log_ratio_mean += log_ratio;
  s.contribution_sum += sum;
  s.contribution_squares += squares;
  age.entries += static_cast<double>(end - begin);
  age.sum += sum;
  age.squares += squares;
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

void add_quantiles(Summary& s, std::span<const float> sorted) {
  if (sorted.empty()) return;
  const bool nan = std::isnan(sorted.front()) || std::isnan(sorted.back());
  const auto rho = [&](std::size_t k) { return std::exp(std::clamp<double>(sorted[k], -kMaxLogRatio, kMaxLogRatio)); };
  s.ratio_p50 = nan ? kNothing : sorted_quantile(sorted.size(), 0.5, rho);
  s.ratio_p90 = nan ? kNothing : sorted_quantile(sorted.size(), 0.9, rho);
  s.ratio_p99 = nan ? kNothing : sorted_quantile(sorted.size(), 0.99, rho);
  s.d95 = nan ? kNothing : magnitude_quantile(sorted, 0.95);
}

// `keys`: log ratios in ascending order, tagged with their classes. `sorted`: space for three times as many.
void add_log_ratios(Summaries& summaries, std::span<const std::uint64_t> keys, std::span<float> sorted) {
  const std::size_t n = keys.size();
  const std::span<float> all = sorted.first(n), fresh = sorted.subspan(n, n), old = sorted.last(n);
  std::size_t fresh_count = 0, old_count = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t tag = tag_of(keys[i]);
    all[i] = fresh[fresh_count] = old[old_count] = float_of(keys[i]);
    fresh_count += tag & 1;
    old_count += tag >> 1;
  }
  add_quantiles(summaries[0], all);
  add_quantiles(summaries[1], fresh.first(fresh_count));
  add_quantiles(summaries[2], old.first(old_count));
}

// The 95% quantile of |trust| for each subset. `space`: of the magnitudes.
void add_trust(Summaries& summaries, const DiagnosticsInput& in, std::vector<float>& space) {
  for (std::size_t k = 0; k < summaries.size(); ++k) {
    if (in.trust.empty()) {
      summaries[k].trust_d95 = summaries[k].d95;
      continue;
    }
    space.clear();
    for (std::size_t i = 0; i < in.trust.size(); ++i) {
      if (belongs(classes(in.gap[i / in.dims], in.t_old), kSubsets[k].first)) space.push_back(std::abs(in.trust[i]));
    }
    if (space.empty()) continue;
    const bool nan = std::ranges::any_of(space, [](float x) { return std::isnan(x); });
    if (!nan) std::ranges::sort(space);
    const auto at = [&](std::size_t i) { return static_cast<double>(space[i]); };
    summaries[k].trust_d95 = nan ? kNothing : sorted_quantile(space.size(), 0.95, at);
  }
}

// Counts of the pool's gaps and their 95% quantiles: the greatest twentieth of them is all that these need of old gaps,
// and new ones have three values. `top`: space.
void add_gaps(Summaries& summaries, std::span<const std::int64_t> pool, std::int64_t t_old,
              std::vector<std::int64_t>& top) {
  std::array<std::size_t, kNewGap + 1> up_to{};  // new gaps of at most so much
  std::size_t old = 0;
  for (const std::int64_t gap : pool) {
    for (std::size_t k = 0; k < up_to.size(); ++k) up_to[k] += gap <= static_cast<std::int64_t>(k);
    old += gap >= t_old;
  }
  top.resize(pool.size() / 20 + 2);
  std::partial_sort_copy(pool.begin(), pool.end(), top.begin(), top.end(), std::greater<>());
  const std::array counts = {pool.size(), up_to.back(), old};
  for (std::size_t k = 0; k < summaries.size(); ++k) {
    summaries[k].pooled = static_cast<double>(counts[k]);
    if (counts[k] == 0) continue;
    summaries[k].gap_p95 = sorted_quantile(counts[k], 0.95, [&](std::size_t i) {
      if (kSubsets[k].first != Subset::kNew) return static_cast<double>(top[counts[k] - 1 - i]);
      return static_cast<double>(std::upper_bound(up_to.begin(), up_to.end(), i) - up_to.begin());
    });
  }
}

// Bins of kSignedEdges for all values. `columns`: space. `mean`, where not null: the mean multiplier of each bin.
using SignedBins = std::array<double, kSignedBins>;
void count_signed(std::span<const float> values, std::span<const float> multiplier, std::uint32_t* __restrict columns,
                  SignedBins& counts, SignedBins* mean) {
  constexpr std::array<float, kSignedEdges.size()> kEdges = at_most(kSignedEdges);
  for (std::size_t i = 0; i < values.size(); ++i) columns[i] = column(kEdges, values[i]);
  counts = {};
  for (std::size_t i = 0; i < values.size(); ++i) ++counts[columns[i]];
  if (!mean) return;
  *mean = {};
  for (std::size_t i = 0; i < values.size(); ++i) (*mean)[columns[i]] += multiplier[i];
  for (std::size_t k = 0; k < kSignedBins; ++k) (*mean)[k] = over((*mean)[k], counts[k]);
}

constexpr std::int64_t kNear = 32;  // about as far as neighbours in a segment are apart

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
  const std::size_t samples = in.gap.size(), entries = in.log_ratio.size();
  GIPO_CHECK(in.dims > 0 && samples * in.dims == entries && in.age.size() == samples);
  GIPO_CHECK(in.advantage.size() == entries && in.multiplier.size() == entries);
  GIPO_CHECK(in.trust.empty() || in.trust.size() == entries);
  if (figures_.empty()) figures_ = named_figures();
  contribution_ = {};
  log_ratio_ = {};

  rho_.resize(entries);
  counts_.resize(entries);
  columns_.resize(entries);
  classify(in, rho_.data(), counts_.data(), columns_.data());

  // One pass for histograms and sums, the sums apart for each combination of new and old. Neighbours in a segment are
  // about as old, and are added up together.
  keys_.resize(entries);
  const double rows_per_update = static_cast<double>(kAgeBins) / in.window;
  std::array<Summary, 4> parts;
  std::array<AgeSums, kAgeBins> by_age;
  for (std::size_t begin = 0, end = 0; begin < samples; begin = end) {
    const std::int64_t first = in.gap[begin];
    const std::size_t row = age_row(first, rows_per_update), tag = classes(first, in.t_old);
    const auto alike = [&](std::int64_t gap) {
      return age_row(gap, rows_per_update) == row && classes(gap, in.t_old) == tag;
    };
    // Both grow with the gap: what lies between two that are alike need not be asked.
    const std::int64_t near = first >= 0 && first < std::numeric_limits<std::int64_t>::max() - kNear ? kNear : 0;
    const std::int64_t low = alike(first - near) ? first - near : first;
    const std::int64_t high = alike(first + near) ? first + near : first;
    double gaps = 0, ages = 0;
    for (; end < samples; ++end) {
      const std::int64_t gap = in.gap[end];
      if ((gap < low || gap > high) && !alike(gap)) break;
      gaps += static_cast<double>(gap);
      ages += in.age[end];
    }
    Summary& part = parts[tag];
    part.samples += static_cast<double>(end - begin);
    part.gap_mean += gaps;
    part.age_mean += ages;
    add_entries(part, in, rho_.data(), counts_.data(), columns_.data(), begin * in.dims, end * in.dims,
                contribution_[row], log_ratio_[row], by_age[row]);
    for (std::size_t i = begin * in.dims; i < end * in.dims; ++i)
      keys_[i] = float_key(in.log_ratio[i], static_cast<std::uint16_t>(tag));
  }

  Summaries summaries;
  key_scratch_.resize(entries);
  sort_keys(keys_, key_scratch_);
  sorted_.resize(3 * entries);
  trust_.reserve(in.trust.size());
  add_log_ratios(summaries, keys_, sorted_);
  add_trust(summaries, in, trust_);
  const std::span<const std::int64_t> pool = in.gap_pool.empty() ? in.gap : in.gap_pool;
  add_gaps(summaries, pool, in.t_old, top_gaps_);

  // The same figures for all, new and old; then those that stand once.
  std::size_t next = 0;
  for (std::size_t k = 0; k < summaries.size(); ++k) {
    for (std::size_t c = 0; c < parts.size(); ++c) {
      if (belongs(c, kSubsets[k].first)) merge(summaries[k], parts[c]);
    }
    finish(summaries[k]);
    const bool empty = summaries[k].samples == 0;  // nothing to say, which is not the same as zero
    for (const Figure& figure : kFigures) figures_[next++].second = empty ? kNothing : summaries[k].*figure.value;
  }
  for (const JointFigure& figure : kJointFigures) {
    figures_[next++].second = figure.value(summaries[0], summaries[1], summaries[2]);
  }

  for (std::size_t k = 0; k < kAgeBins; ++k) {
    const AgeSums& age = by_age[k];
    share_[k] = over(age.sum, summaries[0].contribution_sum);
    ess_[k] = over(over(age.sum * age.sum, age.squares), age.entries);
    dead_[k] = over(age.zero, age.entries);
  }
  centred_ = !in.trust.empty();
  count_signed(in.log_ratio, in.multiplier, columns_.data(), log_ratio_counts_, centred_ ? nullptr : &multiplier_mean_);
  if (centred_) count_signed(in.trust, in.multiplier, columns_.data(), trust_counts_, &multiplier_mean_);
  return figures_;
}

std::vector<Diagnostics::Profile> Diagnostics::profiles() const {
  std::vector<Profile> all = {{"share_by_age", share_},
                              {"ess_by_age", ess_},
                              {"dead_by_age", dead_},
                              {"log_ratio_counts", log_ratio_counts_},
                              {"multiplier_mean", multiplier_mean_}};
  if (centred_) all.push_back({"trust_counts", trust_counts_});
  return all;
}

}  // namespace gipo
