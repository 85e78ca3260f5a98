#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gipo/objective/options.h"
#include "gipo/objective/surrogate_terms.h"

namespace gipo {

// A surrogate objective. Its policy gradient is E[m * A * grad log pi]; only the multiplier m differs between them, so
// a surrogate is one pure function of (log ratio, advantage), here over whole arrays. `loss` is minus the objective,
// for logging; the weights that a surrogate stops the gradient through are part of it.
class Surrogate {
 public:
  template <class T>
  using Kernel = std::function<void(std::span<const T> log_ratio, std::span<const T> advantage, std::span<T> multiplier,
                                    std::span<T> loss)>;

  // Throws Error for an unknown name, with the nearest known one.
  explicit Surrogate(const SurrogateOptions& options);

  void evaluate(std::span<const float> log_ratio, std::span<const float> advantage, std::span<float> multiplier,
                std::span<float> loss) const {
    float_kernel_(log_ratio, advantage, multiplier, loss);
  }
  void evaluate(std::span<const double> log_ratio, std::span<const double> advantage, std::span<double> multiplier,
                std::span<double> loss) const {
    double_kernel_(log_ratio, advantage, multiplier, loss);
  }
  // Whether a multiplier of exactly zero is the objective's own doing (a clip) rather than float underflow.
  bool clips_to_zero() const { return clips_to_zero_; }

 private:
  Kernel<float> float_kernel_;
  Kernel<double> double_kernel_;
  bool clips_to_zero_ = false;
};

struct SurrogateInfo {
  std::string name, summary;
  std::vector<std::string> options;  // the keys it reads, without the group
};
const std::vector<SurrogateInfo>& registered_surrogates();

}  // namespace gipo
