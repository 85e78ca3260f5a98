#include "gipo/env/spaces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gipo/core/error.h"
#include "gipo/env/options.h"

namespace gipo {
namespace {

using Json = nlohmann::ordered_json;

// One number where all are the same; a bound that there is not is null.
Json bound(const std::vector<double>& values) {
  const auto number = [](double v) { return std::isfinite(v) ? Json(v) : Json(); };
  if (std::ranges::all_of(values, [&](double v) { return v == values[0]; })) return number(values.at(0));
  Json all = Json::array();
  for (const double v : values) all.push_back(number(v));
  return all;
}

Json action_space(const ActionSpace& action) {
  switch (action.kind) {
    case ActionSpace::Kind::kDiscrete:
      return {{"kind", "Discrete"},
              {"shape", Json::array()},
              {"dtype", "int64"},
              {"n", action.choices.at(0)},
              {"start", 0}};
    case ActionSpace::Kind::kMultiDiscrete:
      return {{"kind", "MultiDiscrete"},
              {"shape", {action.choices.size()}},
              {"nvec", action.choices},
              {"start", std::vector<int>(action.choices.size())},
              {"dtype", "int64"}};
    case ActionSpace::Kind::kBox:
    case ActionSpace::Kind::kComposed:  // no task of this library
      break;
  }
  return {{"kind", "Box"},
          {"shape", {action.dims()}},
          {"low", bound(action.low)},
          {"high", bound(action.high)},
          {"dtype", "float32"}};
}

std::string names(const Fields& fields) {
  std::string all;
  for (const Field& f : fields) all += (all.empty() ? "" : ", ") + f.name;
  return all;
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

}  // namespace

std::string native_spaces(const EnvSpec& spec) {
  const Json observation = {
      {"kind", "Box"}, {"shape", {spec.observation_size}}, {"low", nullptr}, {"high", nullptr}, {"dtype", "float32"}};
  return Json{{"observation", observation}, {"action", action_space(spec.action)}}.dump();
}

void assign_roles(const EnvOptions& env, EnvSpec& spec) {
  std::stringstream wanted(env.critic_fields);
  for (std::string part; std::getline(wanted, part, ',');) {
    const std::string name = trimmed(part);
    const auto it = std::ranges::find(spec.fields, name, &Field::name);
    if (it == spec.fields.end() || it->role == Role::kMask) {
      throw Error(fmt::format("env.critic_fields = {}: {} has {} {}; its fields: {}", env.critic_fields, spec.id,
                              it == spec.fields.end() ? "no field" : "as its mask the field", name,
                              names(spec.fields)));
    }
    it->role = Role::kCritic;
  }
  const auto seen = [](const Field& f) { return f.role == Role::kPolicy && f.floats() > 0; };
  if (std::ranges::none_of(spec.fields, seen)) {
    throw Error(
        fmt::format("{}: no field of the observation is left for the policy to see: {}", spec.id, names(spec.fields)));
  }
  Json roles = Json::object();
  for (const Field& f : spec.fields) {
    if (f.role != Role::kPolicy) roles[f.name] = name_of(f.role);
  }
  if (roles.empty() || spec.spaces.empty()) return;
  Json spaces = Json::parse(spec.spaces);
  spaces["roles"] = roles;
  spec.spaces = spaces.dump();
}

}  // namespace gipo
