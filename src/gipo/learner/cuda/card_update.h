// An update on a card: its arrays, and the launches from a batch to the next weights.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "gipo/learner/cuda/card_networks.h"
#include "gipo/learner/cuda/memory.h"
#include "gipo/learner/cuda/small_update.h"
#include "gipo/objective/surrogate.h"

namespace gipo::cuda {

class CardUpdate {
 public:
  CardUpdate(const LearnerSetup& setup, std::size_t policy_size, std::size_t critic_base, std::size_t size,
             cudaStream_t stream);

  // The flat buffers: those of the policy, and from critic_base on those of the critic.
  CardArray<float> parameters, gradient, first, second, average_policy;
  CardArray<StepState> state;
  // Of the last update: for the diagnostics [M], and for the host.
  CardArray<float> ratio, ratio_advantage, multiplier, trust;
  PinnedArray<StepReport> report;

  // Puts an update into the stream. Recorded at the first time that it is needed, for each `buffer` of batches.
  void run(Kind kind, const Staging& batch, int buffer);
  const std::function<void()>& recorded(Kind kind, const Staging& batch, int buffer) const;

 private:
  NetworkPlaces network_places();
  void make_gradient_blocks();
  LossArrays loss_arrays(const Staging& staging) const;
  LossOptions loss_options(Kind kind) const;
  StepArrays step_arrays(Kind kind, const Staging& staging) const;
  StepOptions step_options(Kind kind) const;
  void put(Kind kind, const Staging& staging);
  std::size_t shape_of(const Staging& staging) const { return networks_ ? networks_->shape_of(staging) : 0; }

  LearnerSetup setup_;
  Surrogate surrogate_;
  std::size_t policy_size_, critic_base_, size_;
  int n_;  // of a batch
  int rows_per_block_ = 0;
  cudaStream_t stream_;

  CardArray<Head> heads_;
  CardArray<float> norm_, head_entropy_, average_norm_, entropy_, proximal_, joint_, importance_;
  CardArray<float> advantage_, target_, d_log_prob_, d_value_, d_outputs_, d_log_std_, bound_;
  CardArray<double> pieces_, losses_, powers_;
  CardArray<Figures> figures_;
  CardArray<StepConstants> constants_;
  CardArray<unsigned> finished_;

  // Small networks in one launch, or a launch for each layer.
  std::optional<SmallPlan> small_;
  CardArray<float> values_, policy_parts_, critic_parts_;
  CardArray<double> sums_;
  std::unique_ptr<CardNetworks> networks_;
  CardArray<GradientBlock> blocks_;
  std::vector<SquaresOfGradient> whole_[2];
  int policy_blocks_ = 0, block_count_ = 0;
  CardArray<double> squares_;
  std::map<std::tuple<Kind, int, std::size_t>, std::function<void()>> updates_;  // by what, buffer, shape of the batch
};

}  // namespace gipo::cuda
