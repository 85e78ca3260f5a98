#include "gipo/learner/cuda/card_update.h"

#include <algorithm>

namespace gipo::cuda {

CardUpdate::CardUpdate(const LearnerSetup& setup, std::size_t policy_size, std::size_t critic_base, std::size_t size,
                       cudaStream_t stream)
    : setup_(setup),
      surrogate_(setup.surrogate),
      policy_size_(policy_size),
      critic_base_(critic_base),
      size_(size),
      n_(static_cast<int>(setup.learner.batch_size)),
      stream_(stream) {
  setup_.first.reset();
  const DistributionSpec& distribution = setup.model.distribution;
  const auto n = static_cast<std::size_t>(n_), dims = distribution.dims();
  const std::size_t m = n * ratios_per_action(setup.surrogate, dims);
  for (auto* v : {&parameters, &gradient, &first, &second}) *v = CardArray<float>(size_);
  if (keeps_average(setup)) average_policy = CardArray<float>(critic_base_);
  for (auto* v : {&norm_, &head_entropy_, &d_log_prob_}) *v = CardArray<float>(n * dims);
  for (auto* v : {&entropy_, &proximal_, &joint_, &advantage_, &target_, &d_value_}) *v = CardArray<float>(n);
  for (auto* v : {&ratio, &ratio_advantage, &multiplier}) *v = CardArray<float>(m);
  if (looks_at_average(setup)) average_norm_ = CardArray<float>(n * dims);
  if (surrogate_.centred()) {
    for (auto* v : {&trust, &importance_}) *v = CardArray<float>(m);
  }
  bound_ = CardArray<float>(1);
  powers_ = CardArray<double>(5);
  figures_ = CardArray<Figures>(1);
  constants_ = CardArray<StepConstants>(1);
  finished_ = CardArray<unsigned>(1);
  state = CardArray<StepState>(1);
  report = PinnedArray<StepReport>(1);
  std::vector<Head> heads;
  for (int d = 0, output = 0, extra = 0; d < static_cast<int>(dims); ++d) {
    const auto choices = static_cast<int>(distribution.choices[static_cast<std::size_t>(d)]);
    heads.push_back({choices, output, output - extra, extra});
    output += std::max(choices, 1);
    extra += choices == 0;
  }
  rows_per_block_ =
      rows_per_block(static_cast<int>(std::ranges::count_if(heads, [](auto& h) { return h.choices > 0; })));
  losses_ = CardArray<double>(static_cast<std::size_t>(row_blocks(n_, rows_per_block_)));
  heads_ = CardArray<Head>(dims);
  check(cudaMemcpy(heads_.data(), heads.data(), dims * sizeof(Head), cudaMemcpyHostToDevice), "a copy");

  if (setup.learner.backend != "torch") small_ = small_plan(setup);
  if (small_) {
    values_ = CardArray<float>(static_cast<std::size_t>(rows_of(setup)));
    policy_parts_ = CardArray<float>(static_cast<std::size_t>(small_->policy_blocks) * critic_base_);
    critic_parts_ = CardArray<float>(static_cast<std::size_t>(small_->learning_critic_blocks) * (size_ - critic_base_));
    sums_ = CardArray<double>(static_cast<std::size_t>(3 * (small_->policy_blocks + small_->critic_blocks)));
    prepare_small_update(setup.learner.products, small_->shared);
    return;
  }
  prepare_loss();
  pieces_ = CardArray<double>(kPieceSums * n);
  d_outputs_ = CardArray<float>(n * distribution.outputs());
  d_log_std_ =
      CardArray<float>(static_cast<std::size_t>(row_blocks(n_, rows_per_block_)) * distribution.extra_parameters());
  networks_ =
      (setup.learner.backend == "torch" ? make_torch_networks : make_mlp_networks)(setup_, network_places(), stream_);
  make_gradient_blocks();
}

NetworkPlaces CardUpdate::network_places() {
  NetworkPlaces p;
  p.policy = parameters.data();
  p.critic = parameters.data() + critic_base_;
  if (looks_at_average(setup_)) p.average = average_policy.data();
  p.policy_gradient = gradient.data();
  p.critic_gradient = gradient.data() + critic_base_;
  p.d_outputs = d_outputs_.data();
  p.d_value = d_value_.data();
  return p;
}

void CardUpdate::make_gradient_blocks() {
  std::vector<GradientPart> parts, critic;
  networks_->gradient_parts(static_cast<int>(critic_base_), parts, critic);
  const auto extras = static_cast<int>(setup_.model.distribution.extra_parameters());
  if (extras > 0) {
    parts.push_back({d_log_std_.data(), static_cast<std::size_t>(extras), static_cast<int>(policy_size_) - extras,
                     extras, row_blocks(n_, rows_per_block_), false});
  }
  parts.insert(parts.end(), critic.begin(), critic.end());
  std::vector<GradientBlock> blocks;
  for (const GradientPart& part : parts) {
    if (part.whole.squares) {
      whole_[part.critic ? 1 : 0].push_back(part.whole);
      continue;
    }
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

LossArrays CardUpdate::loss_arrays(const Staging& s) const {
  const std::size_t network = policy_size_ - setup_.model.distribution.extra_parameters();
  LossArrays a{};
  a.header = s.header();
  a.heads = heads_.data();
  a.log_std = parameters.data() + network;
  if (looks_at_average(setup_)) a.average_log_std = average_policy.data() + network;
  if (networks_) {
    a.outputs = networks_->outputs();
    a.average_outputs = networks_->average_outputs();
    a.values = networks_->values();
  }
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
  a.ratio = ratio.data();
  a.trust = trust.data();
  a.importance = importance_.data();
  a.advantage = advantage_.data();
  a.target = target_.data();
  a.ratio_advantage = ratio_advantage.data();
  a.multiplier = multiplier.data();
  a.d_log_prob = d_log_prob_.data();
  a.d_value = d_value_.data();
  a.d_outputs = d_outputs_.data();
  a.d_log_std = d_log_std_.data();
  a.pieces = pieces_.data();
  a.losses = losses_.data();
  a.bound = bound_.data();
  a.figures = figures_.data();
  a.state = state.data();
  a.powers = powers_.data();
  return a;
}

LossOptions CardUpdate::loss_options(Kind kind) const {
  const DistributionSpec& distribution = setup_.model.distribution;
  const LearnerOptions& l = setup_.learner;
  const AdvantageOptions& v = setup_.advantage;
  LossOptions o{};
  o.n = n_;
  o.dims = static_cast<int>(distribution.dims());
  o.outputs = static_cast<int>(distribution.outputs());
  o.extras = static_cast<int>(distribution.extra_parameters());
  o.mask_size = static_cast<int>(distribution.mask_size());
  o.ratios = static_cast<int>(ratios_per_action(setup_.surrogate, distribution.dims()));
  o.rows_per_block = rows_per_block_;
  o.centred = surrogate_.centred();
  o.proximal = l.proximal_coef > 0;
  o.normalise = v.normalise;
  o.ratios_due = kind != Kind::kValuesAlone;
  o.gradient_due = kind == Kind::kAll;
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

StepArrays CardUpdate::step_arrays(Kind kind, const Staging& staging) const {
  const bool policy = kind == Kind::kAll;
  StepArrays a{};
  a.header = staging.header();
  a.blocks = blocks_.data() + (policy ? 0 : policy_blocks_);
  a.block_count = block_count_ - (policy ? 0 : policy_blocks_);
  a.squares = squares_.data();
  for (const int network : {0, 1}) {
    if (network == 1 || policy) std::ranges::copy(whole_[network], a.whole[network]);
  }
  a.finished = finished_.data();
  a.gradient = gradient.data();
  a.parameters = parameters.data();
  a.first = first.data();
  a.second = second.data();
  a.average = average_policy.data();
  a.figures = figures_.data();
  a.losses = losses_.data();
  a.loss_count = kind == Kind::kValuesAlone ? 0 : row_blocks(n_, rows_per_block_);
  a.powers = powers_.data();
  a.state = state.data();
  a.constants = constants_.data();
  a.report = report.data();
  return a;
}

StepOptions CardUpdate::step_options(Kind kind) const {
  const LearnerOptions& l = setup_.learner;
  StepOptions o{};
  o.policy_size = static_cast<int>(critic_base_);
  o.network_size = static_cast<int>(policy_size_ - setup_.model.distribution.extra_parameters());
  o.size = static_cast<int>(size_);
  o.policy_due = kind == Kind::kAll;
  o.keeps_average = !average_policy.empty();
  o.beta1 = l.beta1;
  o.beta2 = l.beta2;
  o.epsilon = l.adam_epsilon;
  o.weight_decay = l.weight_decay;
  o.max_norm = l.max_grad_norm;
  o.average_decay = 1 - 1 / l.proximal_updates;
  o.loss_scale = 1.0 / n_;  // dimensions are summed and samples averaged
  o.most_bad = l.max_bad_updates;
  return o;
}

void CardUpdate::put(Kind kind, const Staging& staging) {
  const LossArrays loss = loss_arrays(staging);
  const LossOptions options = loss_options(kind);
  const StepArrays step = step_arrays(kind, staging);
  if (small_) {
    SmallArrays a{};
    a.observation = staging.observation();
    a.policy = parameters.data();
    a.average = looks_at_average(setup_) ? average_policy.data() : nullptr;
    a.critic = parameters.data() + critic_base_;
    a.values = values_.data();
    a.policy_parts = policy_parts_.data();
    a.critic_parts = critic_parts_.data();
    a.policy_stride = critic_base_;
    a.critic_stride = size_ - critic_base_;
    a.sums = sums_.data();
    a.arrived = finished_.data();
    run_small_update(*small_, a, loss, options, step, step_options(kind), setup_.learner.products, stream_);
    return;
  }
  networks_->forward(kind, staging);
  if (options.ratios_due) evaluate_rows(loss, options, stream_);
  compute_advantages(loss, options, stream_);
  output_gradient(loss, options, stream_);
  networks_->backward(kind, staging);
  sum_gradients(step, step_options(kind), stream_);
  step_weights(step, step_options(kind), stream_);
}

void CardUpdate::run(Kind kind, const Staging& batch, int buffer) {
  std::function<void()>& update = updates_[{kind, buffer, shape_of(batch)}];
  if (!update) {
    const auto work = [this, kind, &batch] { put(kind, batch); };
    update = networks_ ? networks_->record(kind, batch, work) : work;
  }
  update();
}

const std::function<void()>& CardUpdate::recorded(Kind kind, const Staging& batch, int buffer) const {
  return updates_.at({kind, buffer, shape_of(batch)});
}

}  // namespace gipo::cuda
