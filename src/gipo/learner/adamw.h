#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "gipo/core/aligned_vector.h"
#include "gipo/kernels/dense.h"

namespace gipo {

// AdamW (decoupled weight decay) over one flat parameter buffer.
template <class T>
class AdamW {
 public:
  struct Settings {
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-5, weight_decay = 0;
  };

  AdamW(std::size_t size, const Settings& settings) : settings_(settings), first_(size), second_(size) {}

  // One step; the gradient is taken times `scale` (the norm clip).
  void step(std::span<T> parameters, std::span<const T> gradient, double learning_rate, double scale) {
    dense_kernels<T>().adamw(next(learning_rate, scale), gradient.data(), parameters.data(), first_.data(),
                             second_.data(), parameters.size());
  }
  // Counts a step, for those who have the moments elsewhere; its constants.
  AdamWStep<T> next(double learning_rate, double scale) {
    ++steps_;
    const auto n = static_cast<double>(steps_);
    AdamWStep<T> s;
    s.beta1 = T(settings_.beta1);
    s.beta2 = T(settings_.beta2);
    s.epsilon = T(settings_.epsilon);
    s.rate = T(learning_rate / (1.0 - std::pow(settings_.beta1, n)));
    s.second_scale = T(1.0 / (1.0 - std::pow(settings_.beta2, n)));
    s.keep = T(1.0 - learning_rate * settings_.weight_decay);
    s.scale = T(scale);
    return s;
  }

  // Its state, for those who save it.
  std::span<T> first_moment() { return first_; }
  std::span<T> second_moment() { return second_; }
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  Settings settings_;
  std::int64_t steps_ = 0;
  AlignedVector<T> first_, second_;
};

}  // namespace gipo
