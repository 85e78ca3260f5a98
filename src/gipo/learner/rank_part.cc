#include "gipo/learner/rank_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "gipo/io/bytes.h"
#include "gipo/policy/own_parameters.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {
namespace {

std::string bytes_of_floats(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

void refuse_ranks(std::int64_t ranks) {
  if (ranks == 1) return;
  throw Error(fmt::format(
      "learner.ranks = {} needs several processes: `gipo train`, `learn` and `resume` start them, and so does torchrun",
      ranks));
}

void refuse_missing_devices(std::int64_t ranks, std::size_t devices) {
  const auto there = static_cast<std::int64_t>(devices);
  if (ranks <= there || (there > 0 && std::getenv("GIPO_RANKS_SHARE_DEVICES"))) return;
  throw Error(fmt::format(
      "learner.ranks: {} on one machine with {} CUDA device{}, and learner.device = \"cuda\": wanted one for each rank",
      ranks, there, there == 1 ? "" : "s"));
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
    case RankCommand::kFindGradients:
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
    out.value(setup.on_devices);
    out.value(setup.bf16);
    out.value(setup.tf32);
    out.text(weights_to_safetensors(setup.model, empty_weights(setup.model), env_id));
  });
}

RankSetup rank_setup(ByteReader& in) {
  RankSetup setup;
  setup.batch_size = in.value<std::uint64_t>();
  setup.keeps_average = in.value<bool>();
  setup.looks_at_average = in.value<bool>();
  setup.on_devices = in.value<bool>();
  setup.bf16 = in.value<bool>();
  setup.tf32 = in.value<bool>();
  setup.model = policy_from_safetensors(in.text(), "rank 0").model;
  return setup;
}

RankPart::RankPart(RankGroup& group, const RankSetup& setup) : group_(group), dims_(setup.model.distribution.dims()) {
  if (setup.on_devices) group.use_devices();
  memory_ = setup.on_devices ? make_device_memory(group.device(), setup.tf32) : make_host_memory();
  const ModelSpec& model = setup.model;
  // Rows can be divided anywhere; of a policy with memory, between sequences alone.
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t share = model.has_memory() ? setup.batch_size : (setup.batch_size + ranks - 1) / ranks;
  PolicyRoom room{2 * share, share, true, group.device(), setup.bf16, setup.tf32, &group};
  net_ = make_torch_policy(model, room);
  room.rows = share, room.critic = false;
  if (setup.looks_at_average) average_ = make_torch_policy(model, room);
  const std::size_t policy = parameter_count(model, Part::kPolicy), critic = parameter_count(model, Part::kCritic);
  for (const int part : {0, 1}) {
    Share& s = shares_[part];
    std::tie(s.begin, s.end) = share_of(part == 0 ? policy : critic, group.rank(), group.size());
    for (auto* v : {&s.gradient, &s.first, &s.second}) *v = memory_->make(s.end - s.begin);
  }
  if (group.rank() > 0 || setup.on_devices) {
    arrays_ = {memory_->make(policy), memory_->make(critic), memory_->make(policy), memory_->make(critic),
               memory_->make(setup.keeps_average ? policy : 0)};
  }
  columns_.resize(model.fields.size());
  column_at_.resize(model.fields.size());
}

void RankPart::bind(const RankArrays& learners) { (group_.device() == "cpu" ? arrays_ : learners_) = learners; }

std::string RankPart::execute(RankCommand command, ByteReader& in) {
  Share* share = nullptr;
  switch (command) {
    case RankCommand::kNothing:
    case RankCommand::kEnd:
    case RankCommand::kSetUp:
      return {};
    case RankCommand::kParameters:
      take_parameters();
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
      return read(shares_[in.value<std::uint8_t>()].gradient);
    case RankCommand::kReadMoments:
    case RankCommand::kWriteMoments: {
      const std::span<float> all = moments(in, share);
      const auto first = in.value<std::uint64_t>(), last = in.value<std::uint64_t>();
      const std::size_t begin = std::clamp<std::size_t>(first, share->begin, share->end),
                        end = std::clamp<std::size_t>(last, begin, share->end);
      const std::span<float> ours = all.subspan(begin - share->begin, end - begin);
      if (command == RankCommand::kReadMoments) return read(ours);
      if (ours.empty()) return {};
      const std::vector<float> given = in.array<float>();
      memory_->write(std::span(given).subspan(begin - first, ours.size()), ours);
      return {};
    }
    case RankCommand::kMakeModel: {
      RandomStream random;
      random.load(in);
      net_->initialise(Part::kPolicy, {}, random);
      return {};
    }
    case RankCommand::kFindGradients: {
      const std::array<double, 2> norms = net_->own()->find_gradients();
      return bytes_of([&](ByteWriter& out) { out.value(norms); });
    }
    case RankCommand::kStepModel:
      net_->own()->step(in.value<OwnStep>());
      return {};
    case RankCommand::kSaveModel:
      net_->own()->save({});
      return {};
    case RankCommand::kLoadModel:
      net_->own()->load({});
      return {};
  }
  GIPO_NOT_REACHED();
}

Policy<float>& RankPart::net(ByteReader& in) { return in.value<bool>() ? *average_ : *net_; }

std::string RankPart::read(std::span<const float> there) const {
  std::string bytes(there.size_bytes(), '\0');
  memory_->read(there, {reinterpret_cast<float*>(bytes.data()), there.size()});
  return bytes;
}

std::span<float> RankPart::moments(ByteReader& in, Share*& share) {
  share = &shares_[in.value<std::uint8_t>()];
  return in.value<std::uint8_t>() == 0 ? share->first : share->second;
}

void RankPart::take_parameters() {
  for (const auto& [ours, learners] : {std::pair(arrays_.policy, learners_.policy),
                                       {arrays_.critic, learners_.critic},
                                       {arrays_.average, learners_.average}}) {
    if (!learners.empty()) memory_->write(learners, ours);
    group_.spread_first({ours.data(), ours.size()});
  }
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
  memory_->clear(arrays_.policy_gradient);
  if (steps_ > 0) net_->policy_gradient(actions_.data(), loss, arrays_.policy_gradient);
  return sum_gradient(0);
}

std::string RankPart::values() {
  return bytes_of_floats(steps_ > 0 ? std::span<const float>(net_->values(), rows_) : std::span<const float>());
}

std::string RankPart::value_gradient(ByteReader& in) {
  const std::vector<float> d_values = in.array<float>();
  memory_->clear(arrays_.critic_gradient);
  if (steps_ > 0) net_->value_gradient(d_values.data(), steps_, arrays_.critic_gradient);
  return sum_gradient(1);
}

std::string RankPart::sum_gradient(int part) {
  const std::span<float> all = gradient(part), sum = shares_[part].gradient;
  group_.sum_shares({all.data(), all.size()}, sum.data());
  const double squares = memory_->sum_of_squares(sum);
  return bytes_of([&](ByteWriter& out) { out.value(squares); });
}

void RankPart::step(ByteReader& in) {
  const int part = in.value<std::uint8_t>();
  const auto constants = in.value<AdamWStep<float>>();
  const auto towards = in.value<float>();  // of the average
  const Share& s = shares_[part];
  const std::span<float> all = parameters(part), learners = part == 0 ? learners_.policy : learners_.critic;
  memory_->adamw(constants, s.gradient, all.subspan(s.begin, s.end - s.begin), s.first, s.second);
  group_.spread_shares({all.data(), all.size()});
  if (part == 0) {
    net_->constrain(all);
    memory_->move_average(arrays_.average, all, towards);
    if (!learners_.average.empty()) memory_->read(arrays_.average, learners_.average);
  }
  if (!learners.empty()) memory_->read(all, learners);
}

void serve_rank(RankGroup& group) {
  std::unique_ptr<RankPart> part;
  while (true) {
    const std::string message = group.receive(0);
    ByteReader in(message);
    const auto command = in.value<RankCommand>();
    if (command == RankCommand::kEnd) return;
    if (command == RankCommand::kSetUp) {
      part = std::make_unique<RankPart>(group, rank_setup(in));
      continue;
    }
    if (command == RankCommand::kNothing) continue;
    GIPO_CHECK(part);
    if (const std::string answer = part->execute(command, in); answers(command)) group.send(0, answer);
  }
}

}  // namespace gipo
