// The classic tasks, which step on a card. Compiles for host and device.
#pragma once

#include "gipo/env/classic/acrobot_physics.h"
#include "gipo/env/classic/cart_pole_physics.h"
#include "gipo/env/classic/mountain_car_continuous_physics.h"
#include "gipo/env/classic/mountain_car_physics.h"
#include "gipo/env/classic/pendulum_physics.h"
#include "gipo/population/card.h"
#include "gipo/population/card_run.h"

namespace gipo::population {

// f(physics) with the task's.
template <class F>
GIPO_CARD void visit_task(Task task, F&& f) {
  switch (task) {
    case Task::kCartPole:
      return f(cart_pole::Physics{});
    case Task::kAcrobot:
      return f(acrobot::Physics{});
    case Task::kPendulum:
      return f(pendulum::Physics{});
    case Task::kMountainCar:
      return f(mountain_car::Physics{});
    case Task::kMountainCarContinuous:
      return f(mountain_car_continuous::Physics{});
    case Task::kHosted:
      return;
  }
}

// f(physics, state) on a state of the task's own type, which a double holds exactly.
template <class F>
GIPO_CARD void with_state(Task task, Slot& slot, F&& f) {
  visit_task(task, [&](auto physics) {
    using Physics = decltype(physics);
    typename Physics::Real state[Physics::kState];
    for (int i = 0; i < Physics::kState; ++i) state[i] = static_cast<typename Physics::Real>(slot.state[i]);
    f(physics, state);
    for (int i = 0; i < Physics::kState; ++i) slot.state[i] = static_cast<double>(state[i]);
  });
}

GIPO_CARD bool observe(Task task, Slot& slot, float* to) {
  bool finite = true;
  with_state(task, slot, [&](auto physics, auto* state) {
    using Physics = decltype(physics);
    double shown[Physics::kObservation];
    Physics::observe(state, shown);
    for (int d = 0; d < Physics::kObservation; ++d) {
      to[d] = static_cast<float>(shown[d]);
      finite = finite && is_finite(to[d]);
    }
  });
  return finite;
}

// A new episode, and its first observation.
GIPO_CARD void start_classic(Task task, Slot& slot, float* observation) {
  with_state(task, slot, [&](auto physics, auto* state) { decltype(physics)::start(state, slot.env); });
  observe(task, slot, observation);
}

// What the task is given for an action of the policy.
GIPO_CARD double env_action(const RunSpec& s, float action) {
  const double a = static_cast<double>(action), range = s.high - s.low;
  if (s.choices == 0) return within(s.low + range * 0.5 * (a + 1.0), s.low, s.high);
  // The last bin is the bound itself, also where rounding would put it beyond.
  return s.bins > 0 ? smaller_of(s.low + range * a / (s.bins - 1), s.high) : a;
}

// One step, and the observation that it led to.
GIPO_CARD Stepped step_classic(const RunSpec& s, Slot& slot, float action, float* observation) {
  ClassicOutcome outcome;
  with_state(s.task, slot,
             [&](auto physics, auto* state) { outcome = decltype(physics)::advance(state, env_action(s, action)); });
  Stepped step;
  step.fault = !observe(s.task, slot, observation) || !is_finite(static_cast<float>(outcome.reward * s.reward_scale));
  step.reward = outcome.reward;
  step.terminated = outcome.terminated;
  step.truncated = s.time_limit > 0 && slot.steps + 1 >= s.time_limit;
  return step;
}

}  // namespace gipo::population
