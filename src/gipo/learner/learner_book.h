#pragma once

#include <cstdint>
#include <vector>

#include "gipo/data/batch.h"
#include "gipo/learner/learner.h"
#include "gipo/policy/scale.h"

namespace gipo {

// What a learner keeps beside its tensors, whatever its backend: counts, scales, and the gaps of recent batches.
struct LearnerBook {
  std::int64_t version = 0, policy_version = 0;  // updates, and the last of them that changed the policy
  std::int64_t skipped = 0, skipped_in_a_row = 0;
  ObservationScale scale;
  RunningMoments returns{1};
  RewardScale reward_scale;            // of these
  std::vector<std::int64_t> gap;       // [N] of the batch
  std::vector<std::int64_t> gap_pool;  // some gaps of each of the last 32 updates, a ring
  std::size_t gap_pool_at = 0;
  std::vector<double> age;  // [N] in environment steps, for the diagnostics

  explicit LearnerBook(const LearnerSetup& setup);
  void set_reward_scale(const RunningMoments& moments);
  void record_gaps(const Batch& batch);
  void record_ages(const Batch& batch, std::int64_t env_steps);
  // Throws RunError where so many updates in a row were not finite; `stats`: of the last.
  void refuse_divergence(const UpdateStats& stats, std::int64_t most_in_a_row) const;

  // With the steps of both optimizers.
  void save(ByteWriter& out, std::int64_t policy_steps, std::int64_t critic_steps) const;
  void load(ByteReader& in, std::int64_t& policy_steps, std::int64_t& critic_steps);
};

// What the diagnostics are told besides ratios, advantages and multipliers.
DiagnosticsInput diagnostics_of(const LearnerSetup& setup, const LearnerBook& book, bool clips_to_zero);

}  // namespace gipo
