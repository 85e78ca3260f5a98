#include "gipo/data/encode.h"

#include <algorithm>

#include "gipo/core/error.h"

namespace gipo {
namespace {

constexpr float kWhite = 255;  // of an image

std::size_t width(const Fields& fields, Role role) {
  std::size_t sum = 0;
  for (const Field& f : fields) sum += f.role == role ? f.floats() : 0;
  return sum;
}

template <class T>
void one_hot(const Field& field, const T* values, std::size_t n, float* out, std::size_t stride) {
  const std::size_t floats = field.floats();
  for (std::size_t i = 0; i < n; ++i, values += field.choices.size(), out += stride) {
    std::fill_n(out, floats, 0.0F);
    float* first = out;
    for (std::size_t c = 0; c < field.choices.size(); ++c) {
      const auto value = static_cast<std::int64_t>(values[c]);
      GIPO_CHECK(value >= 0 && value < field.choices[c]);
      first[value] = 1;
      first += field.choices[c];
    }
  }
}

template <class T>
void encode_field(const Field& field, const std::byte* column, std::size_t n, float* out, std::size_t stride) {
  const auto* values = reinterpret_cast<const T*>(column);
  if (!field.choices.empty()) return one_hot(field, values, n, out, stride);
  const bool image = field.dtype == DType::kUint8 && field.shape.size() >= 2;
  const std::size_t count = field.values();
  for (std::size_t i = 0; i < n; ++i, values += count, out += stride) {
    if (image) {
      std::transform(values, values + count, out, [](T v) { return static_cast<float>(v) / kWhite; });
    } else {
      std::transform(values, values + count, out, [](T v) { return static_cast<float>(v); });
    }
  }
}

void encode_any(const Field& field, const std::byte* column, std::size_t n, float* out, std::size_t stride) {
  switch (field.dtype) {
    case DType::kUint8:
      return encode_field<std::uint8_t>(field, column, n, out, stride);
    case DType::kInt32:
      return encode_field<std::int32_t>(field, column, n, out, stride);
    case DType::kInt64:
      return encode_field<std::int64_t>(field, column, n, out, stride);
    case DType::kFloat32:
      return encode_field<float>(field, column, n, out, stride);
    case DType::kFloat64:
      return encode_field<double>(field, column, n, out, stride);
  }
}

}  // namespace

std::size_t policy_width(const Fields& fields) { return width(fields, Role::kPolicy); }
std::size_t critic_width(const Fields& fields) { return width(fields, Role::kCritic); }

void encode(const Fields& fields, Role role, FieldColumns columns, std::size_t n, float* out, std::size_t stride) {
  GIPO_CHECK(columns.size() == fields.size() && role != Role::kMask);
  for (std::size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].role != role) continue;
    encode_any(fields[f], columns[f], n, out, stride);
    out += fields[f].floats();
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
