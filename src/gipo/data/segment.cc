#include "gipo/data/segment.h"

#include <algorithm>

#include "gipo/core/error.h"
#include "gipo/core/finite.h"
#include "gipo/data/encode.h"
#include "gipo/io/bytes.h"

namespace gipo {
namespace {

// A cache line of an image's row.
constexpr std::size_t kColumnsAtOnce = 64;

std::size_t columns_at_once(const TransitionSpec& spec) {
  return is_plain(spec.observation) ? 0 : std::min(kColumnsAtOnce, floats_of(spec.observation));
}

}  // namespace

Segment::Segment(std::size_t capacity, const TransitionSpec& spec)
    : Transitions(spec, rows_of_segment(capacity, spec.context())),
      discounted(capacity),
      value(capacity + 1),
      observation_sums(floats_of(spec.observation)),
      discounted_sums(1),
      some_columns_(capacity * columns_at_once(spec)) {}

double Segment::bytes_needed(std::size_t capacity, const TransitionSpec& spec) {
  constexpr double kDiscountedAndValue = 2 * sizeof(float), kSums = 3 * sizeof(double);
  const auto some_columns = static_cast<double>(columns_at_once(spec) * sizeof(float));
  const auto observation = static_cast<double>(floats_of(spec.observation));
  return Table::bytes_needed(columns(spec), rows_of_segment(capacity, spec.context())) +
         static_cast<double>(capacity + 1) * kDiscountedAndValue + static_cast<double>(capacity) * some_columns +
         observation * kSums + static_cast<double>(sizeof(Segment));
}

void Segment::sum_observations() {
  if (observation_size() > 0) return observation_sums.set(observation().first(length * observation_size()));
  std::size_t column = 0;
  for (const Role role : {Role::kPolicy, Role::kCritic}) {
    for (std::size_t f = 0; f < layout().spec.observation.size(); ++f) {
      if (layout().spec.observation[f].role != role) continue;
      sum_field(f, column);
      column += layout().spec.observation[f].floats();
    }
  }
}

// A sum goes down one column, so that a few columns at a time give the same as all of them. All would take a multiple of
// the segment: four times an image, and more of a choice among many.
void Segment::sum_field(std::size_t field, std::size_t column) {
  const Field& f = layout().spec.observation[field];
  for (std::size_t at = 0, width; at < f.floats(); at += width) {
    width = std::min(kColumnsAtOnce, f.floats() - at);
    const std::span floats = std::span(some_columns_).first(length * width);
    encode_part(f, table().row(field, 0), length, at, width, floats.data(), width);
    observation_sums.set(floats, column + at, width);
  }
}

std::span<std::byte> Segment::filled(std::size_t column) {
  const std::size_t rows = rows_of_segment(length, context).of(layout().columns[column].rows);
  return {table().row(column, 0), rows * table().row_bytes(column)};
}

std::span<const std::byte> Segment::filled(std::size_t column) const {
  const std::size_t rows = rows_of_segment(length, context).of(layout().columns[column].rows);
  return {table().row(column, 0), rows * table().row_bytes(column)};
}

bool Segment::finite() const {
  for (std::size_t c = 0; c < layout().columns.size(); ++c) {
    if (!gipo::finite(layout().columns[c].dtype, filled(c))) return false;
  }
  return all_finite(std::span(discounted).first(length)) && all_finite(std::span(value).first(length + 1));
}

void Segment::save(ByteWriter& out) const {
  out.value(actor);
  out.value(incarnation);
  out.value(sequence);
  out.value<std::uint64_t>(length);
  out.value<std::uint8_t>(terminated);
  out.value<std::uint8_t>(truncated);
  out.value(first_env_step);
  out.value(env_step_stride);
  for (std::size_t c = 0; c < layout().columns.size(); ++c) out.append(filled(c));
  out.append(std::as_bytes(std::span(discounted).first(length)));
}

void Segment::load(ByteReader& in) {
  actor = in.value<std::uint64_t>();
  incarnation = in.value<std::uint64_t>();
  sequence = in.value<std::uint64_t>();
  const auto steps = in.value<std::uint64_t>();
  if (steps > capacity()) throw Error("saved segment is longer than the longest: " + std::to_string(steps));
  length = static_cast<std::size_t>(steps);
  terminated = in.value<std::uint8_t>() != 0;
  truncated = in.value<std::uint8_t>() != 0;
  first_env_step = in.value<double>();
  env_step_stride = in.value<double>();
  for (std::size_t c = 0; c < layout().columns.size(); ++c) {
    in.bytes_into(filled(c));
    // An observation before the first step, or one that the actor rejects later, may be anything else.
    if (c == layout().version) layout().refuse_impossible(c, filled(c), "saved segment");
  }
  in.bytes_into(std::as_writable_bytes(std::span(discounted).first(length)));
}

}  // namespace gipo
