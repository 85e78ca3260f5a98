#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gipo {

// What one update did with each age of data. Input: one entry per ratio (a sample has `dims` of them, adjacent, when
// ratios are per dimension; one otherwise); gap and age once per sample.
struct DiagnosticsInput {
  std::span<const float> log_ratio;   // [N * dims]
  std::span<const float> advantage;   // [N * dims]
  std::span<const float> multiplier;  // [N * dims]
  std::span<const std::int64_t> gap;  // [N] policy versions since collection
  std::span<const double> age;        // [N] environment steps since collection
  std::size_t dims = 1;
  std::int64_t t_old = 1;      // old: gap >= t_old
  double window = 1;           // the dial's window, in updates: the unit of the histograms' age axis
  double epsilon = 0.2;        // clip_frac = P(|rho - 1| > epsilon), whatever the surrogate
  bool clips_to_zero = false;  // Surrogate::clips_to_zero
  // Gaps of this and recent updates, for new_frac, old_frac and the quantiles of the gap: a batch of a few segments
  // holds too few ages for them. Any length; where empty, `gap` serves.
  std::span<const std::int64_t> gap_pool = {};
  std::span<const float> trust = {};  // [N * dims] log ratio about the centre of the surrogate; empty: log_ratio
};

inline constexpr std::int64_t kNewGap = 2;  // new: gap <= 2
inline constexpr double kTauU = 1e-3;       // near zero: |m A| <= tau_u
inline constexpr double kTauM = 1e-3;       // suppressed: 0 < |m| <= tau_m

// Histogram axes: rows are ages in eighths of the window (the last takes all older); columns are these edges.
inline constexpr std::size_t kAgeBins = 8;
inline constexpr std::array<double, 7> kContributionEdges = {0, 1e-3, 1e-2, 1e-1, 0.3, 1, 3};  // bin 0: u == 0
inline constexpr std::array<double, 7> kLogRatioEdges = {0.01, 0.03, 0.1, 0.3, 1, 3, 10};
using AgeHistogram = std::array<std::array<std::uint32_t, 8>, kAgeBins>;

// Edges of the log ratios with their signs.
inline constexpr std::array<double, 27> kSignedEdges = {-10,   -5,    -3,    -2,    -1, -0.5, -0.3, -0.2, -0.1,
                                                        -0.05, -0.03, -0.02, -0.01, 0,  0.01, 0.02, 0.03, 0.05,
                                                        0.1,   0.2,   0.3,   0.5,   1,  2,    3,    5,    10};
inline constexpr std::size_t kSignedBins = kSignedEdges.size() + 1;

// Reuses its buffers from call to call: one per learner, one thread.
class Diagnostics {
 public:
  // Figures in a fixed order with stable snake_case names. A figure is over all samples; with suffix _new or _old over
  // those; over an empty subset it is NaN. Figures that stand once are zero where nothing is old.
  const std::vector<std::pair<std::string, double>>& compute(const DiagnosticsInput& input);
  const std::vector<std::pair<std::string, double>>& figures() const { return figures_; }  // of the last call
  const AgeHistogram& contribution_by_age() const { return contribution_; }                // |m A|
  const AgeHistogram& log_ratio_by_age() const { return log_ratio_; }                      // |log rho|

  // Of the last call, named as in metrics.jsonl: what each age of data is worth, and how log ratios are distributed. An
  // age or bin without entries has zeros.
  struct Profile {
    const char* name;
    std::span<const double> values;
  };
  std::vector<Profile> profiles() const;

 private:
  std::vector<std::pair<std::string, double>> figures_;
  std::vector<float> rho_;                         // [N * dims]
  std::vector<std::uint32_t> counts_, columns_;    // [N * dims] what each adds to the counts and histograms
  std::vector<std::uint64_t> keys_, key_scratch_;  // log ratios to be sorted
  std::vector<float> sorted_;                      // log ratios: all, new, old
  std::vector<float> trust_;                       // their magnitudes about the centre, of one subset
  std::vector<std::int64_t> top_gaps_;             // the greatest of the pool
  AgeHistogram contribution_{}, log_ratio_{};
  std::array<double, kAgeBins> share_{}, ess_{}, dead_{};
  std::array<double, kSignedBins> log_ratio_counts_{}, trust_counts_{}, multiplier_mean_{};
  bool centred_ = false;  // the last call was given `trust`
};

}  // namespace gipo
