// AdamW for one parameter, and the moving average of what it makes. Compiles for host and device.
#pragma once

#include <cmath>

#include "gipo/core/device.h"

namespace gipo {

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-5, weight_decay = 0;
};

// The constants of one step of AdamW.
template <class T>
struct AdamWStep {
  T beta1, beta2, epsilon;
  T rate, second_scale;  // learning rate and second moment, corrected for the moments' start at zero
  T keep;                // what the weight decay leaves of a parameter
  T scale;               // of the gradient: the norm clip
};

namespace {  // compiled with the flags of each instruction set: not to be linked from one into another

// power1, power2: beta1 and beta2 to the number of steps, with this one.
template <class T>
GIPO_HD inline AdamWStep<T> adamw_constants(const AdamWSettings& s, double rate, double scale, double power1,
                                            double power2) {
  return {T(s.beta1),
          T(s.beta2),
          T(s.epsilon),
          T(rate / (1.0 - power1)),
          T(1.0 / (1.0 - power2)),
          T(1.0 - rate * s.weight_decay),
          T(scale)};
}

// How far the mean of all parameters so far, the latest counting most, goes towards the newest. Without the division by what
// the weights of few sum to, the first would be most of it for long. power: decay to the number of all, with the newest.
GIPO_HD inline double average_step(double decay, double power) { return (1 - decay) / (1 - power); }

template <class T>
GIPO_HD inline void adamw_step(const AdamWStep<T>& s, T gradient, T& parameter, T& first, T& second) {
  const T g = gradient * s.scale;
  first = s.beta1 * first + (T(1) - s.beta1) * g;
  second = s.beta2 * second + (T(1) - s.beta2) * g * g;
  parameter = s.keep * parameter - s.rate * first / (std::sqrt(second * s.second_scale) + s.epsilon);
}

}  // namespace
}  // namespace gipo
