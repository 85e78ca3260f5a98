#include "gipo/clone/demonstrations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/data/encode.h"
#include "gipo/io/checksum.h"

namespace gipo {
namespace {

constexpr std::size_t kMomentRows = 256;  // encoded at a time
constexpr double kRounding = 1e-4;        // of a range: how far outside it an action may be that was rounded

TensorType tensor_type_of(DType type) {
  switch (type) {
    case DType::kUint8:
      return TensorType::kU8;
    case DType::kInt32:
    case DType::kInt64:
      return TensorType::kI64;
    case DType::kFloat32:
      return TensorType::kF32;
    case DType::kFloat64:
      break;
  }
  return TensorType::kF64;
}

std::size_t values_in_row(const Shape& shape) {
  return std::accumulate(shape.begin() + 1, shape.end(), std::uint64_t{1}, std::multiplies<>());
}

// All of a tensor, wherever its bytes begin.
template <class T>
std::vector<T> copied(std::string_view bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

// The action of the task as the policy gives it: what to_env_action undoes. NaN where it is none of the task's.
float policy_action(const ModelSpec& model, std::size_t dim, double value) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  if (!model.action.continuous(dim)) {
    const bool known =
        value == std::floor(value) && value >= 0 && value < static_cast<double>(model.action.choices[dim]);
    return known ? static_cast<float>(value) : kNone;
  }
  const double low = model.action.low[dim], high = model.action.high[dim];
  if (!std::isfinite(value)) return kNone;
  if (!std::isfinite(low) || !std::isfinite(high)) {
    return value >= low && value <= high ? static_cast<float>(value) : kNone;
  }
  const double range = high - low;
  if (value < low - kRounding * range || value > high + kRounding * range) return kNone;
  const double share = std::clamp((value - low) / range, 0.0, 1.0);
  const std::int64_t bins = model.distribution.choices[dim];
  return static_cast<float>(bins > 0 ? std::round(share * static_cast<double>(bins - 1)) : 2 * share - 1);
}

std::string in_words(const ActionSpace& action, std::size_t dim) {
  if (!action.continuous(dim)) return fmt::format("a choice from 0 to {}", action.choices[dim] - 1);
  return fmt::format("a number from {} to {}", action.low[dim], action.high[dim]);
}

}  // namespace

Demonstrations::Demonstrations(const std::string& path, const DemonstrationUse& use)
    : use_(use), file_(std::make_unique<MappedTensors>(path)) {
  read_episodes();
  read_actions();
  read_rewards();
  read_fields();
  hold_out();
  for (const auto& [name, entry] : file_->entries()) {
    fingerprint_ = crc32c(file_->bytes(entry), crc32c(name, fingerprint_));
  }
}

void Demonstrations::refuse(const std::string& why) const { throw Error(fmt::format("{}: {}", file_->path(), why)); }

const SafeTensors::Entry& Demonstrations::find(const std::string& name) const {
  const auto it = file_->entries().find(name);
  if (it != file_->entries().end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [known, entry] : file_->entries()) names.push_back(known);
  refuse(fmt::format("it has no tensor {}; it has {}", name, fmt::join(names, ", ")));
}

void Demonstrations::read_episodes() {
  const SafeTensors::Entry& entry = find("episode_ends");
  if (entry.type != TensorType::kI64 || entry.shape.size() != 1 || entry.shape[0] == 0) {
    refuse("episode_ends is not accepted: wanted a row of I64, one number or more");
  }
  std::size_t before = 0;
  for (const std::int64_t end : copied<std::int64_t>(file_->bytes(entry))) {
    if (end <= static_cast<std::int64_t>(before) || end > std::int64_t{1} << 40) {
      refuse(fmt::format("episode_ends holds {} after {}: wanted growing numbers of steps", end, before));
    }
    episode_.resize(static_cast<std::size_t>(end), ends_.size());
    ends_.push_back(before = static_cast<std::size_t>(end));
  }
  steps_ = before;
}

// One row of the file is an action of one step; the task's is `chunk` of these.
void Demonstrations::read_actions() {
  const SafeTensors::Entry& entry = find("action");
  const std::size_t dims = use_.model.action.dims();
  if (entry.type != TensorType::kF32 || entry.shape.size() != 2 || entry.shape[0] != steps_ || entry.shape[1] == 0 ||
      dims % entry.shape[1] != 0) {
    refuse(fmt::format("action is {} [{}]: wanted F32 [{}, {}], or a part of {} of which the task takes several",
                       name_of(entry.type), fmt::join(entry.shape, ", "), steps_, dims, dims));
  }
  action_size_ = entry.shape[1];
  chunk_ = dims / action_size_;
  const std::vector<float> given = copied<float>(file_->bytes(entry));
  action_.resize(steps_ * dims);
  for (std::size_t step = 0; step < steps_; ++step) {
    for (std::size_t d = 0; d < dims; ++d) {
      const float value = given[step * action_size_ + d % action_size_];
      const float action = policy_action(use_.model, d, value);
      if (std::isnan(action)) {
        refuse(fmt::format(
            "the action of episode {}, step {} has {} at place {}, which is no action of the task: wanted {}",
            episode_[step], step - first_step(step), value, d % action_size_, in_words(use_.model.action, d)));
      }
      action_[step * dims + d] = action;
    }
  }
}

// What followed each step, as an actor that acts once in a chunk would discount it.
void Demonstrations::read_rewards() {
  target_.resize(steps_);
  if (!file_->entries().contains("reward")) return;
  const SafeTensors::Entry& entry = find("reward");
  if (entry.type != TensorType::kF32 || entry.shape != Shape{steps_}) {
    refuse(
        fmt::format("reward is {} [{}]: wanted F32 [{}]", name_of(entry.type), fmt::join(entry.shape, ", "), steps_));
  }
  const std::vector<float> reward = copied<float>(file_->bytes(entry));
  for (std::size_t step = steps_; step-- > 0;) {
    if (!std::isfinite(reward[step])) {
      refuse(fmt::format("the reward of episode {}, step {} is not a finite number", episode_[step],
                         step - first_step(step)));
    }
    const std::size_t end = ends_[episode_[step]], after = step + chunk_;
    double sum = 0;
    for (std::size_t k = step; k < std::min(after, end); ++k) sum += use_.reward_scale * reward[k];
    target_[step] = static_cast<float>(sum + (after < end ? use_.discount * target_[after] : 0));
  }
}

Demonstrations::Rows Demonstrations::read_field(const Field& field, const std::string& name) const {
  const SafeTensors::Entry& entry = find(name);
  const TensorType wanted = tensor_type_of(field.dtype);
  if (entry.type != wanted || entry.shape.empty() || entry.shape[0] != steps_ ||
      values_in_row(entry.shape) != field.values()) {
    refuse(fmt::format("{} is {} [{}]: wanted {} [{}{}{}]", name, name_of(entry.type), fmt::join(entry.shape, ", "),
                       name_of(wanted), steps_, field.shape.empty() ? "" : ", ", fmt::join(field.shape, ", ")));
  }
  const std::string_view bytes = file_->bytes(entry);
  Rows rows{reinterpret_cast<const std::byte*>(bytes.data()), field.bytes()};
  if (field.dtype == DType::kInt32) {
    std::vector<std::int32_t> narrow;
    for (const std::int64_t v : copied<std::int64_t>(bytes)) {
      if (v != static_cast<std::int32_t>(v)) refuse(fmt::format("{} holds {}: wanted a number of 32 bits", name, v));
      narrow.push_back(static_cast<std::int32_t>(v));
    }
    const std::span all = std::as_bytes(std::span(narrow));
    rows.own.assign(all.begin(), all.end());
  } else if (reinterpret_cast<std::uintptr_t>(rows.data) % size_of(field.dtype) != 0) {
    rows.own.assign(rows.data, rows.data + bytes.size());
  }
  if (!rows.own.empty()) rows.data = rows.own.data();
  return rows;
}

void Demonstrations::read_fields() {
  const TransitionLayout layout(use_.transition);
  for (std::size_t f = 0; f < use_.model.fields.size(); ++f) {
    const Field field = use_.model.fields[f].frame();
    const std::string name = "obs/" + field.name;
    // Without a mask every action is taken to be valid.
    if (field.role == Role::kMask && !file_->entries().contains(name)) {
      fields_.push_back({});
      continue;
    }
    fields_.push_back(read_field(field, name));
    layout.refuse_impossible(f, {fields_.back().data, steps_ * fields_.back().bytes}, file_->path().c_str());
  }
}

void Demonstrations::hold_out() {
  const double share = use_.options.holdout;
  const std::size_t count = episodes();
  if (share > 0)
    held_out_episodes_ =
        std::max<std::size_t>(1, static_cast<std::size_t>(std::round(share * static_cast<double>(count))));
  if (held_out_episodes_ >= count) {
    refuse(fmt::format("clone.holdout = {} is not accepted: of {} episodes none would be left to learn from", share,
                       count));
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  RandomStream random = RandomStream::derive(use_.seed, "holdout");
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  std::vector<bool> held(count);
  for (std::size_t i = 0; i < held_out_episodes_; ++i) held[order[i]] = true;
  for (std::size_t step = 0; step < steps_; ++step) (held[episode_[step]] ? held_out_ : learned_).push_back(step);
}

void Demonstrations::sample(std::int64_t update, Batch& batch) const {
  RandomStream random = RandomStream::derive(use_.seed, "demonstrations", static_cast<std::uint64_t>(update));
  std::vector<std::size_t> steps(batch.size);
  for (std::size_t& step : steps) step = learned_[random.below(learned_.size())];
  fill(steps, update, batch);
}

void Demonstrations::fill(std::span<const std::size_t> steps, std::int64_t version, Batch& batch) const {
  GIPO_CHECK(steps.size() <= batch.size && batch.action_dims() == use_.model.action.dims());
  const std::size_t dims = batch.action_dims();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::size_t step = steps[i], first = first_step(step), last = last_step(step);
    for (std::size_t f = 0; f < fields_.size(); ++f) {
      std::byte* out = batch.table().row(f, i);
      if (!fields_[f].data) {
        std::memset(out, 1, batch.table().row_bytes(f));
        continue;
      }
      // Frames of before the episode are its first.
      const auto frames = static_cast<std::size_t>(use_.model.fields[f].stack);
      for (std::size_t k = 0; k < frames; ++k, out += fields_[f].bytes) {
        const std::size_t back = frames - 1 - k, from = step - first < back ? first : step - back;
        std::memcpy(out, fields_[f].data + from * fields_[f].bytes, fields_[f].bytes);
      }
    }
    for (std::size_t k = 0; k < chunk_; ++k) {
      const std::size_t from = std::min(step + k, last), place = k * action_size_;
      std::copy_n(action_.data() + from * dims + place, action_size_, batch.action().data() + i * dims + place);
    }
    batch.advantage()[i] = 1;
    batch.target()[i] = target_[step];
    batch.version()[i] = version;
  }
  batch.stretches.clear();
}

RunningMoments Demonstrations::moments() const {
  const std::size_t width = use_.model.observation_size;
  RunningMoments moments(width);
  if (width == 0) return moments;
  Batch batch(kMomentRows, use_.transition);
  std::vector<const std::byte*> columns(use_.model.fields.size());
  std::vector<float> floats(kMomentRows * width);
  for (std::size_t at = 0; at < learned_.size(); at += kMomentRows) {
    const std::size_t n = std::min(kMomentRows, learned_.size() - at);
    fill(learned().subspan(at, n), 0, batch);
    std::as_const(batch).locate_observation(0, columns);
    encode(use_.model.fields, columns, n, floats.data());
    moments.add(ColumnSums(width, std::span<const float>(floats).first(n * width)));
  }
  return moments;
}

}  // namespace gipo
