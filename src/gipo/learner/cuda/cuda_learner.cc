#include "gipo/learner/cuda_learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "gipo/core/error.h"
#include "gipo/data/encode.h"
#include "gipo/learner/cuda/measure.h"
#include "gipo/learner/cuda/memory.h"
#include "gipo/learner/cuda/network.h"
#include "gipo/learner/cuda/staging.h"
#include "gipo/learner/learner_book.h"
#include "gipo/objective/surrogate.h"
#include "gipo/policy/mlp_policy.h"

namespace gipo {
namespace {

using namespace cuda;  // NOLINT: of this folder

constexpr int kBuffers = 2;           // batches on the card: one in use, one being copied
constexpr int kMostGaussians = 1600;  // their derivatives of a block of rows must fit into shared memory

// Parameters are taken four at a time, each part from a place of its own.
std::size_t padded(std::size_t size) { return (size + 3) / 4 * 4; }

// What an update computes of the policy.
enum class Kind { kAll, kRatios, kValuesAlone };
constexpr std::array kKinds = {Kind::kAll, Kind::kRatios, Kind::kValuesAlone};

// stage: pinned memory -> card, on a stream of its own
// begin_update: one graph: forward, ratios, advantages, multipliers, backward, norm, AdamW; its figures go to pinned memory
// copy_weights: pinned memory, to which the weights were copied behind the update that publishes them
class CudaLearner final : public Learner {
 public:
  CudaLearner(const LearnerSetup& setup, RandomStream random);
  ~CudaLearner() override { cudaDeviceSynchronize(); }

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
  void capture(Kind kind, const Staging& staging);
  void put_forward(Kind kind, const Staging& staging);
  void put_backward(Kind kind, const Staging& staging, const LossArrays& arrays);
  void make_gradient_blocks();
  Kind kind_of(bool diagnose) const;

  void wait() const;  // for the last update, and takes over what it reports
  void take_report();
  void upload();
  void download();
  void fetch_weights() const;
  void compute_diagnostics();

  LearnerSetup setup_;
  Surrogate surrogate_;
  MlpShapes shapes_;
  std::vector<TensorSlice> policy_tensors_, critic_tensors_;
  std::size_t policy_size_, critic_base_, size_;  // in the flat buffers
  int n_, rows_;                                  // of a batch; with what follows each stretch
  bool per_dimension_;
  LearnerBook book_;
  Flat host_;
  bool host_changed_ = true;  // the host's buffers were loaded, and the card's were not yet
  StepState state_;           // as the host knows it
  UpdateStats stats_;
  Diagnostics diagnostics_;

  Stream stream_, copy_stream_, weight_stream_;
  Network policy_, critic_;
  std::optional<Network> average_;
  std::array<std::unique_ptr<Staging>, kBuffers> staging_;
  int next_ = 0;                   // the buffer of the next batch
  const Batch* staged_ = nullptr;  // and that batch
  std::array<std::array<Graph, kBuffers>, kKinds.size()> graphs_;

  CardArray<float> parameters_, gradient_, first_, second_, average_policy_;
  CardArray<Head> heads_;
  CardArray<float> norm_, head_entropy_, average_norm_, entropy_, proximal_, joint_, ratio_, trust_, importance_;
  CardArray<float> advantage_, target_, ratio_advantage_, multiplier_, d_log_prob_, d_value_, d_outputs_, d_log_std_;
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
  return setup.surrogate.ratio == RatioOf::kDimension ? n * setup.model.distribution.dims() : n;
}

CudaLearner::CudaLearner(const LearnerSetup& setup, RandomStream random)
    : setup_(setup),
      surrogate_(setup.surrogate),
      shapes_(mlp_shapes(setup.model)),
      policy_tensors_(tensors_of(setup.model, Part::kPolicy)),
      critic_tensors_(tensors_of(setup.model, Part::kCritic)),
      policy_size_(values_of(policy_tensors_)),
      critic_base_(padded(policy_size_)),
      size_(critic_base_ + padded(values_of(critic_tensors_))),
      n_(static_cast<int>(setup.learner.batch_size)),
      rows_(setup.advantage.mode == AdvantageMode::kStored ? n_ : 2 * n_),
      per_dimension_(setup.surrogate.ratio == RatioOf::kDimension),
      book_(setup),
      policy_(shapes_.policy, shapes_.shared > 0 ? rows_ : n_, n_, shapes_.shared - 1,
              shapes_.shared > 0 ? static_cast<int>(setup.model.privileged) : 0),
      critic_(shapes_.critic, rows_, n_),
      diagnosed_(setup) {
  prepare_products();
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
  if (looks_at_average(setup)) average_.emplace(shapes_.policy, n_, 0);

  const DistributionSpec& distribution = setup.model.distribution;
  const auto n = static_cast<std::size_t>(n_), dims = distribution.dims(), m = ratios_of(setup);
  for (auto* v : {&parameters_, &gradient_, &first_, &second_}) *v = CardArray<float>(size_);
  if (keeps_average(setup)) average_policy_ = CardArray<float>(critic_base_);
  for (auto* v : {&norm_, &head_entropy_, &d_log_prob_}) *v = CardArray<float>(n * dims);
  for (auto* v : {&entropy_, &proximal_, &joint_, &advantage_, &target_, &d_value_}) *v = CardArray<float>(n);
  for (auto* v : {&ratio_, &ratio_advantage_, &multiplier_}) *v = CardArray<float>(m);
  if (average_) average_norm_ = CardArray<float>(n * dims);
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
  make_gradient_blocks();
  for (auto& staging : staging_) staging = std::make_unique<Staging>(setup_, surrogate_.reads_age());
  for (const Kind kind : kKinds) {
    if (kind != Kind::kAll && setup.learner.policy_every == 1) continue;
    for (int b = 0; b < kBuffers; ++b) {
      Graph& graph = graphs_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(b)];
      graph.begin(stream_);
      capture(kind, *staging_[static_cast<std::size_t>(b)]);
      graph.end(stream_);
    }
  }
  upload();
}

void CudaLearner::make_gradient_blocks() {
  std::vector<GradientPart> parts;
  policy_.gradient_parts(0, false, parts);
  const auto extras = static_cast<int>(setup_.model.distribution.extra_parameters());
  if (extras > 0) {
    parts.push_back({d_log_std_.data(), static_cast<std::size_t>(extras), static_cast<int>(policy_size_) - extras,
                     extras, row_blocks(n_), false});
  }
  critic_.gradient_parts(static_cast<int>(critic_base_), true, parts);
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
  a.outputs = policy_.outputs();
  a.log_std = parameters_.data() + network;
  if (average_) {
    a.average_outputs = average_->outputs();
    a.average_log_std = average_policy_.data() + network;
  }
  a.values = critic_.outputs();
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
  o.per_dimension = per_dimension_;
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
  o.entropy_coef = static_cast<float>(l.entropy_coef);
  o.proximal_coef = static_cast<float>(l.proximal_coef);
  o.value_scale = static_cast<float>(2 * l.value_coef) / static_cast<float>(n_);
  return o;
}

void CudaLearner::capture(Kind kind, const Staging& staging) {
  const LossArrays arrays = loss_arrays(staging);
  const LossOptions options = loss_options(kind);
  put_forward(kind, staging);
  if (options.ratios_due) evaluate_rows(arrays, options, stream_);
  compute_loss(arrays, options, stream_);
  if (kind == Kind::kAll) output_gradient(arrays, options, stream_);
  put_backward(kind, staging, arrays);

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

// Layers of different networks that wait for the same are one launch: the critic's first waits for those it shares.
void CudaLearner::put_forward(Kind kind, const Staging& staging) {
  const auto shared = static_cast<int>(shapes_.shared), width = static_cast<int>(setup_.model.observation_size);
  const int* rows = setup_.advantage.mode == AdvantageMode::kStored ? nullptr : &staging.header()->rows;
  const auto privileged = static_cast<int>(setup_.model.privileged);
  const bool policy = kind != Kind::kValuesAlone;
  const float *observation = staging.observation(), *parameters = parameters_.data();
  for (int level = 0; level < std::max(policy_.layers(), shared + critic_.layers()); ++level) {
    std::vector<Product> products;
    std::vector<NormLayer> norms;
    const auto add = [&](const Network& net, int layer, const float* weights, const float* x, int ldx, int most,
                         const int* on_card) {
      if (layer > 0) x = net.output(layer - 1), ldx = net.stride(layer - 1);
      products.push_back(net.forward(layer, weights, x, ldx, most, on_card));
      if (net.has_norm(layer)) norms.push_back(net.norm(layer, weights, most, on_card));
    };
    if (level < policy_.layers() && (policy || level < shared)) {
      add(policy_, level, parameters, observation, width, level < shared ? rows_ : n_, level < shared ? rows : nullptr);
    }
    if (average_ && policy && level < policy_.layers()) {
      add(*average_, level, average_policy_.data(), observation, width, n_, nullptr);
    }
    if (const int layer = level - shared; layer >= 0 && layer < critic_.layers()) {
      const float* seen = shared > 0 ? policy_.output(shared - 1) : observation;
      add(critic_, layer, parameters + critic_base_, seen, shared > 0 ? policy_.stride(shared - 1) : width, rows_,
          rows);
    }
    run_products(launch_of(products), setup_.learner.products, stream_);
    run_norms(norms, stream_);
    if (shared > 0 && level == shared - 1 && privileged > 0) {
      // What the critic alone sees stands behind the features.
      const int stride = policy_.stride(shared - 1);
      copy_columns(observation + width - privileged, width, policy_.output(shared - 1) + stride - privileged, stride,
                   privileged, rows_, stream_);
    }
  }
}

void CudaLearner::put_backward(Kind kind, const Staging& staging, const LossArrays& arrays) {
  const auto shared = static_cast<int>(shapes_.shared), width = static_cast<int>(setup_.model.observation_size);
  const float* parameters = parameters_.data();
  for (int level = 0; level < std::max(policy_.layers(), critic_.layers()); ++level) {
    std::vector<Product> products;
    std::vector<NormLayer> norms;
    const auto add = [&](const Network& net, const float* weights, const float* x, int ldx, const float* d_output) {
      const int layer = net.layers() - 1 - level;
      if (layer < 0) return;
      if (layer > 0) x = net.output(layer - 1), ldx = net.stride(layer - 1);
      net.backward(layer, weights, x, ldx, level == 0 ? d_output : nullptr, products);
      if (layer > 0 && net.has_norm(layer - 1)) norms.push_back(net.norm_backward(layer - 1, weights));
    };
    if (kind == Kind::kAll) add(policy_, parameters, staging.observation(), width, arrays.d_outputs);
    add(critic_, parameters + critic_base_, shared > 0 ? policy_.output(shared - 1) : staging.observation(),
        shared > 0 ? policy_.stride(shared - 1) : width, arrays.d_value);
    run_products(launch_of(products), setup_.learner.products, stream_);
    run_norms_backward(norms, stream_);
  }
}

void CudaLearner::stage(const Batch& batch) {
  GIPO_CHECK(batch.size == static_cast<std::size_t>(n_));
  const double factor = schedule_factor(setup_.learner, book_.version);
  staged_ = &batch;
  staging_[static_cast<std::size_t>(next_)]->put(
      batch, book_, {setup_.learner.policy_lr * factor, setup_.learner.value_lr * factor}, copy_stream_);
}

Kind CudaLearner::kind_of(bool diagnose) const {
  if ((book_.version + 1) % setup_.learner.policy_every == 0) return Kind::kAll;
  return diagnose || setup_.advantage.mode == AdvantageMode::kVtrace ? Kind::kRatios : Kind::kValuesAlone;
}

void CudaLearner::begin_update(const UpdateContext& context) {
  GIPO_CHECK(staged_ != nullptr);
  const Batch& batch = *std::exchange(staged_, nullptr);
  upload();
  book_.record_gaps(batch);
  const double factor = schedule_factor(setup_.learner, book_.version);
  const Kind kind = kind_of(context.diagnose);
  Staging& staging = *staging_[static_cast<std::size_t>(next_)];
  staging.copied().hold_back(stream_);
  fetched_event_.hold_back(stream_);  // the weights that it changes may still be on their way
  graphs_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(next_)].run(stream_);
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
  const Graph& graph = graphs_[static_cast<std::size_t>(Kind::kAll)][static_cast<std::size_t>(last)];
  return median_seconds(stream_, 100, [&] { graph.run(stream_); });
}

// What the arrays of a learner take of the card: networks, flat buffers, batches.
double card_bytes(const LearnerSetup& setup) {
  const MlpShapes shapes = mlp_shapes(setup.model);
  const auto n = static_cast<int>(setup.learner.batch_size);
  const int rows = setup.advantage.mode == AdvantageMode::kStored ? n : 2 * n;
  const auto parameters =
      static_cast<double>(parameter_count(setup.model, Part::kPolicy) + parameter_count(setup.model, Part::kCritic));
  const DistributionSpec& d = setup.model.distribution;
  double bytes = network_bytes(shapes.policy, shapes.shared > 0 ? rows : n, n) + network_bytes(shapes.critic, rows, n) +
                 4 * parameters * (keeps_average(setup) ? 5 : 4);
  if (looks_at_average(setup)) bytes += network_bytes(shapes.policy, n, 0);
  bytes += 4.0 * n * static_cast<double>(d.outputs() + 12 * d.dims() + 8);
  return bytes + kBuffers * static_cast<double>(staging_bytes(setup));
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
  if (setup.model.needs_torch()) {
    throw Error(
        "learner.backend = cuda has neither encoders for images (policy.encoder) nor policies with a memory "
        "(policy.memory): use learner.backend = torch");
  }
  if (setup.model.distribution.extra_parameters() > kMostGaussians) {
    throw Error(
        fmt::format("learner.backend = cuda takes at most {} continuous action dimensions, and the task has {}: "
                    "use learner.backend = cpu",
                    kMostGaussians, setup.model.distribution.extra_parameters()));
  }
  const double entries =
      static_cast<double>(setup.learner.batch_size) * 2 *
      static_cast<double>(std::max(setup.model.distribution.outputs(), setup.model.observation_size));
  if (entries > 2e9 ||
      parameter_count(setup.model, Part::kPolicy) + parameter_count(setup.model, Part::kCritic) > 1u << 30) {
    throw Error(
        fmt::format("learner.backend = cuda: learner.batch_size = {} is too large for these networks; the largest "
                    "arrays may have 2e9 numbers, and the networks 1e9 parameters",
                    setup.learner.batch_size));
  }
  cuda::check_any_card("learner.backend = cuda", "learner.backend = cpu needs none");
  std::size_t free = 0, total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "the card");
  const double needed = card_bytes(setup);
  if (needed > static_cast<double>(free)) {
    throw Error(fmt::format(
        "learner.backend = cuda: a batch of {} with these networks takes {:.1f} GB of the card's "
        "memory, and {:.1f} of {:.1f} GB are free: lower learner.batch_size or policy.hidden",
        setup.learner.batch_size, needed / 1e9, static_cast<double>(free) / 1e9, static_cast<double>(total) / 1e9));
  }
}

std::string cuda_version() { return fmt::format("{}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10); }

}  // namespace gipo
