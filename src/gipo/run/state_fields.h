#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gipo {

// Fields of a checkpoint's state.json, each with what is accepted; they throw Error naming the field.
nlohmann::json parse_state(const std::string& text);
std::int64_t read_whole(const nlohmann::json& from, const std::string& key, std::int64_t low, std::int64_t high);
double read_real(const nlohmann::json& from, const std::string& key, double low, double high);

}  // namespace gipo
