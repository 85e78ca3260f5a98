#include "gipo/data/encode.h"

#include <algorithm>
#include <cstdint>

#include "gipo/core/error.h"

namespace gipo {
namespace {

constexpr float kWhite = 255;  // of an image

std::size_t width(const Fields& fields, Role role) {
  std::size_t sum = 0;
  for (const Field& f : fields) sum += f.role == role ? f.floats() : 0;
  return sum;
}

// Of some observations, `stride` floats apart, floats [first, first + width).
struct Part {
  std::size_t n, first, width;
  float* out;
  std::size_t stride;
};

template <class T>
void one_hot(const Field& field, const T* values, const Part& part) {
  for (std::size_t i = 0; i < part.n; ++i) std::fill_n(part.out + i * part.stride, part.width, 0.0F);
  std::size_t zero = 0;  // the float of choice 0
  for (std::size_t c = 0; c < field.choices.size(); ++c) {
    const auto count = static_cast<std::size_t>(field.choices[c]);
    const bool seen = zero < part.first + part.width && part.first < zero + count;
    for (std::size_t i = 0; seen && i < part.n; ++i) {
      const auto value = static_cast<std::int64_t>(values[i * field.choices.size() + c]);
      GIPO_CHECK(value >= 0 && value < field.choices[c]);
      const std::size_t place = zero + static_cast<std::size_t>(value);
      if (place >= part.first && place < part.first + part.width) part.out[i * part.stride + place - part.first] = 1;
    }
    zero += count;
  }
}

template <class T>
void encode_values(const Field& field, const std::byte* column, const Part& part) {
  const auto* values = reinterpret_cast<const T*>(column);
  if (!field.choices.empty()) return one_hot(field, values, part);
  const bool image = field.image();
  const std::size_t count = field.values();
  float* out = part.out;
  values += part.first;
  for (std::size_t i = 0; i < part.n; ++i, values += count, out += part.stride) {
    if (image) {
      std::transform(values, values + part.width, out, [](T v) { return static_cast<float>(v) / kWhite; });
    } else {
      std::transform(values, values + part.width, out, [](T v) { return static_cast<float>(v); });
    }
  }
}

}  // namespace

std::size_t policy_width(const Fields& fields) { return width(fields, Role::kPolicy); }
std::size_t critic_width(const Fields& fields) { return width(fields, Role::kCritic); }

void encode_part(const Field& field, const std::byte* column, std::size_t n, std::size_t first, std::size_t width,
                 float* out, std::size_t stride) {
  const Part part{n, first, width, out, stride};
  switch (field.dtype) {
    case DType::kUint8:
      return encode_values<std::uint8_t>(field, column, part);
    case DType::kInt32:
      return encode_values<std::int32_t>(field, column, part);
    case DType::kInt64:
      return encode_values<std::int64_t>(field, column, part);
    case DType::kFloat32:
      return encode_values<float>(field, column, part);
    case DType::kFloat64:
      return encode_values<double>(field, column, part);
  }
}

void encode(const Fields& fields, Role role, FieldColumns columns, std::size_t n, float* out, std::size_t stride) {
  GIPO_CHECK(columns.size() == fields.size() && role != Role::kMask);
  for (std::size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].role != role || fields[f].raw) continue;
    const std::size_t floats = fields[f].floats();
    encode_part(fields[f], columns[f], n, 0, floats, out, stride);
    out += floats;
  }
}

void encode(const Fields& fields, FieldColumns columns, std::size_t n, float* out) {
  const std::size_t policy = policy_width(fields), stride = policy + critic_width(fields);
  encode(fields, Role::kPolicy, columns, n, out, stride);
  encode(fields, Role::kCritic, columns, n, out + policy, stride);
}

std::size_t mask_field(const Fields& fields) {
  const auto it = std::ranges::find(fields, Role::kMask, &Field::role);
  return static_cast<std::size_t>(it - fields.begin());
}

}  // namespace gipo
