#pragma once

#include <span>

namespace gipo {

// A segment lies inside one episode: T steps, T+1 values, and a flag for its end. An episode that was truncated (or a
// segment that was cut) bootstraps from the last value; one that terminated does not.
template <class T>
struct SegmentView {
  std::span<const T> reward;  // [T]
  std::span<const T> value;   // [T+1]
  bool terminated = false;    // the last step ended the task
};

// Generalised advantage estimation. target = advantage + value.
template <class T>
void gae(const SegmentView<T>& segment, T gamma, T lambda, std::span<T> advantage, std::span<T> target);

struct VtraceOptions {
  double gamma, lambda, rho_bar, c_bar;
};
// V-trace (IMPALA, eq. 1) with trace decay lambda. target_t = v_t; advantage_t = r_t + gamma v_{t+1} - V(s_t), without
// the ratio: the surrogate's multiplier brings it.
template <class T>
void vtrace(const SegmentView<T>& segment, std::span<const T> log_ratio, const VtraceOptions& options,
            std::span<T> advantage, std::span<T> target);

// Shifts and scales to mean 0 and deviation 1; a constant array becomes zeros.
template <class T>
void normalise(std::span<T> values);

// Of the episodes of a group: return minus the mean of all, over their standard deviation (of a sample) where `scale`, to
// which kGroupEpsilon is added. Episodes with equal returns have advantages of 0.
inline constexpr double kGroupEpsilon = 1e-6;
void group_advantages(std::span<const double> returns, bool scale, std::span<double> advantage);
// Whether they are all equal: the group says nothing of what is better.
bool without_variance(std::span<const double> returns);

// target_t = r_t + gamma target_{t+1}; `after` that of the step after the last, which the first one's is returned for.
float discounted_returns(std::span<const float> reward, double gamma, float after, std::span<float> target);

}  // namespace gipo
