#include "gipo/learner/cuda_learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <tuple>

#include "gipo/core/error.h"
#include "gipo/data/encode.h"
#include "gipo/learner/cuda/card_networks.h"
#include "gipo/learner/cuda/measure.h"
#include "gipo/learner/device_memory.h"
#include "gipo/learner/learner_book.h"
#include "gipo/objective/surrogate.h"

namespace gipo {
namespace {

using namespace cuda;  // NOLINT: of this folder

constexpr int kBuffers = 2;           // batches on the card: one in use, one being copied
constexpr int kMostGaussians = 1600;  // their derivatives of a block of rows must fit into shared memory

// Parameters are taken four at a time, each part from a place of its own.
std::size_t padded(std::size_t size) { return (size + 3) / 4 * 4; }

// Which card: the one that learner.device names, or the first.
int card_of(const LearnerOptions& options) {
  int card = 0;
  const std::size_t colon = options.device.find(':');
  if (colon != std::string::npos) {
    std::from_chars(options.device.data() + colon + 1, options.device.data() + options.device.size(), card);
  }
  return card;
}

// stage: pinned memory -> card, on a stream of its own
// begin_update: one graph: forward, ratios, advantages, multipliers, backward, norm, AdamW; its figures go to pinned memory
// copy_weights: pinned memory, to which the weights were copied behind the update that publishes them
class CudaLearner final : public Learner {
 public:
  CudaLearner(const LearnerSetup& setup, RandomStream random);
  ~CudaLearner() override {
    cudaSetDevice(card_);
    cudaDeviceSynchronize();
  }

  void stage(const Batch& batch) override;
  void begin_update(const UpdateContext& context) override;
  const UpdateStats& figures() override;
  Diagnostics& diagnostics() override;
  std::vector<std::pair<std::string, std::vector<double>>> gradients() const override;
  std::int64_t version() const override { return book_.version; }
  std::int64_t skipped_updates() const override;
  void set_observation_scale(const RunningMoments& moments) override { book_.scale.set(moments); }
  void set_reward_scale(const RunningMoments& returns) override { book_.set_reward_scale(returns); }
  void copy_weights(Weights& out) const override;
  double seconds_of_update(const Batch& batch);

 protected:
  std::vector<LearnerTensor> tensors() override;
  void save_rest(ByteWriter& out) const override;
  void load_rest(ByteReader& in) override;

 private:
  // The flat buffers: those of the policy, then those of the critic.
  struct Flat {
    std::vector<float> parameters, first, second, average;
  };

  LossArrays loss_arrays(const Staging& staging) const;
  LossOptions loss_options(Kind kind) const;
  NetworkPlaces network_places();
  void put_update(Kind kind, const Staging& staging);
  void run_update(Kind kind);
  void make_gradient_blocks();
  Kind kind_of(bool diagnose) const;

  void use_card() const { check(cudaSetDevice(card_), "the card"); }  // by this thread
  void wait() const;  // for the last update, and takes over what it reports
  void take_report();
  void upload();
  void download();
  void fetch_weights() const;
  void compute_diagnostics();

  LearnerSetup setup_;
  int card_;
  Surrogate surrogate_;
  std::vector<TensorSlice> policy_tensors_, critic_tensors_;
  std::size_t policy_size_, critic_base_, size_;  // in the flat buffers
  int n_;                                         // of a batch
  int ratios_;                                    // of each action
  LearnerBook book_;
  Flat host_;
  bool host_changed_ = true;  // the host's buffers were loaded, and the card's were not yet
  StepState state_;           // as the host knows it
  UpdateStats stats_;
  Diagnostics diagnostics_;

  Stream stream_, copy_stream_, weight_stream_;
  std::array<std::unique_ptr<Staging>, kBuffers> staging_;
  int next_ = 0;                   // the buffer of the next batch
  const Batch* staged_ = nullptr;  // and that batch

  CardArray<float> parameters_, gradient_, first_, second_, average_policy_;
  CardArray<Head> heads_;
  CardArray<float> norm_, head_entropy_, average_norm_, entropy_, proximal_, joint_, ratio_, trust_, importance_;
  CardArray<float> advantage_, target_, ratio_advantage_, multiplier_, d_log_prob_, d_value_, d_outputs_, d_log_std_;
  std::unique_ptr<CardNetworks> networks_;
  std::map<std::tuple<Kind, int, std::size_t>, std::function<void()>> updates_;  // by what, buffer, shape of the batch
  CardArray<Figures> figures_;
  CardArray<GradientBlock> blocks_;
  int policy_blocks_ = 0, block_count_ = 0;
  CardArray<double> squares_, powers_;
  CardArray<unsigned> finished_;
  CardArray<StepState> card_state_;
  CardArray<StepConstants> constants_;
  PinnedArray<StepReport> report_;
  PinnedArray<float> weights_;          // as published: policy or its average, critic
  PinnedArray<float> for_diagnostics_;  // [4, M]
  LearnerBook diagnosed_;               // as it was at the last update with diagnostics
  bool policy_due_ = true, reported_ = true, diagnostics_due_ = false;
  mutable std::int64_t fetched_ = -1;  // the version of weights_
  mutable Event updated_, fetched_event_;
};

std::size_t ratios_of(const LearnerSetup& setup) {
  const auto n = static_cast<std::size_t>(setup.learner.batch_size);
  return n * ratios_per_action(setup.surrogate, setup.model.distribution.dims());
}

CudaLearner::CudaLearner(const LearnerSetup& setup, RandomStream random)
    : setup_(setup),
      card_((check(cudaSetDevice(card_of(setup.learner)), "the card"), card_of(setup.learner))),
      surrogate_(setup.surrogate),
      policy_tensors_(tensors_of(setup.model, Part::kPolicy)),
      critic_tensors_(tensors_of(setup.model, Part::kCritic)),
      policy_size_(values_of(policy_tensors_)),
      critic_base_(padded(policy_size_)),
      size_(critic_base_ + padded(values_of(critic_tensors_))),
      n_(static_cast<int>(setup.learner.batch_size)),
      ratios_(static_cast<int>(ratios_per_action(setup.surrogate, setup.model.distribution.dims()))),
      book_(setup),
      diagnosed_(setup) {
  prepare_loss();
  for (auto* flat : {&host_.parameters, &host_.first, &host_.second}) flat->resize(size_);
  const std::span<float> flat(host_.parameters);
  const std::size_t critic_size = values_of(critic_tensors_);
  if (setup.first) {
    std::ranges::copy(setup.first->policy, flat.begin());
    std::ranges::copy(setup.first->critic, flat.subspan(critic_base_).begin());
    setup_.first.reset();
  } else {
    const auto net = make_policy<float>(setup.model, {1, 0, false});
    net->initialise(Part::kPolicy, flat.first(policy_size_), random);
    net->initialise(Part::kCritic, flat.subspan(critic_base_, critic_size), random);
  }
  if (keeps_average(setup))
    host_.average.assign(flat.begin(), flat.begin() + static_cast<std::ptrdiff_t>(critic_base_));

  const DistributionSpec& distribution = setup.model.distribution;
  const auto n = static_cast<std::size_t>(n_), dims = distribution.dims(), m = ratios_of(setup);
  for (auto* v : {&parameters_, &gradient_, &first_, &second_}) *v = CardArray<float>(size_);
  if (keeps_average(setup)) average_policy_ = CardArray<float>(critic_base_);
  for (auto* v : {&norm_, &head_entropy_, &d_log_prob_}) *v = CardArray<float>(n * dims);
  for (auto* v : {&entropy_, &proximal_, &joint_, &advantage_, &target_, &d_value_}) *v = CardArray<float>(n);
  for (auto* v : {&ratio_, &ratio_advantage_, &multiplier_}) *v = CardArray<float>(m);
  if (looks_at_average(setup)) average_norm_ = CardArray<float>(n * dims);
  if (surrogate_.centred()) {
    for (auto* v : {&trust_, &importance_}) *v = CardArray<float>(m);
  }
  d_outputs_ = CardArray<float>(n * distribution.outputs());
  d_log_std_ = CardArray<float>(static_cast<std::size_t>(row_blocks(n_)) * distribution.extra_parameters());
  figures_ = CardArray<Figures>(1);
  powers_ = CardArray<double>(5);
  finished_ = CardArray<unsigned>(1);
  card_state_ = CardArray<StepState>(1);
  constants_ = CardArray<StepConstants>(1);
  report_ = PinnedArray<StepReport>(1);
  weights_ = PinnedArray<float>(size_);
  for_diagnostics_ = PinnedArray<float>(4 * m);
  heads_ = CardArray<Head>(dims);
  std::vector<Head> heads;
  for (int d = 0, output = 0, extra = 0; d < static_cast<int>(dims); ++d) {
    const auto choices = static_cast<int>(distribution.choices[static_cast<std::size_t>(d)]);
    heads.push_back({choices, output, output - extra, extra});
    output += std::max(choices, 1);
    extra += choices == 0;
  }
  check(cudaMemcpy(heads_.data(), heads.data(), dims * sizeof(Head), cudaMemcpyHostToDevice), "a copy");
  networks_ =
      (setup.learner.backend == "torch" ? make_torch_networks : make_mlp_networks)(setup_, network_places(), stream_);
  make_gradient_blocks();
  for (auto& staging : staging_) staging = std::make_unique<Staging>(setup_, surrogate_.reads_age());
  upload();
}

NetworkPlaces CudaLearner::network_places() {
  NetworkPlaces p;
  p.policy = parameters_.data();
  p.critic = parameters_.data() + critic_base_;
  if (looks_at_average(setup_)) p.average = average_policy_.data();
  p.policy_gradient = gradient_.data();
  p.critic_gradient = gradient_.data() + critic_base_;
  p.d_outputs = d_outputs_.data();
  p.d_value = d_value_.data();
  return p;
}

void CudaLearner::make_gradient_blocks() {
  std::vector<GradientPart> parts, critic;
  networks_->gradient_parts(static_cast<int>(critic_base_), parts, critic);
  const auto extras = static_cast<int>(setup_.model.distribution.extra_parameters());
  if (extras > 0) {
    parts.push_back({d_log_std_.data(), static_cast<std::size_t>(extras), static_cast<int>(policy_size_) - extras,
                     extras, row_blocks(n_), false});
  }
  parts.insert(parts.end(), critic.begin(), critic.end());
  std::vector<GradientBlock> blocks;
  for (const GradientPart& part : parts) {
    const int size = part.splits >= kManySplits ? kWideSumsPerBlock : kSumsPerBlock;
    for (int begin = 0; begin < part.count; begin += size) {
      blocks.push_back({part, begin, std::min(size, part.count - begin)});
      policy_blocks_ += !part.critic;
    }
  }
  block_count_ = static_cast<int>(blocks.size());
  blocks_ = CardArray<GradientBlock>(blocks.size());
  squares_ = CardArray<double>(blocks.size());
  check(cudaMemcpy(blocks_.data(), blocks.data(), blocks.size() * sizeof(GradientBlock), cudaMemcpyHostToDevice),
        "a copy");
}

LossArrays CudaLearner::loss_arrays(const Staging& s) const {
  const std::size_t network = policy_size_ - setup_.model.distribution.extra_parameters();
  LossArrays a{};
  a.header = s.header();
  a.heads = heads_.data();
  a.outputs = networks_->outputs();
  a.log_std = parameters_.data() + network;
  if (networks_->average_outputs()) {
    a.average_outputs = networks_->average_outputs();
    a.average_log_std = average_policy_.data() + network;
  }
  a.values = networks_->values();
  a.action = s.action();
  a.behaviour = s.behaviour();
  a.reward = s.reward();
  a.stored_advantage = s.advantage();
  a.stored_target = s.target();
  a.gap = s.gap();
  a.mask = s.mask();
  a.stretches = s.stretches();
  a.norm = norm_.data();
  a.head_entropy = head_entropy_.data();
  a.average_norm = average_norm_.data();
  a.entropy = entropy_.data();
  a.proximal = proximal_.data();
  a.joint = joint_.data();
  a.ratio = ratio_.data();
  a.trust = trust_.data();
  a.importance = importance_.data();
  a.advantage = advantage_.data();
  a.target = target_.data();
  a.ratio_advantage = ratio_advantage_.data();
  a.multiplier = multiplier_.data();
  a.d_log_prob = d_log_prob_.data();
  a.d_value = d_value_.data();
  a.d_outputs = d_outputs_.data();
  a.d_log_std = d_log_std_.data();
  a.figures = figures_.data();
  a.state = card_state_.data();
  a.powers = powers_.data();
  return a;
}

LossOptions CudaLearner::loss_options(Kind kind) const {
  const DistributionSpec& distribution = setup_.model.distribution;
  const LearnerOptions& l = setup_.learner;
  const AdvantageOptions& v = setup_.advantage;
  LossOptions o{};
  o.n = n_;
  o.dims = static_cast<int>(distribution.dims());
  o.outputs = static_cast<int>(distribution.outputs());
  o.extras = static_cast<int>(distribution.extra_parameters());
  o.mask_size = static_cast<int>(distribution.mask_size());
  o.ratios = ratios_;
  o.centred = surrogate_.centred();
  o.proximal = l.proximal_coef > 0;
  o.normalise = v.normalise;
  o.ratios_due = kind != Kind::kValuesAlone;
  o.advantages = v.mode == AdvantageMode::kVtrace ? Advantages::kVtrace
                 : v.mode == AdvantageMode::kGae  ? Advantages::kGae
                                                  : Advantages::kStored;
  o.limits = {static_cast<float>(v.gamma), static_cast<float>(v.lambda), static_cast<float>(v.rho_bar),
              static_cast<float>(v.c_bar)};
  o.surrogate = surrogate_.choice();
  o.beta1 = l.beta1;
  o.beta2 = l.beta2;
  o.average_decay = 1 - 1 / l.proximal_updates;
  o.importance_max = static_cast<float>(surrogate_.importance_max());
  o.kl_coef = static_cast<float>(l.kl_coef);
  o.proximal_coef = static_cast<float>(l.proximal_coef);
  o.value_scale = static_cast<float>(2 * l.value_coef) / static_cast<float>(n_);
  return o;
}

void CudaLearner::put_update(Kind kind, const Staging& staging) {
  const LossArrays arrays = loss_arrays(staging);
  const LossOptions options = loss_options(kind);
  networks_->forward(kind, staging);
  if (options.ratios_due) evaluate_rows(arrays, options, stream_);
  compute_loss(arrays, options, stream_);
  if (kind == Kind::kAll) output_gradient(arrays, options, stream_);
  networks_->backward(kind, staging);

  const LearnerOptions& l = setup_.learner;
  const bool policy = kind == Kind::kAll;
  StepArrays a{};
  a.header = staging.header();
  a.blocks = blocks_.data() + (policy ? 0 : policy_blocks_);
  a.block_count = block_count_ - (policy ? 0 : policy_blocks_);
  a.squares = squares_.data();
  a.finished = finished_.data();
  a.gradient = gradient_.data();
  a.parameters = parameters_.data();
  a.first = first_.data();
  a.second = second_.data();
  a.average = average_policy_.data();
  a.figures = figures_.data();
  a.powers = powers_.data();
  a.state = card_state_.data();
  a.constants = constants_.data();
  a.report = report_.data();
  StepOptions o{};
  o.policy_size = static_cast<int>(critic_base_);
  o.network_size = static_cast<int>(policy_size_ - setup_.model.distribution.extra_parameters());
  o.size = static_cast<int>(size_);
  o.policy_due = policy;
  o.keeps_average = !average_policy_.empty();
  o.beta1 = l.beta1;
  o.beta2 = l.beta2;
  o.epsilon = l.adam_epsilon;
  o.weight_decay = l.weight_decay;
  o.max_norm = l.max_grad_norm;
  o.average_decay = 1 - 1 / l.proximal_updates;
  o.most_bad = l.max_bad_updates;
  sum_gradients(a, o, stream_);
  step_weights(a, o, stream_);
}

// Recorded at the first time that it is needed.
void CudaLearner::run_update(Kind kind) {
  const Staging& staging = *staging_[static_cast<std::size_t>(next_)];
  std::function<void()>& update = updates_[{kind, next_, networks_->shape_of(staging)}];
  if (!update) {
    update = networks_->record(kind, staging, [this, kind, &staging] { put_update(kind, staging); });
  }
  update();
}

void CudaLearner::stage(const Batch& batch) {
  GIPO_CHECK(batch.size == static_cast<std::size_t>(n_));
  use_card();
  const LearnerOptions& o = setup_.learner;
  const double factor = rate_factor(o, book_.version);
  staged_ = &batch;
  staging_[static_cast<std::size_t>(next_)]->put(
      batch, book_, {o.policy_lr * factor, o.value_lr * factor, entropy_weight(o, book_.version)}, copy_stream_);
}

Kind CudaLearner::kind_of(bool diagnose) const {
  if ((book_.version + 1) % setup_.learner.policy_every == 0) return Kind::kAll;
  return diagnose || setup_.advantage.mode == AdvantageMode::kVtrace ? Kind::kRatios : Kind::kValuesAlone;
}

void CudaLearner::begin_update(const UpdateContext& context) {
  GIPO_CHECK(staged_ != nullptr);
  const Batch& batch = *std::exchange(staged_, nullptr);
  use_card();
  upload();
  book_.record_gaps(batch);
  const double factor = rate_factor(setup_.learner, book_.version);
  const Kind kind = kind_of(context.diagnose);
  Staging& staging = *staging_[static_cast<std::size_t>(next_)];
  staging.copied().hold_back(stream_);
  fetched_event_.hold_back(stream_);  // the weights that it changes may still be on their way
  run_update(kind);
  next_ = (next_ + 1) % kBuffers;
  ++book_.version;
  policy_due_ = kind == Kind::kAll;
  if (policy_due_) book_.policy_version = book_.version;
  stats_ = {};
  stats_.reward_factor = book_.reward_scale.factor;
  stats_.policy_lr = setup_.learner.policy_lr * factor;
  stats_.value_lr = setup_.learner.value_lr * factor;
  reported_ = false;
  if (context.diagnose) {
    book_.record_ages(batch, context.env_steps);
    diagnosed_ = book_;
    diagnostics_due_ = true;
    const std::size_t m = ratio_.size();
    const CardArray<float>* arrays[] = {&ratio_, &ratio_advantage_, &multiplier_, &trust_};
    for (std::size_t k = 0; k < std::size(arrays); ++k) {
      if (arrays[k]->empty()) continue;
      check(cudaMemcpyAsync(for_diagnostics_.data() + k * m, arrays[k]->data(), m * sizeof(float),
                            cudaMemcpyDeviceToHost, stream_),
            "a copy");
    }
  }
  updated_.record(stream_);
  staging.used(updated_);
  if (book_.version % setup_.learner.publish_every == 0) fetch_weights();
}

// Behind the last update, beside what the card does next; begun where they are known to be published.
void CudaLearner::fetch_weights() const {
  if (fetched_ == book_.version) return;
  updated_.hold_back(weight_stream_);
  const bool average = setup_.learner.publish == Published::kAverage;
  const auto copy = [&](std::size_t begin, const float* from, std::size_t count) {
    check(cudaMemcpyAsync(weights_.data() + begin, from, count * sizeof(float), cudaMemcpyDeviceToHost, weight_stream_),
          "a copy");
  };
  if (average) copy(0, average_policy_.data(), critic_base_);
  const std::size_t begin = average ? critic_base_ : 0;
  copy(begin, parameters_.data() + begin, size_ - begin);
  fetched_event_.record(weight_stream_);
  fetched_ = book_.version;
}

void CudaLearner::wait() const {
  updated_.wait();
  if (!reported_) const_cast<CudaLearner*>(this)->take_report();
}

void CudaLearner::take_report() {
  const StepReport& r = report_[0];
  const Figures& f = r.figures;
  reported_ = true;
  state_ = r.state;
  book_.skipped = state_.skipped;
  book_.skipped_in_a_row = state_.skipped_in_a_row;
  stats_.skipped = r.was_skipped != 0;
  stats_.policy_loss = f.policy_loss;
  stats_.value_loss = f.value_loss;
  stats_.entropy = f.entropy;
  stats_.proximal_kl = f.proximal_kl;
  stats_.explained_variance = f.explained_variance;
  stats_.importance_mean = f.importance_mean;
  stats_.importance_cut_frac = f.importance_cut_frac;
  stats_.policy_grad_norm = f.policy_norm;
  stats_.value_grad_norm = f.value_norm;
  stats_.advantage_mean = f.advantage_mean;
  stats_.advantage_std = f.advantage_std;
  stats_.advantage_abs_max = f.advantage_abs_max;
  stats_.value_mean = f.value_mean;
  book_.refuse_divergence(stats_, setup_.learner.max_bad_updates);
}

const UpdateStats& CudaLearner::figures() {
  wait();
  return stats_;
}

Diagnostics& CudaLearner::diagnostics() {
  if (std::exchange(diagnostics_due_, false)) {
    wait();
    compute_diagnostics();
  }
  return diagnostics_;
}

void CudaLearner::compute_diagnostics() {
  const std::size_t m = ratio_.size();
  const std::span<const float> all(for_diagnostics_.data(), 4 * m);
  DiagnosticsInput in = diagnostics_of(setup_, diagnosed_, surrogate_.clips_to_zero());
  in.log_ratio = all.first(m);
  in.advantage = all.subspan(m, m);
  in.multiplier = all.subspan(2 * m, m);
  if (surrogate_.centred()) in.trust = all.subspan(3 * m, m);
  diagnostics_.compute(in);
}

std::int64_t CudaLearner::skipped_updates() const {
  wait();
  return book_.skipped;
}

void CudaLearner::copy_weights(Weights& out) const {
  use_card();
  const_cast<CudaLearner*>(this)->upload();
  fetch_weights();
  fetched_event_.wait();
  wait();
  out.version = book_.version;
  const float* from = weights_.data();
  if (std::exchange(out.policy_version, book_.policy_version) != book_.policy_version || out.policy.empty()) {
    out.policy.assign(from, from + policy_size_);
  }
  out.critic.assign(from + critic_base_, from + critic_base_ + values_of(critic_tensors_));
  out.scale = book_.scale;
  out.returns = book_.returns;
}

std::vector<std::pair<std::string, std::vector<double>>> CudaLearner::gradients() const {
  wait();
  std::vector<float> flat(size_);
  check(cudaMemcpy(flat.data(), gradient_.data(), size_ * sizeof(float), cudaMemcpyDeviceToHost), "a copy");
  std::vector<std::pair<std::string, std::vector<double>>> all;
  const auto add = [&](const std::vector<TensorSlice>& tensors, std::size_t base) {
    for (const TensorSlice& s : tensors) {
      const auto values = std::span<const float>(flat).subspan(base + s.offset, s.values());
      all.emplace_back(s.name, std::vector<double>(values.begin(), values.end()));
    }
  };
  if (policy_due_) add(policy_tensors_, 0);
  add(critic_tensors_, critic_base_);
  return all;
}

// Where the host has newer ones: at the start, and after a load.
void CudaLearner::upload() {
  if (!std::exchange(host_changed_, false)) return;
  check(cudaStreamSynchronize(stream_), "an update");
  const auto copy = [](const CardArray<float>& to, const std::vector<float>& from) {
    check(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(float), cudaMemcpyHostToDevice), "a copy");
  };
  copy(parameters_, host_.parameters);
  copy(first_, host_.first);
  copy(second_, host_.second);
  if (!host_.average.empty()) copy(average_policy_, host_.average);
  check(cudaMemcpy(card_state_.data(), &state_, sizeof state_, cudaMemcpyHostToDevice), "a copy");
  updated_.record(stream_);
  fetched_ = -1;
}

void CudaLearner::download() {
  use_card();
  upload();
  wait();
  const auto copy = [](std::vector<float>& to, const CardArray<float>& from) {
    check(cudaMemcpy(to.data(), from.data(), to.size() * sizeof(float), cudaMemcpyDeviceToHost), "a copy");
  };
  copy(host_.parameters, parameters_);
  copy(host_.first, first_);
  copy(host_.second, second_);
  if (!host_.average.empty()) copy(host_.average, average_policy_);
}

std::vector<LearnerTensor> CudaLearner::tensors() {
  download();
  std::vector<LearnerTensor> all;
  const auto place = [&](const std::string& name, const Shape& shape, std::span<float> values) {
    all.push_back({source_of(view_tensor<float>(name, shape, values)), [this, shape, values](TensorReader& file) {
                     file.read_floats<float>(shape, values);
                     host_changed_ = true;
                   }});
  };
  const auto add = [&](const std::vector<TensorSlice>& slices, const std::string& end, std::span<float> values) {
    for (const TensorSlice& s : slices) {
      place(s.name + end, Shape(s.shape.begin(), s.shape.end()), values.subspan(s.offset, s.values()));
    }
  };
  for (const Part part : {Part::kPolicy, Part::kCritic}) {
    const std::size_t base = part == Part::kPolicy ? 0 : critic_base_;
    const std::vector<TensorSlice>& slices = part == Part::kPolicy ? policy_tensors_ : critic_tensors_;
    add(slices, "", std::span(host_.parameters).subspan(base));
    add(slices, ".first_moment", std::span(host_.first).subspan(base));
    add(slices, ".second_moment", std::span(host_.second).subspan(base));
  }
  if (!host_.average.empty()) add(policy_tensors_, ".average", host_.average);
  const Shape dims = {book_.scale.mean.size()};
  place("observation.mean", dims, book_.scale.mean);
  place("observation.inverse_std", dims, book_.scale.inverse_std);
  return all;
}

void CudaLearner::save_rest(ByteWriter& out) const {
  wait();
  book_.save(out, state_.policy_steps, state_.critic_steps);
}

void CudaLearner::load_rest(ByteReader& in) {
  wait();
  book_.load(in, state_.policy_steps, state_.critic_steps);
  state_.skipped = book_.skipped;
  state_.skipped_in_a_row = book_.skipped_in_a_row;
  host_changed_ = true;
}

double CudaLearner::seconds_of_update(const Batch& batch) {
  update(batch, {});
  const int last = (next_ + kBuffers - 1) % kBuffers;
  const Staging& staging = *staging_[static_cast<std::size_t>(last)];
  const std::function<void()>& again = updates_.at({Kind::kAll, last, networks_->shape_of(staging)});
  return median_seconds(stream_, 100, again);
}

// What the arrays of a learner take of the card: networks, flat buffers, batches.
double card_bytes(const LearnerSetup& setup) {
  const auto parameters =
      static_cast<double>(parameter_count(setup.model, Part::kPolicy) + parameter_count(setup.model, Part::kCritic));
  const DistributionSpec& d = setup.model.distribution;
  return (setup.learner.backend == "torch" ? torch_device_bytes(setup) : mlp_bytes(setup)) +
         4 * parameters * (keeps_average(setup) ? 5 : 4) +
         4.0 * static_cast<double>(setup.learner.batch_size) * static_cast<double>(d.outputs() + 12 * d.dims() + 8) +
         kBuffers * static_cast<double>(staging_bytes(setup));
}

}  // namespace

std::unique_ptr<Learner> make_cuda_learner(const LearnerSetup& setup, RandomStream random) {
  check_card(setup);
  return std::make_unique<CudaLearner>(setup, random);
}

double card_update(const LearnerSetup& setup, const Batch& batch) {
  check_card(setup);
  return CudaLearner(setup, RandomStream(1)).seconds_of_update(batch);
}

void check_card(const LearnerSetup& setup) {
  const bool torch = setup.learner.backend == "torch";
  const std::string place = torch ? fmt::format("learner.device = {}", setup.learner.device) : "learner.backend = cuda";
  const char* const others = torch ? "learner.device = cpu needs none" : "learner.backend = cpu needs none";
  if (setup.model.needs_torch() && !torch) {
    throw Error(
        "learner.backend = cuda has neither encoders for images (policy.encoder) nor policies with a memory "
        "(policy.memory): use learner.backend = torch");
  }
  if (setup.model.distribution.extra_parameters() > kMostGaussians) {
    throw Error(fmt::format("{} takes at most {} continuous action dimensions, and the task has {}: use {}", place,
                            kMostGaussians, setup.model.distribution.extra_parameters(),
                            torch ? "learner.device = cpu" : "learner.backend = cpu"));
  }
  const double entries =
      static_cast<double>(setup.learner.batch_size) * 2 *
      static_cast<double>(std::max(setup.model.distribution.outputs(), setup.model.observation_size));
  if (entries > 2e9 ||
      parameter_count(setup.model, Part::kPolicy) + parameter_count(setup.model, Part::kCritic) > 1u << 30) {
    throw Error(fmt::format(
        "{}: learner.batch_size = {} is too large for these networks; the largest arrays may have 2e9 numbers, and the "
        "networks 1e9 parameters",
        place, setup.learner.batch_size));
  }
  const int card = card_of(setup.learner);
  cuda::check_card_usable(card, place, others);
  std::size_t free = 0, total = 0;
  cuda::check(cudaSetDevice(card), "the card");
  cuda::check(cudaMemGetInfo(&free, &total), "the card");
  refuse_what_the_device_lacks(setup, place, card_bytes, static_cast<double>(free), static_cast<double>(total));
}

std::string cuda_version() { return fmt::format("{}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10); }

}  // namespace gipo
