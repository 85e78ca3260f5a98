#include "gipo/data/spec.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <utility>

#include "gipo/core/error.h"

namespace gipo {
namespace {

struct TypeInfo {
  DType type;
  const char* name;
  std::size_t size;
};
constexpr TypeInfo kTypes[] = {{DType::kUint8, "uint8", 1},
                               {DType::kInt32, "int32", 4},
                               {DType::kInt64, "int64", 8},
                               {DType::kFloat32, "float32", 4},
                               {DType::kFloat64, "float64", 8}};

const TypeInfo& info(DType type) {
  for (const TypeInfo& t : kTypes) {
    if (t.type == type) return t;
  }
  GIPO_NOT_REACHED();
}

}  // namespace

std::size_t size_of(DType type) { return info(type).size; }
const char* name_of(DType type) { return info(type).name; }

DType dtype_of(const std::string& name) {
  for (const TypeInfo& t : kTypes) {
    if (name == t.name) return t.type;
  }
  throw Error(fmt::format("{} is no type of a field: wanted uint8, int32, int64, float32 or float64", name));
}

const char* name_of(Role role) { return role == Role::kPolicy ? "policy" : role == Role::kCritic ? "critic" : "mask"; }

std::size_t Field::values() const {
  std::size_t n = 1;
  for (const std::int64_t d : shape) n *= static_cast<std::size_t>(d);
  return n;
}

Field Field::frame() const {
  Field one = *this;
  if (stack > 1) one.shape.erase(one.shape.begin());
  one.stack = 1;
  return one;
}

std::size_t Field::floats() const {
  if (role == Role::kMask || raw) return 0;
  if (choices.empty()) return values();
  return static_cast<std::size_t>(std::accumulate(choices.begin(), choices.end(), std::int64_t{0}));
}

std::size_t floats_of(const Fields& fields) {
  return std::transform_reduce(fields.begin(), fields.end(), std::size_t{0}, std::plus<>(),
                               [](const Field& f) { return f.floats(); });
}

Column column_of(const Field& field, Column::Rows rows) { return {field.name, field.dtype, field.values(), rows}; }

Fields plain_fields(std::size_t observation_size) {
  return {{"observation", DType::kFloat32, {static_cast<std::int64_t>(observation_size)}}};
}

bool is_plain(const Fields& fields) {
  return fields.size() == 1 && fields[0].dtype == DType::kFloat32 && fields[0].shape.size() == 1 &&
         fields[0].role == Role::kPolicy && fields[0].choices.empty();
}

}  // namespace gipo
