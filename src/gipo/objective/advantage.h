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

}  // namespace gipo
