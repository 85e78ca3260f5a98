#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "gipo/core/aligned_vector.h"
#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
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
    dense_kernels<T>().adamw(s, gradient.data(), parameters.data(), first_.data(), second_.data(), parameters.size());
  }

  void save(ByteWriter& out) const {
    out.value(steps_);
    out.array(first_);
    out.array(second_);
  }
  void load(ByteReader& in) {
    steps_ = in.value<std::int64_t>();
    if (steps_ < 0 || steps_ > std::int64_t{1} << 62) throw Error("saved optimizer: its count of steps is damaged");
    in.array_into(std::span<T>(first_));
    in.array_into(std::span<T>(second_));
  }

 private:
  Settings settings_;
  std::int64_t steps_ = 0;
  AlignedVector<T> first_, second_;
};

}  // namespace gipo
