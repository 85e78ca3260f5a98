// AdamW for one parameter. Compiles for host and device.
#pragma once

#include <cmath>

#include "gipo/core/device.h"

namespace gipo {

// The constants of one step of AdamW.
template <class T>
struct AdamWStep {
  T beta1, beta2, epsilon;
  T rate, second_scale;  // learning rate and second moment, corrected for the moments' start at zero
  T keep;                // what the weight decay leaves of a parameter
  T scale;               // of the gradient: the norm clip
};

namespace {  // compiled with the flags of each instruction set: not to be linked from one into another

template <class T>
GIPO_HD inline void adamw_step(const AdamWStep<T>& s, T gradient, T& parameter, T& first, T& second) {
  const T g = gradient * s.scale;
  first = s.beta1 * first + (T(1) - s.beta1) * g;
  second = s.beta2 * second + (T(1) - s.beta2) * g * g;
  parameter = s.keep * parameter - s.rate * first / (std::sqrt(second * s.second_scale) + s.epsilon);
}

}  // namespace
}  // namespace gipo
