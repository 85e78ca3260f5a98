#include "gipo/learner/learner_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/objective/surrogate.h"

namespace gipo {
namespace {

constexpr std::int64_t kMostUpdates = std::int64_t{1} << 62;  // far beyond any run; below it no count overflows
constexpr std::size_t kGapPoolUpdates = 32;

}  // namespace

LearnerBook::LearnerBook(const LearnerSetup& setup)
    : scale(setup.first ? setup.first->scale : ObservationScale::identity(setup.model.observation_size)),
      gap(static_cast<std::size_t>(setup.learner.batch_size)),
      age(gap.size()) {}

void LearnerBook::set_reward_scale(const RunningMoments& moments) {
  returns = moments;
  reward_scale = RewardScale(returns);
}

// Neighbours in a segment have nearly the same gap, so one in 64 says as much as all of them; of a small batch, four.
void LearnerBook::record_gaps(const Batch& batch) {
  const std::size_t stride = std::clamp<std::size_t>(batch.size / 4, 1, 64);
  const std::size_t most = kGapPoolUpdates * ((batch.size + stride - 1) / stride);
  const std::span<const std::int64_t> collected = batch.version();
  for (std::size_t i = 0; i < batch.size; ++i) gap[i] = version - collected[i];
  // Another place in every batch: its first step always begins a segment, so that short ones would count too much.
  const std::size_t first = static_cast<std::size_t>(version) * 37 % stride;
  for (std::size_t i = (stride - first) % stride; i < batch.size; i += stride) {
    if (gap_pool.size() < most) {
      gap_pool.push_back(gap[i]);
    } else {
      gap_pool[gap_pool_at] = gap[i];
      gap_pool_at = (gap_pool_at + 1) % most;
    }
  }
}

void LearnerBook::record_ages(const Batch& batch, std::int64_t env_steps) {
  for (std::size_t i = 0; i < batch.size; ++i) age[i] = static_cast<double>(env_steps) - batch.env_step[i];
}

void LearnerBook::refuse_divergence(const UpdateStats& stats, std::int64_t most_in_a_row) const {
  if (skipped_in_a_row < most_in_a_row) return;
  const auto unsigned_nan = [](double v) { return std::isnan(v) ? std::numeric_limits<double>::quiet_NaN() : v; };
  throw RunError(fmt::format(
      "training diverged: {} updates in a row were not finite (learner.max_bad_updates = {}); last: policy loss "
      "{}, value loss {}, policy gradient norm {}, value gradient norm {}; the weights are those of update {}",
      skipped_in_a_row, most_in_a_row, unsigned_nan(stats.policy_loss), unsigned_nan(stats.value_loss),
      unsigned_nan(stats.policy_grad_norm), unsigned_nan(stats.value_grad_norm), version - skipped_in_a_row));
}

void LearnerBook::save(ByteWriter& out, std::int64_t policy_steps, std::int64_t critic_steps) const {
  out.value(version);
  out.value(skipped);
  out.value(skipped_in_a_row);
  out.value(policy_steps);
  out.value(critic_steps);
  out.value(scale.limit);
  returns.save(out);
  out.array(gap_pool);
  out.value<std::uint64_t>(gap_pool_at);
}

void LearnerBook::load(ByteReader& in, std::int64_t& policy_steps, std::int64_t& critic_steps) {
  version = policy_version = in.value<std::int64_t>();
  skipped = in.value<std::int64_t>();
  skipped_in_a_row = in.value<std::int64_t>();
  policy_steps = in.value<std::int64_t>();
  critic_steps = in.value<std::int64_t>();
  for (const std::int64_t steps : {policy_steps, critic_steps}) {
    if (steps < 0 || steps > kMostUpdates) throw Error("saved optimizer: its count of steps is damaged");
  }
  scale.limit = in.value<float>();
  returns.load(in);
  reward_scale = RewardScale(returns);
  const auto count = [&](std::int64_t v) { return v >= 0 && v <= version; };
  if (version < 0 || version > kMostUpdates || !count(skipped) || !count(skipped_in_a_row)) {
    throw Error("saved learner: its counts of updates are damaged");
  }
  if (!(scale.limit > 0)) throw Error("saved learner: the limit of observations is not above zero");
  gap_pool = in.array<std::int64_t>();
  gap_pool_at = in.value<std::uint64_t>();
  if (gap_pool_at >= std::max<std::size_t>(1, gap_pool.size()))
    throw Error("saved learner: the pool of gaps is damaged");
}

DiagnosticsInput diagnostics_of(const LearnerSetup& setup, const LearnerBook& book, bool clips_to_zero) {
  DiagnosticsInput in;
  in.gap = book.gap;
  in.gap_pool = book.gap_pool;
  in.age = book.age;
  in.dims = ratios_per_action(setup.surrogate, setup.model.distribution.dims());
  in.t_old = setup.t_old;
  in.window = setup.window;
  in.epsilon = setup.surrogate.epsilon;
  in.clips_to_zero = clips_to_zero;
  return in;
}

}  // namespace gipo
