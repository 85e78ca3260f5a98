#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gipo/stats/moments.h"

namespace gipo {

class ByteReader;
class ByteWriter;

// Up to `capacity` steps of one environment, inside one episode. Its end is the episode's end, the longest length, or
// the end of a rollout. Filled by an actor in place; the arrays are made once, for the longest segment.
struct Segment {
  Segment(std::size_t capacity, std::size_t observation_size, std::size_t action_dims);
  static double bytes_needed(std::size_t capacity, std::size_t observation_size, std::size_t action_dims);

  std::uint64_t actor = 0, incarnation = 0, sequence = 0;  // who made it, and its number there
  std::size_t length = 0;                                  // T
  bool terminated = false;                                 // the last step ended the task
  bool truncated = false;                                  // the last step ran out of time
  double first_env_step = 0;   // environment steps of the whole run when its first step was taken
  double env_step_stride = 0;  // environment steps of the whole run between two of its steps

  std::vector<float> observation;     // [T+1, observation_size]; the last row is the true final observation
  std::vector<float> action;          // [T, action_dims]
  std::vector<float> log_prob;        // [T, action_dims] of the behaviour policy; the joint one is the row's sum
  std::vector<float> reward;          // [T] times env.reward_scale
  std::vector<float> discounted;      // [T] return of the episode so far; zeros unless env.normalise_rewards
  std::vector<float> value;           // [T+1] by the critic at collection; this and the next two where advantages
  std::vector<float> advantage;       // [T] GAE from these values           are stored, zeros otherwise
  std::vector<float> target;          // [T]
  std::vector<std::int64_t> version;  // [T] of the behaviour policy

  ColumnSums observation_sums, discounted_sums;  // of the T steps, once it is closed

  void clear() { length = 0, terminated = truncated = false; }
  // Every number that reaches the learner is finite.
  bool finite(std::size_t observation_size, std::size_t action_dims) const;

  void save(ByteWriter& out) const;
  void load(ByteReader& in);
};

}  // namespace gipo
