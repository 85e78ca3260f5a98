#include "gipo/env/env_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "gipo/config/did_you_mean.h"
#include "gipo/core/error.h"

namespace gipo {
namespace {

using Numbers = std::vector<double>;

constexpr std::int64_t kMostWhole = 1'000'000;

// A whole number is a number, and a list of whole numbers one of numbers.
OptionValue widened(const OptionValue& value, const OptionValue& like) {
  if (std::holds_alternative<double>(like)) {
    if (const auto* v = std::get_if<std::int64_t>(&value)) return static_cast<double>(*v);
  }
  if (!std::holds_alternative<Numbers>(like)) return value;
  if (const auto* v = std::get_if<Widths>(&value)) return Numbers(v->begin(), v->end());
  const auto* mixed = std::get_if<Nested>(&value);
  if (!mixed || mixed->kind != Nested::Kind::kList) return value;
  Numbers numbers;
  for (const NestedItem& item : mixed->items) {
    const OptionValue number = widened(item.value, 0.0);
    if (!std::holds_alternative<double>(number)) return value;
    numbers.push_back(std::get<double>(number));
  }
  return numbers;
}

bool fits(const EnvOption& option, const OptionValue& value) {
  if (option.or_text && std::holds_alternative<std::string>(value)) return true;
  if (value.index() != option.value.index()) return false;
  if (const auto* v = std::get_if<std::int64_t>(&value))
    return static_cast<double>(*v) >= option.low && *v <= kMostWhole;
  if (const auto* v = std::get_if<double>(&value)) return std::isfinite(*v) && *v >= option.low;
  if (const auto* v = std::get_if<Numbers>(&value)) return v->size() == 2 && (*v)[0] <= (*v)[1];
  return true;
}

}  // namespace

std::string EnvOption::type() const {
  if (std::holds_alternative<bool>(value)) return "true or false";
  if (std::holds_alternative<std::int64_t>(value)) return or_text ? "integer or text" : "integer";
  if (std::holds_alternative<double>(value)) return "number";
  if (std::holds_alternative<std::string>(value)) return "text";
  return "range [low, high]";
}

std::string EnvOption::accepted() const {
  if (std::holds_alternative<std::int64_t>(value)) return fmt::format("{} to {}", low, kMostWhole);
  return std::isfinite(low) ? fmt::format("{} or more", low) : "";
}

OptionValues resolve_options(const std::string& task, const std::vector<EnvOption>& known, const OptionValues& given) {
  OptionValues all;
  std::vector<std::string> names;
  for (const EnvOption& option : known) {
    all[option.name] = option.value;
    names.push_back(option.name);
  }
  for (const auto& [name, value] : given) {
    const auto option = std::ranges::find(known, name, &EnvOption::name);
    if (option == known.end()) {
      throw Error(fmt::format("{}{} is not an option of {}{}; it has {}", kEnvOptions, name, task,
                              did_you_mean(name, names),
                              names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
    }
    if (is_null(value)) continue;  // Python's None: as if it were left out
    const OptionValue own = widened(value, option->value);
    if (!fits(*option, own)) {
      throw Error(fmt::format("{}{} = {} is not accepted: {} wants {}{}{}", kEnvOptions, name, to_toml(value), task,
                              option->type(), option->accepted().empty() ? "" : ", ", option->accepted()));
    }
    all[name] = own;
  }
  return all;
}

}  // namespace gipo
