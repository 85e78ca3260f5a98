#include "gipo/vla/torch/vla_parameters.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/core/rank_group.h"

namespace gipo::vla {
namespace {

constexpr std::int64_t kAlign = 8;  // parameters; AdamW's kernel takes as many at a time
constexpr std::int64_t kPiece = std::int64_t{1} << 26;

// Of a gradient, in pieces, so that places fit into 32 bits.
Tensor norm_of(const Tensor& gradient) {
  Tensor squares = at::zeros({}, gradient.options().dtype(at::kFloat));
  for (const Tensor& piece : gradient.split(std::int64_t{1} << 28)) {
    squares.add_(at::linalg_vector_norm(piece, 2, std::nullopt, false, at::kFloat).square_());
  }
  return squares.sqrt_();
}

}  // namespace

void hand_over(const Tensor& t, const std::function<void(std::string_view)>& take) {
  std::vector<Tensor> pieces = t.reshape(-1).split(kPiece);
  std::erase_if(pieces, [](const Tensor& piece) { return piece.numel() == 0; });
  each_on_host(pieces, [&](const Tensor& host) {
    take({static_cast<const char*>(host.const_data_ptr()), host.nbytes()});
  });
}

// Two arrays: of what is trained and of what is not.
Parameters::Parameters(const VlaSetup& setup, at::Device device, at::ScalarType type)
    : device_(device), type_(type), ranks_(setup.ranks) {
  std::array<std::int64_t, 2> size{};
  for (const VlaTensor& t : vla_tensors(setup.config, setup.train.lora)) {
    const bool trained = gipo::is_trained(setup.train, t.part);
    std::int64_t& end = size[trained ? 1 : 0];
    const std::int64_t begin = end;
    places_.push_back({trained ? std::size_t{1} : 0, begin});
    end += (static_cast<std::int64_t>(t.size()) + kAlign - 1) / kAlign * kAlign;
    if (!trained) continue;
    const bool value_head = t.part == VlaPart::kValue;
    if (groups_.empty() || groups_.back().value_head != value_head) groups_.push_back({begin, end, value_head});
    groups_.back().end = end;
  }
  const at::TensorOptions values = at::TensorOptions(device_).dtype(type_);
  frozen_ = at::zeros({size[0]}, values);
  value_ = at::zeros({size[1]}, values);
  share_ = share(rank());
  if (size[1] == 0) return;
  const std::int64_t kept = share_.end - share_.begin;
  gradient_ = at::zeros({size[1]}, values);
  if (type_ == at::kBFloat16) low_ = at::zeros({kept}, values.dtype(at::kShort));
  first_ = at::zeros({kept}, values.dtype(at::kFloat));
  second_ = at::zeros({kept}, values.dtype(at::kFloat));
  if (!setup.average) return;
  GIPO_CHECK(ranks_ == nullptr);
  average_ = at::zeros({size[1]}, values);
  if (type_ == at::kBFloat16) average_low_ = at::zeros({size[1]}, values.dtype(at::kShort));
}

Parameters::Share Parameters::Share::within(std::int64_t first, std::int64_t last) const {
  const std::int64_t from = std::clamp(first, begin, end);
  return {from, std::clamp(last, from, end)};
}

std::pair<Tensor, std::int64_t> Parameters::low_of(std::size_t index, std::int64_t values) const {
  const auto& [flat, begin] = places_[index];
  if (!low_.defined() || flat == 0) return {};
  const Share kept = share_.within(begin, begin + values);
  if (kept.begin == kept.end) return {};
  return {low_.narrow(0, kept.begin - share_.begin, kept.end - kept.begin), kept.begin - begin};
}

void Parameters::clear_low() {
  if (low_.defined()) low_.zero_();
}

void Parameters::begin_average() {
  average_.copy_(value_);
  if (average_low_.defined()) average_low_.zero_();
}

std::array<double, 2> Parameters::norms() {
  return {norm_between(0, head_begin()).item<double>(), norm_between(head_begin(), value_.numel()).item<double>()};
}

double Parameters::step(const VlaStep& step) {
  const std::int64_t all = value_.numel();
  const Tensor norm = norm_between(0, all);
  const Tensor parts[2] = {step.apart ? norm_between(0, head_begin()) : norm,
                           step.apart ? norm_between(head_begin(), all) : norm};
  ++steps_;
  for (const Group& group : groups_) {
    const double rate = group.value_head ? step.value_rate : step.rate, n = static_cast<double>(steps_);
    const auto s = adamw_constants<float>({step.beta1, step.beta2, step.epsilon, step.weight_decay}, rate, 1,
                                          std::pow(step.beta1, n), std::pow(step.beta2, n));
    const auto [begin, end] = share_.within(group.begin, group.end);
    if (begin == end) continue;
    const auto whole = [begin = begin, end = end](const Tensor& t) { return t.narrow(0, begin, end - begin); };
    const auto kept = [&, at = begin - share_.begin, count = end - begin](const Tensor& t) {
      return t.narrow(0, at, count);
    };
    run_adamw(
        {type_ == at::kFloat ? Value::kFloat : Value::kBf16, end - begin, whole(value_).mutable_data_ptr(),
         low_.defined() ? kept(low_).mutable_data_ptr<std::int16_t>() : nullptr, whole(gradient_).const_data_ptr(),
         kept(first_).mutable_data_ptr<float>(), kept(second_).mutable_data_ptr<float>(),
         parts[group.value_head ? 1 : 0].const_data_ptr<float>(), static_cast<float>(step.max_norm), s},
        device_);
  }
  if (ranks_) ranks_->spread_shares(array_of(value_));
  const double size = norm.item<float>();
  if (!std::isfinite(size)) {
    --steps_;
  } else if (average_.defined()) {
    const double decay = 1 - step.average;
    run_average(value_, average_, average_low_, average_step(decay, std::pow(decay, static_cast<double>(steps_ + 1))));
  }
  return size;
}

// Ranks add the gradient up first, each its share.
Tensor Parameters::norm_between(std::int64_t begin, std::int64_t end) {
  if (ranks_ && !std::exchange(summed_, true)) {
    const RankArray all = array_of(gradient_);
    ranks_->sum_shares(all, static_cast<char*>(all.data) + share_.begin * gradient_.element_size());
  }
  const Share ours = share_.within(begin, end);
  Tensor norm = norm_of(gradient_.narrow(0, ours.begin, ours.end - ours.begin));
  if (!ranks_) return norm;
  double squares = std::pow(norm.item<double>(), 2);
  ranks_->sum({&squares, 1});
  return norm.fill_(std::sqrt(squares));
}

std::vector<Tensor> Parameters::states() const {
  std::vector<Tensor> all = {low_, first_, second_, average_, average_low_};
  std::erase_if(all, [](const Tensor& t) { return !t.defined(); });
  return all;
}

std::size_t Parameters::state_bytes() const {
  std::size_t each = 0;
  for (const Tensor& t : states()) each += t.element_size();
  return sizeof steps_ + each * static_cast<std::size_t>(value_.numel());
}

void Parameters::save_state(const std::function<void(std::string_view)>& take) const {
  if (rank() == 0) take({reinterpret_cast<const char*>(&steps_), sizeof steps_});
  for (const Tensor& t : states()) {
    if (rank() > 0) {
      hand_over(t, [&](std::string_view piece) { ranks_->send(0, piece); });
      continue;
    }
    hand_over(t, take);
    each_piece_of_others([&](int r, std::int64_t) { take(ranks_->receive(r)); });
  }
}

void Parameters::load_state(const std::function<void(char*, std::size_t)>& give) {
  if (rank() == 0) give(reinterpret_cast<char*>(&steps_), sizeof steps_);
  if (ranks_) {
    ranks_->spread_first(array_of(value_));
    double steps = rank() == 0 ? static_cast<double>(steps_) : 0;
    ranks_->sum({&steps, 1});
    steps_ = static_cast<std::int64_t>(steps);
  }
  for (const Tensor& t : states()) {
    const Tensor room =
        at::empty({std::min(kPiece, t.numel())}, at::TensorOptions(t.scalar_type()).pinned_memory(device_.is_cuda()));
    for (const Tensor& piece : t.split(kPiece)) {
      if (piece.numel() == 0) continue;
      const Tensor host = room.narrow(0, 0, piece.numel());
      auto* const bytes = static_cast<char*>(host.mutable_data_ptr());
      if (rank() == 0) {
        give(bytes, host.nbytes());
      } else {
        const std::string given = ranks_->receive(0);
        GIPO_CHECK(given.size() == host.nbytes());
        std::ranges::copy(given, bytes);
      }
      piece.copy_(host);
    }
    if (rank() > 0) continue;
    std::string bytes;
    each_piece_of_others([&](int r, std::int64_t values) {
      bytes.resize(static_cast<std::size_t>(values) * t.element_size());
      give(bytes.data(), bytes.size());
      ranks_->send(r, bytes);
    });
  }
}

int Parameters::rank() const { return ranks_ ? ranks_->rank() : 0; }

Parameters::Share Parameters::share(int rank) const {
  const auto [begin, end] = share_of(static_cast<std::size_t>(value_.numel()), rank, ranks_ ? ranks_->size() : 1);
  return {static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)};
}

RankArray Parameters::array_of(const Tensor& t) const {
  return {t.mutable_data_ptr(), static_cast<std::size_t>(t.numel()), type_ == at::kBFloat16};
}

// As save_state sends them.
void Parameters::each_piece_of_others(const std::function<void(int rank, std::int64_t values)>& f) const {
  for (int r = 1; ranks_ && r < ranks_->size(); ++r) {
    const Share s = share(r);
    for (std::int64_t at = s.begin; at < s.end; at += kPiece) f(r, std::min(kPiece, s.end - at));
  }
}

}  // namespace gipo::vla
