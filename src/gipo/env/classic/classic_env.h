#pragma once

#include <array>
#include <cmath>
#include <initializer_list>

#include "gipo/core/error.h"
#include "gipo/env/env.h"
#include "gipo/io/bytes.h"

namespace gipo {

// A task whose physics is N numbers of type Real. Saved as N raw doubles, whatever Real is.
template <std::size_t N, class Real = double>
class ClassicEnv : public Env {
 public:
  void save_physics(ByteWriter& out) const final {
    for (const Real x : state_) out.value<double>(x);
  }
  void load_physics(ByteReader& in) final {
    for (Real& x : state_) {
      x = static_cast<Real>(in.value<double>());
      if (!std::isfinite(x)) throw Error(spec().id + ": the saved state holds a number that is not finite");
    }
  }

 protected:
  using Env::Env;

  std::array<Real, N> state_{};
};

// The nearest float32. Through memory: g++ 12.2 at -O2 can drop the narrowing when it packs two such conversions.
inline double as_float32(double x) {
  const volatile float narrow = static_cast<float>(x);
  return narrow;
}

// Gymnasium's classic tasks show their observation in float32, whatever they compute in.
inline void show_float32(std::initializer_list<double> values, std::span<double> observation) {
  GIPO_CHECK(observation.size() == values.size());
  std::size_t i = 0;
  for (const double v : values) observation[i++] = as_float32(v);
}

}  // namespace gipo
