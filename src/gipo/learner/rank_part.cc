#include "gipo/learner/rank_part.h"

#include <fmt/format.h>

#include <algorithm>

#include "gipo/io/bytes.h"
#include "gipo/kernels/dense.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {
namespace {

std::string bytes_of_floats(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

std::pair<std::size_t, std::size_t> share_of(std::size_t values, int rank, int ranks) {
  const auto at = [&](int r) { return values * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks); };
  return {at(rank), at(rank + 1)};
}

void refuse_ranks(std::int64_t ranks) {
  if (ranks == 1) return;
  throw Error(fmt::format(
      "learner.ranks = {} needs several processes: `gipo train`, `learn` and `resume` start them, and so does torchrun",
      ranks));
}

bool answers(RankCommand command) {
  switch (command) {
    case RankCommand::kLogProb:
    case RankCommand::kEntropy:
    case RankCommand::kDivergence:
    case RankCommand::kPolicyGradient:
    case RankCommand::kValues:
    case RankCommand::kValueGradient:
    case RankCommand::kReadGradient:
    case RankCommand::kReadMoments:
      return true;
    default:
      return false;
  }
}

std::string to_bytes(const RankSetup& setup, const std::string& env_id) {
  return bytes_of([&](ByteWriter& out) {
    out.value<std::uint64_t>(setup.batch_size);
    out.value(setup.keeps_average);
    out.value(setup.looks_at_average);
    out.text(weights_to_safetensors(setup.model, empty_weights(setup.model), env_id));
  });
}

RankSetup rank_setup(ByteReader& in) {
  RankSetup setup;
  setup.batch_size = in.value<std::uint64_t>();
  setup.keeps_average = in.value<bool>();
  setup.looks_at_average = in.value<bool>();
  setup.model = policy_from_safetensors(in.text(), "rank 0").model;
  return setup;
}

RankPart::RankPart(RankGroup& group, const RankSetup& setup) : group_(group), dims_(setup.model.distribution.dims()) {
  const ModelSpec& model = setup.model;
  // Rows can be divided anywhere; of a policy with memory, between sequences alone.
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t share = model.has_memory() ? setup.batch_size : (setup.batch_size + ranks - 1) / ranks;
  net_ = make_torch_policy(model, {2 * share, share, true});
  if (setup.looks_at_average) average_ = make_torch_policy(model, {share, share, false});
  for (const int part : {0, 1}) {
    Share& s = shares_[part];
    std::tie(s.begin, s.end) =
        share_of(parameter_count(model, part == 0 ? Part::kPolicy : Part::kCritic), group.rank(), group.size());
    for (auto* v : {&s.gradient, &s.first, &s.second}) v->resize(s.end - s.begin);
  }
  columns_.resize(model.fields.size());
  column_at_.resize(model.fields.size());
}

std::string RankPart::execute(RankCommand command, ByteReader& in) {
  Share* share = nullptr;
  switch (command) {
    case RankCommand::kNothing:
    case RankCommand::kEnd:
    case RankCommand::kSetUp:
      return {};
    case RankCommand::kParameters:
      take_parameters(in);
      return {};
    case RankCommand::kSee:
      see(in);
      return {};
    case RankCommand::kSeeAverage:
      if (steps_ > 0) average_->see_as({arrays_.average, arrays_.critic, &scale_}, *net_);
      return {};
    case RankCommand::kForward:
      if (Policy<float>& seen = net(in); steps_ > 0) seen.forward(steps_);
      return {};
    case RankCommand::kLogProb:
      return log_prob(in);
    case RankCommand::kEntropy:
    case RankCommand::kDivergence: {
      std::vector<float> out(steps_);
      if (steps_ > 0 && command == RankCommand::kEntropy) net_->entropy(out.data());
      if (steps_ > 0 && command == RankCommand::kDivergence) net_->kl_divergence(*average_, out.data());
      return bytes_of_floats(out);
    }
    case RankCommand::kPolicyGradient:
      return policy_gradient(in);
    case RankCommand::kValues:
      return values();
    case RankCommand::kValueGradient:
      return value_gradient(in);
    case RankCommand::kStep:
      step(in);
      return {};
    case RankCommand::kReadGradient:
      return bytes_of_floats(shares_[in.value<std::uint8_t>()].gradient);
    case RankCommand::kReadMoments:
    case RankCommand::kWriteMoments: {
      AlignedVector<float>& all = moments(in, share);
      const auto first = in.value<std::uint64_t>(), last = in.value<std::uint64_t>();
      const std::size_t begin = std::clamp<std::size_t>(first, share->begin, share->end),
                        end = std::clamp<std::size_t>(last, begin, share->end);
      const std::span<float> ours(all.data() + (begin - share->begin), end - begin);
      if (command == RankCommand::kReadMoments) return bytes_of_floats(ours);
      if (ours.empty()) return {};
      const std::vector<float> given = in.array<float>();
      std::copy_n(given.data() + (begin - first), ours.size(), ours.data());
      return {};
    }
  }
  GIPO_NOT_REACHED();
}

Policy<float>& RankPart::net(ByteReader& in) { return in.value<bool>() ? *average_ : *net_; }

AlignedVector<float>& RankPart::moments(ByteReader& in, Share*& share) {
  share = &shares_[in.value<std::uint8_t>()];
  return in.value<std::uint8_t>() == 0 ? share->first : share->second;
}

void RankPart::take_parameters(ByteReader& in) {
  if (group_.rank() == 0) return;  // they are its own
  for (const std::span<float> values : {arrays_.policy, arrays_.critic, arrays_.average}) in.array_into(values);
}

void RankPart::see(ByteReader& in) {
  steps_ = in.value<std::uint64_t>();
  rows_ = in.value<std::uint64_t>();
  scale_.mean = in.array<float>();
  scale_.inverse_std = in.array<float>();
  scale_.limit = in.value<float>();
  for (std::size_t f = 0; f < columns_.size(); ++f) {
    columns_[f] = in.array<std::byte>();
    column_at_[f] = columns_[f].data();
  }
  state_ = in.array<float>();
  sequences_ = in.array<Sequence>();
  if (steps_ == 0) return;
  PolicyInput input{column_at_, rows_};
  if (!state_.empty()) input.state = state_.data();
  input.sequences = sequences_;
  net_->see({arrays_.policy, arrays_.critic, &scale_}, input);
}

std::string RankPart::log_prob(ByteReader& in) {
  const Policy<float>& seen = net(in);
  actions_ = in.array<float>();
  std::vector<float> out(steps_ * dims_);
  if (steps_ > 0) seen.log_prob(actions_.data(), out.data());
  return bytes_of_floats(out);
}

std::string RankPart::policy_gradient(ByteReader& in) {
  actions_ = in.array<float>();
  const std::vector<float> d_log_prob = in.array<float>();
  PolicyLoss<float> loss;
  loss.d_log_prob = d_log_prob.data();
  loss.entropy_coef = in.value<float>();
  loss.kl_coef = in.value<float>();
  if (loss.kl_coef != 0) loss.other = average_.get();
  std::ranges::fill(arrays_.policy_gradient, 0.0F);
  if (steps_ > 0) net_->policy_gradient(actions_.data(), loss, arrays_.policy_gradient);
  return sum_gradient(0);
}

std::string RankPart::values() {
  return bytes_of_floats(steps_ > 0 ? std::span<const float>(net_->values(), rows_) : std::span<const float>());
}

std::string RankPart::value_gradient(ByteReader& in) {
  const std::vector<float> d_values = in.array<float>();
  std::ranges::fill(arrays_.critic_gradient, 0.0F);
  if (steps_ > 0) net_->value_gradient(d_values.data(), steps_, arrays_.critic_gradient);
  return sum_gradient(1);
}

std::string RankPart::sum_gradient(int part) {
  AlignedVector<float>& sum = shares_[part].gradient;
  group_.sum_shares(gradient(part), sum);
  const double squares = dense_kernels<float>().sum_of_squares(sum.data(), sum.size());
  return bytes_of([&](ByteWriter& out) { out.value(squares); });
}

void RankPart::step(ByteReader& in) {
  const int part = in.value<std::uint8_t>();
  const auto constants = in.value<AdamWStep<float>>();
  const auto towards = in.value<float>();  // of the average
  Share& s = shares_[part];
  const std::span<float> all = parameters(part);
  dense_kernels<float>().adamw(constants, s.gradient.data(), all.data() + s.begin, s.first.data(), s.second.data(),
                               s.gradient.size());
  group_.spread_shares(all);
  if (part != 0) return;
  net_->constrain(all);
  for (std::size_t k = 0; k < arrays_.average.size(); ++k) {
    arrays_.average[k] = (1.0F - towards) * arrays_.average[k] + towards * all[k];
  }
}

void serve_rank(RankGroup& group) {
  std::unique_ptr<RankPart> part;
  AlignedVector<float> policy, critic, policy_gradient, critic_gradient, average;
  while (true) {
    const std::string message = group.receive(0);
    ByteReader in(message);
    const auto command = in.value<RankCommand>();
    if (command == RankCommand::kEnd) return;
    if (command == RankCommand::kSetUp) {
      const RankSetup setup = rank_setup(in);
      for (auto* v : {&policy, &policy_gradient}) v->resize(parameter_count(setup.model, Part::kPolicy));
      for (auto* v : {&critic, &critic_gradient}) v->resize(parameter_count(setup.model, Part::kCritic));
      if (setup.keeps_average) average.resize(policy.size());
      part = std::make_unique<RankPart>(group, setup);
      part->bind({policy, critic, policy_gradient, critic_gradient, average});
      continue;
    }
    if (command == RankCommand::kNothing) continue;
    GIPO_CHECK(part);
    if (const std::string answer = part->execute(command, in); answers(command)) group.send(0, answer);
  }
}

}  // namespace gipo
