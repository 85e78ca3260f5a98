#include "gipo/remote/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/remote/names.h"

namespace gipo {
namespace {

constexpr std::uint64_t kMostIncarnation = std::uint64_t{1} << 62;
constexpr std::uint64_t kMostFile = 1 << 20;

}  // namespace

Places::Places(std::string path, std::size_t count) : path_(std::move(path)), places_(count) {
  if (!std::filesystem::exists(path_)) {
    run_ = random_key();
    write(places_);
    return;
  }
  try {
    const auto file = nlohmann::json::parse(read_file(path_, kMostFile));
    run_ = file.at("run").get<std::string>();
    const auto& places = file.at("places");
    if (places.size() != count) {
      throw Error(fmt::format("{}: it has {} places, the run {}", path_, places.size(), count));
    }
    for (std::size_t i = 0; i < count; ++i) {
      places_[i] = {places[i].at("name").get<std::string>(), places[i].at("incarnation").get<std::uint64_t>()};
      if (places_[i].incarnation > kMostIncarnation) throw Error(fmt::format("{}: an incarnation is too great", path_));
    }
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("{}: damaged: {}; remove it, and actors that are waiting begin anew", path_, e.what()));
  }
}

std::uint64_t Places::greatest() const {
  std::uint64_t most = 0;
  for (const Place& p : places_) most = std::max(most, p.incarnation);
  return most;
}

std::optional<std::size_t> Places::choose(const std::string& name, const std::vector<bool>& taken) const {
  const auto first = [&](auto&& wanted) -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (!taken[i] && wanted(places_[i])) return i;
    }
    return std::nullopt;
  };
  if (const auto own = first([&](const Place& p) { return p.name == name; })) return own;
  if (const auto untouched = first([](const Place& p) { return p.name.empty(); })) return untouched;
  return first([](const Place&) { return true; });
}

std::uint64_t Places::take(std::size_t place, const std::string& name, std::uint64_t least) {
  std::vector<Place> next = places_;
  next[place] = {name, std::max(places_[place].incarnation + 1, least)};
  write(next);
  places_ = std::move(next);
  return places_[place].incarnation;
}

void Places::write(const std::vector<Place>& places) const {
  nlohmann::ordered_json file = {{"run", run_}, {"places", nlohmann::ordered_json::array()}};
  for (const Place& p : places) file["places"].push_back({{"name", p.name}, {"incarnation", p.incarnation}});
  write_file_atomic(path_, file.dump(1) + "\n");
}

}  // namespace gipo
