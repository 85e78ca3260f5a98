#include "gipo/env/env.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/env/check_action.h"
#include "gipo/io/bytes.h"

namespace gipo {

void check_action(const EnvSpec& spec, std::span<const double> action) {
  const ActionSpace& space = spec.action;
  if (action.size() != space.dims()) {
    throw Error(fmt::format("{}: an action of {} values where {} belong", spec.id, action.size(), space.dims()));
  }
  for (std::size_t i = 0; i < action.size(); ++i) {
    const double a = action[i];
    if (!std::isfinite(a)) throw Error(fmt::format("{}: action[{}] = {} is not a finite number", spec.id, i, a));
    if (space.continuous(i)) continue;
    if (a != std::floor(a) || a < 0 || a >= static_cast<double>(space.choices[i])) {
      throw Error(
          fmt::format("{}: action[{}] = {} is not one of the choices 0 to {}", spec.id, i, a, space.choices[i] - 1));
    }
  }
}

void Env::reset(std::uint64_t seed) {
  // Derived, so that a caller who seeds a stream of its own with the same number shares no draws with the task.
  random_ = RandomStream::derive(seed, "env");
  seeded(seed);
  reset();
}

void Env::reset() {
  steps_ = 0;
  start_episode(random_);
  running_ = true;
}

StepResult Env::step(std::span<const double> action) {
  if (!running_) throw InvariantError(spec_.id + ": step without a running episode; call reset first");
  check_action(spec_, action);

  const Outcome outcome = advance(action);
  ++steps_;
  // The last step allowed is a truncation even when the task ended on it: terminated still forbids the bootstrap.
  const bool truncated = outcome.truncated || (spec_.time_limit > 0 && steps_ >= spec_.time_limit);
  running_ = !outcome.terminated && !truncated && !outcome.fault;
  return {outcome.reward, outcome.terminated || outcome.fault, truncated, outcome.fault, outcome.success};
}

void Env::observe_fields(ObservationRow out) const {
  GIPO_CHECK(out.size() == 1);
  observed_.resize(spec_.observation_size);
  observe(observed_);
  std::ranges::transform(observed_, reinterpret_cast<float*>(out[0]), [](double v) { return static_cast<float>(v); });
}

void Env::save_state(ByteWriter& out) const {
  out.value(steps_);
  out.value<std::uint8_t>(running_);
  random_.save(out);
  save_physics(out);
}

void Env::load_state(ByteReader& in) {
  steps_ = in.value<std::int64_t>();
  if (steps_ < 0 || steps_ > std::int64_t{1} << 62) throw Error(spec_.id + ": the saved count of steps is damaged");
  running_ = in.value<std::uint8_t>() != 0;
  random_.load(in);
  load_physics(in);
}

}  // namespace gipo
