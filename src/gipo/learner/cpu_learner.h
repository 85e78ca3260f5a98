#pragma once

#include <vector>

#include "gipo/core/random.h"
#include "gipo/learner/adamw.h"
#include "gipo/learner/learner.h"
#include "gipo/objective/surrogate.h"
#include "gipo/policy/mlp.h"

namespace gipo {

// The learner on the CPU with closed-form gradients, actor and critic networks apart, but for layers of the policy that
// the critic may read too. T is float in use and double in the tests that compare its gradients with finite differences.
//
//   observations -> policy net  -> log ratios --+-> advantages -> multiplier -> d log pi -> policy net backward -> AdamW
//                -> critic net  -> values ------+-> targets ----------------> d value  -> critic net backward -> AdamW
template <class T>
class CpuLearner final : public Learner {
 public:
  CpuLearner(const LearnerSetup& setup, RandomStream random, ThreadPool& pool);

  void stage(const Batch& batch) override { staged_ = &batch; }
  void begin_update(const UpdateContext& context) override;
  const UpdateStats& figures() override { return stats_; }
  std::vector<std::pair<std::string, std::vector<double>>> gradients() const override;
  Diagnostics& diagnostics() override { return diagnostics_; }
  std::int64_t version() const override { return version_; }
  std::int64_t skipped_updates() const override { return skipped_; }
  void set_observation_scale(const RunningMoments& moments) override { scale_.set(moments); }
  void set_reward_scale(const RunningMoments& returns) override;
  void copy_weights(Weights& out) const override;

  // The two halves of an update, apart for the tests.
  void compute_gradients(const Batch& batch, bool diagnose = false);
  void apply_gradients();
  std::span<T> policy_parameters() { return policy_.parameters; }
  std::span<T> critic_parameters() { return critic_.parameters; }
  std::span<const T> policy_gradient() const { return policy_.gradient; }
  std::span<const T> critic_gradient() const { return critic_.gradient; }
  std::span<const T> average_policy() const { return average_; }

 protected:
  std::vector<LearnerTensor> tensors() override;
  void save_rest(ByteWriter& out) const override;
  void load_rest(ByteReader& in) override;

 private:
  struct Net {
    Net(const MlpShape& shape, std::size_t max_rows, std::size_t extra, const LearnerOptions& options);
    Mlp<T> mlp;
    std::size_t network;                    // parameters of the mlp; the rest are the distribution's
    AlignedVector<T> parameters, gradient;  // flat
    AdamW<T> optimizer;
    double norm = 0;  // of the last gradient
    std::span<const T> mlp_parameters() const { return std::span<const T>(parameters).first(network); }
    std::span<const T> extra() const { return std::span<const T>(parameters).subspan(network); }
  };

  void read_observations(const Batch& batch, std::size_t rows);
  void forward(const Batch& batch);
  void compute_log_ratios(const Batch& batch);
  void compute_advantages(const Batch& batch);
  void compute_multipliers(const Batch& batch);
  void backward_policy(const Batch& batch);
  void backward_critic(const Batch& batch);
  void record_gaps(const Batch& batch);
  void diagnose(const Batch& batch, const UpdateContext& context);

  LearnerSetup setup_;
  const Batch* staged_ = nullptr;
  Surrogate surrogate_;
  ThreadPool& pool_;
  bool per_dimension_;  // one ratio per action dimension
  std::size_t batch_size_;
  Net policy_, critic_;
  bool policy_due_ = true, ratios_due_ = true;  // in this update; the critic always learns
  Mlp<T> average_net_;                          // of the proximal term; empty workspace without it
  EvaluatedDistribution<T> pi_, average_pi_;
  AlignedVector<T> average_;  // moving average of the policy's parameters; empty without the proximal term
  ObservationScale scale_;
  RunningMoments returns_{1};
  RewardScale reward_scale_;  // of these
  std::int64_t version_ = 0, policy_version_ = 0, skipped_ = 0, skipped_in_a_row_ = 0;
  UpdateStats stats_;
  Diagnostics diagnostics_;

  // Workspace. N: batch size, D: action dimensions, M: ratios, N or N * D.
  std::vector<float> encoded_;                        // [rows, observation_size] of typed fields
  AlignedVector<T> observation_;                      // [rows, observation_size] scaled
  AlignedVector<T> policy_columns_, critic_columns_;  // what each reads, where some is the critic's
  const T* policy_input_ = nullptr;                   // [rows, ...] what the first layer sees
  const T* critic_input_ = nullptr;
  std::vector<T> action_;                               // [N, D]
  std::vector<T> reward_;                               // [N] scaled
  const T* features_ = nullptr;                         // [rows, ...] what both networks begin with
  const T* values_ = nullptr;                           // [rows]
  std::vector<T> log_prob_;                             // [N, D]
  std::vector<T> entropy_;                              // [N]
  std::vector<T> proximal_;                             // [N]
  std::vector<T> joint_;                                // [N] log ratio of the whole action
  std::vector<T> ratio_;                                // [M] log ratio as the surrogate sees it
  std::vector<T> advantage_;                            // [N]
  std::vector<T> target_;                               // [N]
  std::vector<T> ratio_advantage_, multiplier_, loss_;  // [M]
  std::vector<T> d_log_prob_;                           // [N, D]
  AlignedVector<T> d_outputs_;                          // [N, distribution outputs]
  std::vector<T> d_value_;                              // [N]
  std::vector<T> stretch_value_;                        // [N+1] one stretch's values, for the advantage
  std::vector<float> float_ratio_, float_advantage_, float_multiplier_;  // [M] for the diagnostics
  std::vector<std::int64_t> gap_;                                        // [N]
  std::vector<std::int64_t> gap_pool_;  // some gaps of each of the last 32 updates, a ring
  std::size_t gap_pool_at_ = 0;
  std::vector<double> age_;  // [N]
};

extern template class CpuLearner<float>;
extern template class CpuLearner<double>;

}  // namespace gipo
