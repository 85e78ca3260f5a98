#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gipo/data/transition.h"
#include "gipo/stats/moments.h"

namespace gipo {

class ByteReader;
class ByteWriter;

// Up to `capacity` steps of one environment, inside one episode. Its end is the episode's end, the longest length, or
// the end of a rollout. Filled by an actor in place; the arrays are made once, for the longest segment.
//   observation [T+1], the last row the true final one; action [T, dims]; log_prob [T, dims] of the behaviour policy, the
//   joint one is the row's sum; reward [T] times env.reward_scale; advantage, target [T] from the values below;
//   version [T] of the behaviour policy; state [1] of the policy before the first step, or before the context
// The context is what was observed in the same episode just before the first step: rows of the observation after the
// final one, added when the segment is closed.
struct Segment : Transitions {
  Segment(std::size_t capacity, const TransitionSpec& spec);
  static double bytes_needed(std::size_t capacity, const TransitionSpec& spec);

  std::uint64_t actor = 0, incarnation = 0, sequence = 0;  // who made it, and its number there
  std::size_t length = 0;                                  // T
  std::size_t context = 0;                                 // observations of before
  bool terminated = false;                                 // the last step ended the task
  bool truncated = false;                                  // the last step ran out of time
  double first_env_step = 0;   // environment steps of the whole run when its first step was taken
  double env_step_stride = 0;  // environment steps of the whole run between two of its steps

  std::vector<float> discounted;  // [T] return of the episode so far; zeros unless env.normalise_rewards
  std::vector<float> value;       // [T+1] by the critic at collection, where advantages are stored; zeros otherwise

  ColumnSums observation_sums, discounted_sums;  // of the T steps, once it is closed

  std::size_t capacity() const { return discounted.size(); }
  void clear() { length = context = 0, terminated = truncated = false; }
  // Fills observation_sums, by the floats that networks read. Allocates nothing.
  void sum_observations();
  // The filled rows of a column.
  std::span<std::byte> filled(std::size_t column);
  std::span<const std::byte> filled(std::size_t column) const;
  // Every number that reaches the learner is finite.
  bool finite() const;

  void save(ByteWriter& out) const;
  void load(ByteReader& in);

 private:
  void sum_field(std::size_t field, std::size_t column);  // from that column of the sums on

  // [T, columns] What networks read, a few columns at a time; none for a plain vector.
  std::vector<float> some_columns_;
};

}  // namespace gipo
