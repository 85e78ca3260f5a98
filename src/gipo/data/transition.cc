#include "gipo/data/transition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/core/finite.h"
#include "gipo/io/bytes.h"
#include "gipo/io/checksum.h"

namespace gipo {
namespace {

using Rows = Column::Rows;

// Beyond this no run comes; the learner takes differences.
constexpr std::int64_t kMostVersion = std::int64_t{1} << 62;

template <class T>
std::span<const T> as(std::span<const std::byte> rows) {
  return {reinterpret_cast<const T*>(rows.data()), rows.size() / sizeof(T)};
}

// Value i is one of choices[i % n], counted from 0; where that is 0, any number is.
template <class T>
bool all_choices(std::span<const std::int64_t> choices, std::span<const T> values) {
  if (choices.empty()) return true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t n = choices[i % choices.size()];
    if (n == 0) continue;
    const auto v = static_cast<double>(values[i]);
    if (!(v >= 0 && v < static_cast<double>(n)) || v != std::floor(v)) return false;
  }
  return true;
}

bool all_choices(DType dtype, std::span<const std::int64_t> choices, std::span<const std::byte> rows) {
  switch (dtype) {
    case DType::kUint8:
      return all_choices(choices, as<std::uint8_t>(rows));
    case DType::kInt32:
      return all_choices(choices, as<std::int32_t>(rows));
    case DType::kInt64:
      return all_choices(choices, as<std::int64_t>(rows));
    case DType::kFloat32:
      return all_choices(choices, as<float>(rows));
    case DType::kFloat64:
      return all_choices(choices, as<double>(rows));
  }
  GIPO_NOT_REACHED();
}

std::uint32_t fingerprint_of(const Columns& columns) {
  ByteWriter out;
  for (const Column& c : columns) {
    out.text(c.name);
    out.text(name_of(c.dtype));
    out.value<std::uint64_t>(c.width);
    out.value(static_cast<std::uint8_t>(c.rows));
  }
  return crc32c(out.bytes());
}

}  // namespace

TransitionSpec plain_transition(std::size_t observation_size, std::size_t action_dims, bool stored) {
  return {plain_fields(observation_size), action_dims, stored};
}

bool TransitionSpec::stacked() const {
  return std::ranges::any_of(observation, [](const Field& f) { return f.stack > 1; });
}

std::size_t TransitionSpec::context() const {
  std::int64_t frames = 1;
  for (const Field& f : observation) frames = std::max(frames, f.stack);
  return burn_in + static_cast<std::size_t>(frames - 1);
}

Columns columns(const TransitionSpec& spec, Frames frames) {
  Columns list;
  for (const Field& f : spec.observation) {
    list.push_back(column_of(frames == Frames::kOne ? f.frame() : f, Rows::kStepsAndFinal));
  }
  list.push_back({"action", DType::kFloat32, spec.action_dims});
  list.push_back({"log_prob", DType::kFloat32, spec.action_dims});
  list.push_back({"reward", DType::kFloat32, 1});
  if (spec.stored) {
    list.push_back({"advantage", DType::kFloat32, 1});
    list.push_back({"target", DType::kFloat32, 1});
  }
  list.push_back({"version", DType::kInt64, 1});
  if (spec.state_size > 0) list.push_back({"state", DType::kFloat32, spec.state_size, Rows::kStart});
  return list;
}

TransitionLayout::TransitionLayout(const TransitionSpec& s, Frames frames)
    : spec(s), columns(gipo::columns(s, frames)) {
  for (const Column& c : columns) row_bytes.push_back(c.row_bytes());
  // Behind the fields, whose names are the task's.
  const auto find = [&](const char* name) {
    const auto own = columns.begin() + static_cast<std::ptrdiff_t>(spec.observation.size());
    const auto found = std::find_if(own, columns.end(), [&](const Column& c) { return c.name == name; });
    return found == columns.end() ? kNone : static_cast<std::size_t>(found - columns.begin());
  };
  action = find("action");
  log_prob = find("log_prob");
  reward = find("reward");
  advantage = find("advantage");
  target = find("target");
  version = find("version");
  state = find("state");
  fingerprint = fingerprint_of(gipo::columns(s));
}

std::size_t TransitionLayout::step_bytes() const {
  std::size_t bytes = 0;
  for (const Column& c : columns) bytes += c.rows == Rows::kStart ? 0 : c.row_bytes();
  return bytes;
}

std::size_t TransitionLayout::start_bytes() const {
  std::size_t bytes = 0;
  for (const Column& c : columns) bytes += c.rows == Rows::kStart ? c.row_bytes() : 0;
  return bytes;
}

bool finite(DType dtype, std::span<const std::byte> rows) {
  if (dtype == DType::kFloat32) return all_finite(as<float>(rows));
  if (dtype == DType::kFloat64) return all_finite_floats(as<double>(rows));
  return true;
}

void TransitionLayout::refuse_impossible(std::size_t column, std::span<const std::byte> rows, const char* whose) const {
  const auto refuse = [&](const char* why) {
    throw Error(fmt::format("{} has a number that no step has: {}: {}", whose, columns[column].name, why));
  };
  if (!finite(columns[column].dtype, rows)) refuse("one that is not finite");
  const DType dtype = columns[column].dtype;
  if (column < spec.observation.size() && !all_choices(dtype, spec.observation[column].choices, rows)) {
    refuse("one that is none of the field's choices");
  }
  if (column == action && !all_choices(dtype, spec.choices, rows)) refuse("one that is no action of the task");
  if (column == version) {
    const auto versions = as<std::int64_t>(rows);
    if (!std::all_of(versions.begin(), versions.end(), [](auto v) { return v >= 0 && v <= kMostVersion; })) {
      refuse("one that is no version of a policy");
    }
  }
}

bool possible_choices(std::span<const std::int64_t> choices, std::span<const float> actions) {
  return all_finite(actions) && all_choices(choices, actions);
}

}  // namespace gipo
