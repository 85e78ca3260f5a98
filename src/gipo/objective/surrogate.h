#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gipo/objective/options.h"
#include "gipo/objective/surrogate_choice.h"

namespace gipo {

// How many ratios an action of so many dimensions has.
inline std::size_t ratios_per_action(const SurrogateOptions& options, std::size_t dims) {
  if (options.ratio == RatioOf::kGroup) return dims / static_cast<std::size_t>(options.ratio_group);
  return options.ratio == RatioOf::kDimension ? dims : 1;
}

// A surrogate objective. Its policy gradient is E[m * A * grad log pi]; only the multiplier m differs between them, so
// a surrogate is one pure function of (log ratio, advantage), here over whole arrays; m2po's also knows the batch. `loss` is minus the objective,
// for logging; the weights that a surrogate stops the gradient through are part of it.
class Surrogate {
 public:
  template <class T>
  using Kernel = std::function<void(std::span<const T> log_ratio, std::span<const T> advantage, std::span<T> multiplier,
                                    std::span<T> loss, std::span<const T> age)>;

  // Throws Error for an unknown name, with the nearest known one.
  explicit Surrogate(const SurrogateOptions& options);

  // `age`: updates since each sample was collected; empty: all are new. Read where reads_age() alone.
  void evaluate(std::span<const float> log_ratio, std::span<const float> advantage, std::span<float> multiplier,
                std::span<float> loss, std::span<const float> age = {}) const {
    float_kernel_(log_ratio, advantage, multiplier, loss, age);
  }
  void evaluate(std::span<const double> log_ratio, std::span<const double> advantage, std::span<double> multiplier,
                std::span<double> loss, std::span<const double> age = {}) const {
    double_kernel_(log_ratio, advantage, multiplier, loss, age);
  }
  bool reads_age() const { return reads_age_; }
  // Whether the log ratio is that about pi_prox. The caller multiplies by importance_weight(.., importance_max()) then.
  bool centred() const { return centred_; }
  double importance_max() const { return importance_max_; }
  // The same for a device.
  const SurrogateChoice& choice() const { return choice_; }
  // Whether a multiplier of exactly zero is the objective's own doing (a clip) rather than float underflow.
  bool clips_to_zero() const { return clips_to_zero_; }

 private:
  SurrogateChoice choice_;
  Kernel<float> float_kernel_;
  Kernel<double> double_kernel_;
  bool clips_to_zero_ = false, reads_age_ = false, centred_ = false;
  double importance_max_ = 1;
};

// m2po: the largest |log ratio| such that the mean square of all up to it is at most `most`.
template <class T>
T largest_kept(std::span<const T> log_ratio, double most);

struct SurrogateInfo {
  std::string name, summary;
  std::vector<std::string> options;  // the keys it reads, without the group
};
const std::vector<SurrogateInfo>& registered_surrogates();

}  // namespace gipo
