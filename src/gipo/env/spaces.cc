#include "gipo/env/spaces.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

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

}  // namespace

std::string native_spaces(const EnvSpec& spec) {
  const Json observation = {
      {"kind", "Box"}, {"shape", {spec.observation_size}}, {"low", nullptr}, {"high", nullptr}, {"dtype", "float32"}};
  return Json{{"observation", observation}, {"action", action_space(spec.action)}}.dump();
}

}  // namespace gipo
