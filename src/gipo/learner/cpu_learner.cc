#include "gipo/learner/cpu_learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/core/thread_pool.h"
#include "gipo/learner/rank_leader.h"
#include "gipo/objective/advantage.h"
#include "gipo/policy/own_parameters.h"
#include "gipo/stats/sums.h"

namespace gipo {
namespace {

template <class T>
double norm_of(std::span<const T> values) {
  return std::sqrt(dense_kernels<T>().sum_of_squares(values.data(), values.size()));
}

}  // namespace

template <class T>
CpuLearner<T>::Trained::Trained(std::vector<TensorSlice> slices, const LearnerOptions& o, bool has_moments)
    : tensors(std::move(slices)),
      parameters(values_of(tensors)),
      gradient(parameters.size()),
      optimizer(has_moments ? parameters.size() : 0, {o.beta1, o.beta2, o.adam_epsilon, o.weight_decay}) {}

template <class T>
CpuLearner<T>::CpuLearner(const LearnerSetup& setup, RandomStream random, ThreadPool& pool, MakePolicy make)
    : CpuLearner(setup, random, pool, make, nullptr) {}

template <class T>
CpuLearner<T>::CpuLearner(const LearnerSetup& setup, RandomStream random, ThreadPool& pool, MakePolicy make,
                          std::unique_ptr<RankLeader> ranks)
    : setup_(setup),
      surrogate_(setup.surrogate),
      pool_(pool),
      ratios_(ratios_per_action(setup.surrogate, setup.model.distribution.dims())),
      batch_size_(static_cast<std::size_t>(setup.learner.batch_size)),
      ranks_(std::move(ranks)),
      net_(make_net(make, false)),
      own_(net_->own()),
      policy_(net_->tensors(Part::kPolicy), setup.learner, ranks_ == nullptr),
      critic_(net_->tensors(Part::kCritic), setup.learner, ranks_ == nullptr),
      book_(setup) {
  net_->initialise(Part::kPolicy, policy_.parameters, random);
  net_->initialise(Part::kCritic, critic_.parameters, random);
  if (setup.first) {
    policy_.parameters.assign(setup.first->policy.begin(), setup.first->policy.end());
    critic_.parameters.assign(setup.first->critic.begin(), setup.first->critic.end());
    setup_.first.reset();
  }
  setup_.ranks.reset();
  if (keeps_average(setup)) average_ = policy_.parameters;
  if (looks_at_average(setup)) average_net_ = make_net(make, true);
  if constexpr (std::is_same_v<T, float>) {
    if (ranks_) {
      ranks_->bind({policy_.parameters, critic_.parameters, policy_.gradient, critic_.gradient, average_});
    }
  }
  const std::size_t n = batch_size_, dims = setup.model.distribution.dims(), m = n * ratios_;
  columns_.resize(setup.model.fields.size());
  for (auto* v : {&action_, &log_prob_, &d_log_prob_}) v->resize(n * dims);
  for (auto* v : {&reward_, &entropy_, &proximal_, &joint_, &advantage_, &target_, &d_value_}) v->resize(n);
  for (auto* v : {&ratio_, &ratio_advantage_, &multiplier_, &loss_}) v->resize(m);
  for (auto* v : {&float_ratio_, &float_advantage_, &float_multiplier_}) v->resize(m);
  if (surrogate_.centred()) {
    average_log_prob_.resize(n * dims);
    for (auto* v : {&trust_, &importance_}) v->resize(m);
    float_trust_.resize(m);
  }
  if (surrogate_.reads_age()) sample_age_.resize(m);
  stretch_value_.resize(n + 1);
}

template <class T>
CpuLearner<T>::~CpuLearner() = default;

template <class T>
std::unique_ptr<Policy<T>> CpuLearner<T>::make_net(MakePolicy make, bool average) const {
  const PolicyRoom room = average ? average_room(setup_.learner) : learner_room(setup_);
  if constexpr (std::is_same_v<T, float>) {
    if (ranks_) return ranks_->make_policy(average, room);
  }
  return make(setup_.model, room);
}

template <class T>
double CpuLearner<T>::norm_of_gradient(Part part) const {
  if (ranks_) return ranks_->norm(part);
  return norm_of<T>(trained(part).gradient);
}

template <class T>
void CpuLearner<T>::begin_update(const UpdateContext& context) {
  GIPO_CHECK(staged_ != nullptr);
  const Batch& batch = *std::exchange(staged_, nullptr);
  stats_ = {};
  stats_.reward_factor = book_.reward_scale.factor;
  compute_gradients(batch, context.diagnose);
  if (context.diagnose) diagnose(batch, context);
  apply_gradients();
}

template <class T>
void CpuLearner<T>::compute_gradients(const Batch& batch, bool diagnose) {
  GIPO_CHECK(batch.size == batch_size_);
  policy_due_ = (book_.version + 1) % setup_.learner.policy_every == 0;
  ratios_due_ = policy_due_ || diagnose || setup_.advantage.mode == AdvantageMode::kVtrace;
  forward(batch);
  if (ratios_due_) compute_log_ratios(batch);
  compute_advantages(batch);
  if (ratios_due_) compute_multipliers(batch);
  pool_.run(2, [&](std::size_t i) {
    if (i == 1) return backward_critic(batch);
    if (policy_due_) backward_policy(batch);
  });
  if (!own_) return;
  const auto norms = own_->find_gradients();
  policy_.norm = norms[0], critic_.norm = norms[1];
}

template <class T>
void CpuLearner<T>::forward(const Batch& batch) {
  // Advantages made at collection need no value of what follows a stretch.
  const std::size_t rows = setup_.advantage.mode == AdvantageMode::kStored ? batch.size : batch.rows();
  batch.locate_observation(0, columns_);
  std::copy_n(batch.action().data(), action_.size(), action_.data());
  const std::span<const float> reward = batch.reward();
  for (std::size_t i = 0; i < reward_.size(); ++i) reward_[i] = T(book_.reward_scale.apply(reward[i]));
  PolicyInput input{columns_, rows};
  if (setup_.model.has_memory()) {
    sequences_.clear();
    for (const Stretch& s : batch.stretches) {
      sequences_.push_back({s.begin, s.length, batch.size + sequences_.size(), s.context_begin, s.context});
    }
    input.state = batch.state().data();
    input.sequences = sequences_;
  }
  net_->see({policy_.parameters, critic_.parameters, &book_.scale}, input);
  pool_.run(2, [&](std::size_t i) {
    if (i == 1) {
      values_ = net_->values();
      book_.record_gaps(batch);  // the policy's side has more to do
      return;
    }
    if (!ratios_due_) return;
    net_->forward(batch.size);
    net_->log_prob(action_.data(), log_prob_.data());
    net_->entropy(entropy_.data());
    if (!average_net_) return;
    average_net_->see_as({average_, critic_.parameters, &book_.scale}, *net_);
    average_net_->forward(batch.size);
    if (setup_.learner.proximal_coef > 0) net_->kl_divergence(*average_net_, proximal_.data());
    if (surrogate_.centred()) average_net_->log_prob(action_.data(), average_log_prob_.data());
  });
}

template <class T>
void CpuLearner<T>::compute_log_ratios(const Batch& batch) {
  const std::size_t dims = batch.action_dims(), parts = dims / ratios_;  // of a ratio
  const std::span<const float> behaviour = batch.log_prob();
  for (std::size_t i = 0; i < batch.size; ++i) {
    T sum = 0;
    for (std::size_t d = i * dims; d < (i + 1) * dims; ++d) {
      const T log_ratio = log_prob_[d] - static_cast<T>(behaviour[d]);
      sum += log_ratio;
      ratio_[d / parts] = d % parts == 0 ? log_ratio : ratio_[d / parts] + log_ratio;
    }
    joint_[i] = sum;
    if (ratios_ == 1) ratio_[i] = sum;
  }
  if (surrogate_.centred()) compute_trust(batch);
}

// log pi - log mu in two: from mu to the average, and from there to pi.
template <class T>
void CpuLearner<T>::compute_trust(const Batch& batch) {
  const std::size_t parts = batch.action_dims() / ratios_;  // of a ratio
  const std::span<const float> behaviour = batch.log_prob();
  const T most = T(surrogate_.importance_max());
  std::size_t cut = 0;
  for (std::size_t j = 0; j < trust_.size(); ++j) {
    T to_average = 0, to_policy = 0;
    for (std::size_t d = j * parts; d < (j + 1) * parts; ++d) {
      to_average += average_log_prob_[d] - static_cast<T>(behaviour[d]);
      to_policy += log_prob_[d] - average_log_prob_[d];
    }
    trust_[j] = to_policy;
    importance_[j] = importance_weight(to_average, most);
    cut += importance_[j] >= most;
  }
  stats_.importance_mean = mean_of<T>(importance_);
  stats_.importance_cut_frac = static_cast<double>(cut) / static_cast<double>(importance_.size());
}

template <class T>
void CpuLearner<T>::compute_advantages(const Batch& batch) {
  const AdvantageOptions& o = setup_.advantage;
  if (o.mode == AdvantageMode::kStored) {
    std::copy_n(batch.advantage().data(), batch.size, advantage_.data());
    std::copy_n(batch.target().data(), batch.size, target_.data());
  }
  for (std::size_t w = 0; o.mode != AdvantageMode::kStored && w < batch.stretches.size(); ++w) {
    const Stretch& stretch = batch.stretches[w];
    std::copy_n(values_ + stretch.begin, stretch.length, stretch_value_.data());
    stretch_value_[stretch.length] = values_[batch.size + w];
    const SegmentView<T> segment{{reward_.data() + stretch.begin, stretch.length},
                                 {stretch_value_.data(), stretch.length + 1},
                                 stretch.terminated};
    const std::span<T> advantage(advantage_.data() + stretch.begin, stretch.length);
    const std::span<T> target(target_.data() + stretch.begin, stretch.length);
    if (o.mode == AdvantageMode::kGae) {
      gae<T>(segment, T(o.gamma), T(o.lambda), advantage, target);
    } else {
      vtrace<T>(segment, {joint_.data() + stretch.begin, stretch.length}, {o.gamma, o.lambda, o.rho_bar, o.c_bar},
                advantage, target);
    }
  }
  stats_.advantage_mean = mean_of<T>(advantage_);
  stats_.advantage_std = std::sqrt(variance_of<T>(advantage_, stats_.advantage_mean));
  T largest = 0;
  for (const T a : advantage_) largest = std::max(largest, std::abs(a));
  stats_.advantage_abs_max = largest;
  if (o.normalise) normalise<T>(advantage_);
}

template <class T>
void CpuLearner<T>::compute_multipliers(const Batch& batch) {
  for (std::size_t j = 0; j < batch.size * ratios_; ++j) ratio_advantage_[j] = advantage_[j / ratios_];
  for (std::size_t j = 0; j < sample_age_.size(); ++j) sample_age_[j] = static_cast<T>(book_.gap[j / ratios_]);
  surrogate_.evaluate(std::span<const T>(surrogate_.centred() ? trust_ : ratio_), std::span<const T>(ratio_advantage_),
                      std::span<T>(multiplier_), std::span<T>(loss_), sample_age_);
  for (std::size_t j = 0; j < importance_.size(); ++j) {
    multiplier_[j] *= importance_[j];
    loss_[j] *= importance_[j];
  }
  // Ratios are summed and samples averaged, so that all kinds of ratio have the same gradient at rho = 1.
  stats_.policy_loss = mean_of<T>(loss_) * static_cast<double>(ratios_);
  stats_.entropy = mean_of<T>(entropy_);
  stats_.proximal_kl = setup_.learner.proximal_coef > 0 ? mean_of<T>(proximal_) : 0.0;
}

template <class T>
void CpuLearner<T>::backward_policy(const Batch& batch) {
  const LearnerOptions& o = setup_.learner;
  const T inverse_size = T(1) / static_cast<T>(batch.size);
  // d loss / d log pi: -m A of the surrogate, and of KL(mu || pi) = E_mu[log mu - log pi].
  const std::size_t dims = batch.action_dims(), parts = dims / ratios_;  // of a ratio
  for (std::size_t d = 0; d < batch.size * dims; ++d) {
    const std::size_t j = d / parts;
    d_log_prob_[d] = -(multiplier_[j] * ratio_advantage_[j] + T(o.kl_coef)) * inverse_size;
  }
  PolicyLoss<T> loss;
  loss.d_log_prob = d_log_prob_.data();
  loss.entropy_coef = T(entropy_weight(o, book_.version)) * inverse_size;
  if (o.proximal_coef > 0) {
    loss.kl_coef = T(o.proximal_coef) * inverse_size;
    loss.other = average_net_.get();
  }
  net_->policy_gradient(action_.data(), loss, policy_.gradient);
  policy_.norm = norm_of_gradient(Part::kPolicy);
}

template <class T>
void CpuLearner<T>::backward_critic(const Batch& batch) {
  const std::size_t n = batch.size;
  const T scale = T(2 * setup_.learner.value_coef) / static_cast<T>(n);
  for (std::size_t i = 0; i < n; ++i) d_value_[i] = scale * (values_[i] - target_[i]);
  const auto error = [&](std::size_t i) { return static_cast<double>(values_[i] - target_[i]); };
  stats_.value_loss = sum_over(n, [&](std::size_t i) { return error(i) * error(i); }) / static_cast<double>(n);
  stats_.value_mean = mean_of<T>({values_, n});
  const double variance = variance_of<T>(target_, mean_of<T>(target_));
  const double bias = sum_over(n, error) / static_cast<double>(n);
  stats_.explained_variance = variance > 0 ? 1.0 - (stats_.value_loss - bias * bias) / variance : 0.0;
  net_->value_gradient(d_value_.data(), n, critic_.gradient);
  critic_.norm = norm_of_gradient(Part::kCritic);
}

template <class T>
void CpuLearner<T>::apply_gradients() {
  const LearnerOptions& o = setup_.learner;
  const double factor = rate_factor(o, book_.version++);
  stats_.policy_grad_norm = policy_due_ ? policy_.norm : 0.0;
  stats_.value_grad_norm = critic_.norm;
  stats_.policy_lr = o.policy_lr * factor;
  stats_.value_lr = o.value_lr * factor;
  // A norm is finite only if every entry is.
  stats_.skipped = !std::isfinite(stats_.policy_grad_norm) || !std::isfinite(critic_.norm) ||
                   !std::isfinite(stats_.policy_loss) || !std::isfinite(stats_.value_loss);
  if (stats_.skipped) {
    ++book_.skipped;
    ++book_.skipped_in_a_row;
    book_.refuse_divergence(stats_, o.max_bad_updates);
    return;
  }
  book_.skipped_in_a_row = 0;
  if (own_) {
    own_->step({{stats_.policy_lr, stats_.value_lr},
                o.beta1,
                o.beta2,
                o.adam_epsilon,
                o.weight_decay,
                o.max_grad_norm,
                1 / o.proximal_updates});
    book_.policy_version = book_.version;
    return;
  }
  pool_.run(2, [&](std::size_t i) {
    if (i == 1) return step_part(Part::kCritic, stats_.value_lr);
    if (!policy_due_) return;
    step_part(Part::kPolicy, stats_.policy_lr);
    book_.policy_version = book_.version;
  });
}

template <class T>
void CpuLearner<T>::step_part(Part which, double learning_rate) {
  const LearnerOptions& o = setup_.learner;
  Trained& part = trained(which);
  const double clip = std::min(1.0, o.max_grad_norm / (part.norm + 1e-6));
  const double decay = 1 - 1 / o.proximal_updates;
  const T step = T(average_step(decay, std::pow(decay, static_cast<double>(part.optimizer.steps() + 2))));
  if constexpr (std::is_same_v<T, float>) {
    if (ranks_) return ranks_->step(which, part.optimizer.next(learning_rate, clip), step);
  }
  part.optimizer.step(part.parameters, part.gradient, learning_rate, clip);
  if (which == Part::kCritic) return;
  net_->constrain(part.parameters);
  for (std::size_t k = 0; k < average_.size(); ++k)
    average_[k] = (T(1) - step) * average_[k] + step * part.parameters[k];
}

template <class T>
void CpuLearner<T>::diagnose(const Batch& batch, const UpdateContext& context) {
  std::copy(ratio_.begin(), ratio_.end(), float_ratio_.begin());
  std::copy(ratio_advantage_.begin(), ratio_advantage_.end(), float_advantage_.begin());
  std::copy(multiplier_.begin(), multiplier_.end(), float_multiplier_.begin());
  book_.record_ages(batch, context.env_steps);
  DiagnosticsInput in = diagnostics_of(setup_, book_, surrogate_.clips_to_zero());
  in.log_ratio = float_ratio_;
  in.advantage = float_advantage_;
  in.multiplier = float_multiplier_;
  std::copy(trust_.begin(), trust_.end(), float_trust_.begin());
  in.trust = float_trust_;
  diagnostics_.compute(in);
}

template <class T>
void CpuLearner<T>::copy_weights(Weights& out) const {
  out.version = book_.version;
  if (own_) out.model = own_->share();
  // Each network by the thread that has just written it: another core's cache would have to hand it over, and back.
  pool_.run(2, [&](std::size_t i) {
    if (i == 1) return out.critic.assign(critic_.parameters.begin(), critic_.parameters.end());
    if (std::exchange(out.policy_version, book_.policy_version) == book_.policy_version && !out.policy.empty()) return;
    const AlignedVector<T>& policy = setup_.learner.publish == Published::kAverage ? average_ : policy_.parameters;
    out.policy.assign(policy.begin(), policy.end());
  });
  out.scale = book_.scale;
  out.returns = book_.returns;
}

template class CpuLearner<float>;
template class CpuLearner<double>;

}  // namespace gipo
