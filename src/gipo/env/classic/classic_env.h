#pragma once

#include <array>
#include <cmath>
#include <initializer_list>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/env/classic/physics.h"
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

// Gymnasium's classic tasks show their observation in float32, whatever they compute in.
inline void show_float32(std::initializer_list<double> values, std::span<double> observation) {
  GIPO_CHECK(observation.size() == values.size());
  std::size_t i = 0;
  for (const double v : values) observation[i++] = as_float32(v);
}

// A task with the functions of physics.h.
template <class Physics>
class PhysicsEnv : public ClassicEnv<Physics::kState, typename Physics::Real> {
 public:
  explicit PhysicsEnv(EnvSpec spec) : ClassicEnv<Physics::kState, typename Physics::Real>(std::move(spec)) {}

  void observe(std::span<double> observation) const override {
    std::array<double, Physics::kObservation> shown;
    Physics::observe(this->state_.data(), shown.data());
    GIPO_CHECK(observation.size() == shown.size());
    for (std::size_t i = 0; i < shown.size(); ++i) observation[i] = as_float32(shown[i]);
  }

 protected:
  void start_episode(RandomStream& random) override { Physics::start(this->state_.data(), random); }

  Env::Outcome advance(std::span<const double> action) override {
    const ClassicOutcome outcome = Physics::advance(this->state_.data(), action[0]);
    return {outcome.reward, outcome.terminated};
  }
};

}  // namespace gipo
