#pragma once

#include <memory>
#include <vector>

#include "gipo/core/random.h"
#include "gipo/learner/adamw.h"
#include "gipo/learner/learner.h"
#include "gipo/learner/learner_book.h"
#include "gipo/objective/surrogate.h"
#include "gipo/policy/policy.h"

namespace gipo {

class RankLeader;

// The learner on the CPU, of any policy. T is float in use and double in the backend that float is checked with.
//
//   observations -> policy -> log ratios --+-> advantages -> multiplier -> d log pi -> policy gradient -> AdamW
//                -> critic -> values ------+-> targets ----------------> d value  -> critic gradient -> AdamW
template <class T>
class CpuLearner final : public Learner {
 public:
  using MakePolicy = std::unique_ptr<Policy<T>>(const ModelSpec& spec, const PolicyRoom& room);
  CpuLearner(const LearnerSetup& setup, RandomStream random, ThreadPool& pool, MakePolicy make = make_policy<T>);
  // ranks: who make the updates, and the policies in place of `make`; in float alone.
  CpuLearner(const LearnerSetup& setup, RandomStream random, ThreadPool& pool, MakePolicy make,
             std::unique_ptr<RankLeader> ranks);
  ~CpuLearner() override;

  void stage(const Batch& batch) override { staged_ = &batch; }
  void begin_update(const UpdateContext& context) override;
  const UpdateStats& figures() override { return stats_; }
  std::vector<std::pair<std::string, std::vector<double>>> gradients() const override;
  Diagnostics& diagnostics() override { return diagnostics_; }
  std::int64_t version() const override { return book_.version; }
  std::int64_t skipped_updates() const override { return book_.skipped; }
  void set_observation_scale(const RunningMoments& moments) override { book_.scale.set(moments); }
  void set_reward_scale(const RunningMoments& returns) override { book_.set_reward_scale(returns); }
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
  std::shared_ptr<void> hold() override;
  void save_rest(ByteWriter& out) const override;
  void load_rest(ByteReader& in) override;

 private:
  // A part of the parameters, flat, and what optimises it.
  struct Trained {
    Trained(std::vector<TensorSlice> tensors, const LearnerOptions& options, bool has_moments);
    std::vector<TensorSlice> tensors;
    AlignedVector<T> parameters, gradient;
    AdamW<T> optimizer;
    double norm = 0;  // of the last gradient
  };

  std::unique_ptr<Policy<T>> make_net(MakePolicy make, bool average) const;
  void step_part(Part part, double learning_rate);
  double norm_of_gradient(Part part) const;
  void add_moments(Part part, std::vector<LearnerTensor>& all);
  Trained& trained(Part part) { return part == Part::kPolicy ? policy_ : critic_; }
  const Trained& trained(Part part) const { return part == Part::kPolicy ? policy_ : critic_; }
  void forward(const Batch& batch);
  void compute_log_ratios(const Batch& batch);
  void compute_trust(const Batch& batch);
  void compute_advantages(const Batch& batch);
  void compute_multipliers(const Batch& batch);
  void backward_policy(const Batch& batch);
  void backward_critic(const Batch& batch);
  void diagnose(const Batch& batch, const UpdateContext& context);

  LearnerSetup setup_;
  const Batch* staged_ = nullptr;
  Surrogate surrogate_;
  ThreadPool& pool_;
  std::size_t ratios_;  // of each action
  std::size_t batch_size_;
  std::unique_ptr<RankLeader> ranks_;  // null where this process is alone; otherwise they have gradients and moments
  std::unique_ptr<Policy<T>> net_;
  OwnParameters* own_;  // of net_, where it has them
  Trained policy_, critic_;
  bool policy_due_ = true, ratios_due_ = true;  // in this update; the critic always learns
  std::unique_ptr<Policy<T>> average_net_;      // null where no update looks at the average
  AlignedVector<T> average_;                    // moving average of the policy's parameters, where one is kept
  LearnerBook book_;
  UpdateStats stats_;
  Diagnostics diagnostics_;

  // Workspace. N: batch size, D: action dimensions, M: ratios, N or N * D.
  std::vector<const std::byte*> columns_;               // [fields] of the batch
  std::vector<Sequence> sequences_;                     // [stretches] of a policy with memory
  std::vector<T> action_;                               // [N, D]
  std::vector<T> reward_;                               // [N] scaled
  const T* values_ = nullptr;                           // [rows]
  std::vector<T> log_prob_;                             // [N, D]
  std::vector<T> entropy_;                              // [N]
  std::vector<T> proximal_;                             // [N]
  std::vector<T> joint_;                                // [N] log ratio of the whole action
  std::vector<T> ratio_;                                // [M] log pi - log mu
  std::vector<T> average_log_prob_;                     // [N, D] where centred
  std::vector<T> trust_, importance_;                   // [M] where centred: log pi - log pi_prox, pi_prox / mu
  std::vector<T> sample_age_;                           // [M] in updates, where the surrogate reads it
  std::vector<T> advantage_;                            // [N]
  std::vector<T> target_;                               // [N]
  std::vector<T> ratio_advantage_, multiplier_, loss_;  // [M]
  std::vector<T> d_log_prob_;                           // [N, D]
  std::vector<T> d_value_;                              // [N]
  std::vector<T> stretch_value_;                        // [N+1] one stretch's values, for the advantage
  std::vector<float> float_ratio_, float_advantage_, float_multiplier_, float_trust_;  // [M] for the diagnostics
};

extern template class CpuLearner<float>;
extern template class CpuLearner<double>;

}  // namespace gipo
