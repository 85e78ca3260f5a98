#include "gipo/run/state_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gipo/core/error.h"
#include "gipo/io/json_text.h"

namespace gipo {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostBytes = 256 * 1024;  // many times what is written; it bounds the time that parsing takes

const Json& field(const Json& from, const std::string& key) {
  const auto it = from.find(key);
  if (it == from.end()) throw Error(fmt::format("state.json has no {}", key));
  return *it;
}

[[noreturn]] void refuse(const std::string& key, const Json& value) {
  throw Error(
      fmt::format("state.json: {} = {} is not accepted", key, value.is_number() ? value.dump() : "not a number"));
}

}  // namespace

Json parse_state(const std::string& text) {
  if (text.size() > kMostBytes) throw Error("state.json is too large to be one");
  Json state = parse_json<Json>(text, "state.json");
  if (!state.is_object()) throw Error("state.json is not a JSON object");
  return state;
}

std::int64_t read_whole(const Json& from, const std::string& key, std::int64_t low, std::int64_t high) {
  const Json& value = field(from, key);
  if (!value.is_number_integer()) refuse(key, value);
  const auto v = value.get<std::int64_t>();  // one beyond its range becomes negative
  if (v < low || v > high) refuse(key, value);
  return v;
}

double read_real(const Json& from, const std::string& key, double low, double high) {
  const Json& value = field(from, key);
  if (!value.is_number()) refuse(key, value);
  const double v = value.get<double>();
  if (!(v >= low && v <= high)) refuse(key, value);
  return v;
}

}  // namespace gipo
