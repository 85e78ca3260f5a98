#include "gipo/data/segment.h"

#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"

namespace gipo {

Segment::Segment(std::size_t capacity, std::size_t observation_size, std::size_t action_dims)
    : observation((capacity + 1) * observation_size),
      action(capacity * action_dims),
      log_prob(capacity * action_dims),
      reward(capacity),
      discounted(capacity),
      value(capacity + 1),
      advantage(capacity),
      target(capacity),
      version(capacity),
      observation_sums(observation_size),
      discounted_sums(1) {}

double Segment::bytes_needed(std::size_t capacity, std::size_t observation_size, std::size_t action_dims) {
  constexpr double kVersion = sizeof(std::int64_t), kOthers = 5 * sizeof(float);  // per step: reward to target
  const auto steps = static_cast<double>(capacity + 1), width = static_cast<double>(observation_size);
  return steps * (4.0 * (width + 2.0 * static_cast<double>(action_dims)) + kOthers + kVersion) +
         2.0 * width * sizeof(double) + static_cast<double>(sizeof(Segment));
}

bool Segment::finite(std::size_t observation_size, std::size_t action_dims) const {
  const auto all = [](const std::vector<float>& v, std::size_t n) {
    return std::all_of(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(n), [](float x) { return std::isfinite(x); });
  };
  return all(observation, (length + 1) * observation_size) && all(action, length * action_dims) &&
         all(log_prob, length * action_dims) && all(reward, length) && all(discounted, length) &&
         all(value, length + 1) && all(advantage, length) && all(target, length);
}

void Segment::save(ByteWriter& out) const {
  out.value(actor);
  out.value(incarnation);
  out.value(sequence);
  out.value<std::uint64_t>(length);
  out.value<std::uint8_t>(terminated);
  out.value<std::uint8_t>(truncated);
  out.value(first_env_step);
  out.value(env_step_stride);
  out.array(observation);
  out.array(action);
  out.array(log_prob);
  out.array(reward);
  out.array(discounted);
  out.array(version);
}

void Segment::load(ByteReader& in) {
  actor = in.value<std::uint64_t>();
  incarnation = in.value<std::uint64_t>();
  sequence = in.value<std::uint64_t>();
  const auto steps = in.value<std::uint64_t>();
  if (steps > reward.size()) throw Error("saved segment is longer than the longest: " + std::to_string(steps));
  length = static_cast<std::size_t>(steps);
  terminated = in.value<std::uint8_t>() != 0;
  truncated = in.value<std::uint8_t>() != 0;
  first_env_step = in.value<double>();
  env_step_stride = in.value<double>();
  in.array_into(std::span<float>(observation));
  in.array_into(std::span<float>(action));
  in.array_into(std::span<float>(log_prob));
  in.array_into(std::span<float>(reward));
  in.array_into(std::span<float>(discounted));
  in.array_into(std::span<std::int64_t>(version));
  // Beyond this no run comes; the learner takes differences.
  const auto impossible = [](std::int64_t v) { return v < 0 || v > std::int64_t{1} << 62; };
  if (std::any_of(version.begin(), version.end(), impossible)) throw Error("saved segment has an impossible version");
}

}  // namespace gipo
