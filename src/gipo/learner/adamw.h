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
  AdamW(std::size_t size, const AdamWSettings& settings) : settings_(settings), first_(size), second_(size) {}

  // One step; the gradient is taken times `scale` (the norm clip).
  void step(std::span<T> parameters, std::span<const T> gradient, double learning_rate, double scale) {
    dense_kernels<T>().adamw(next(learning_rate, scale), gradient.data(), parameters.data(), first_.data(),
                             second_.data(), parameters.size());
  }
  // Counts a step, for those who have the moments elsewhere; its constants.
  AdamWStep<T> next(double learning_rate, double scale) {
    ++steps_;
    const auto n = static_cast<double>(steps_);
    return adamw_constants<T>(settings_, learning_rate, scale, std::pow(settings_.beta1, n),
                              std::pow(settings_.beta2, n));
  }

  // Its state, for those who save it.
  std::span<T> first_moment() { return first_; }
  std::span<T> second_moment() { return second_; }
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  AdamWSettings settings_;
  std::int64_t steps_ = 0;
  AlignedVector<T> first_, second_;
};

}  // namespace gipo
