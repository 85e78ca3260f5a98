#include "gipo/data/field_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gipo/core/error.h"

namespace gipo {
namespace {

constexpr std::int64_t kMost = 1 << 30;  // values of a field

Role role_of(const std::string& name) {
  for (const Role role : {Role::kPolicy, Role::kCritic, Role::kMask}) {
    if (name == name_of(role)) return role;
  }
  throw Error(fmt::format("{} is no role of a field: wanted policy, critic or mask", name));
}

}  // namespace

nlohmann::ordered_json field_to_json(const Field& field) {
  nlohmann::ordered_json json = {{"name", field.name},          {"dtype", name_of(field.dtype)}, {"shape", field.shape},
                                 {"role", name_of(field.role)}, {"choices", field.choices},      {"bits", field.bits}};
  if (field.stack > 1) json["stack"] = field.stack;
  return json;
}

Field field_from_json(const nlohmann::json& json) {
  Field field{json.at("name").get<std::string>(),
              dtype_of(json.at("dtype").get<std::string>()),
              json.at("shape").get<std::vector<std::int64_t>>(),
              role_of(json.at("role").get<std::string>()),
              json.at("choices").get<std::vector<std::int64_t>>(),
              json.at("bits").get<bool>()};
  field.raw = json.value("raw", false);
  field.stack = json.value("stack", std::int64_t{1});
  const auto refuse = [&](const char* why) {
    throw Error(fmt::format("the field {} of shape ({}): {}", field.name, fmt::join(field.shape, ", "), why));
  };
  std::int64_t values = 1;
  for (const std::int64_t n : field.shape) {
    if (n < 0 || n > kMost / std::max<std::int64_t>(values, 1)) refuse("not a shape");
    values *= n;
  }
  for (const std::int64_t n : field.choices) {
    if (n < 1) refuse("a choice among none");
  }
  if (field.stack < 1 || (field.stack > 1 && (field.shape.empty() || field.shape[0] != field.stack))) {
    refuse("its frames are not its first dimension");
  }
  return field;
}

Fields fields_from_json(const nlohmann::json& json) {
  Fields fields;
  for (const auto& one : json) fields.push_back(field_from_json(one));
  return fields;
}

}  // namespace gipo
