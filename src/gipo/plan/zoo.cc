#include "gipo/plan/zoo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "gipo/config/did_you_mean.h"
#include "gipo/core/error.h"
#include "gipo/plan/presets.h"

namespace gipo {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFolder = "zoo/", kFigures = "# zoo: ";

Json figures_of(const PresetConfig& preset) {
  std::istringstream lines(preset.text);
  for (std::string line; std::getline(lines, line) && line.starts_with('#');) {
    if (line.starts_with(kFigures)) return Json::parse(line.substr(kFigures.size()));
  }
  return Json::object();
}

ZooEntry entry_of(const PresetConfig& preset) {
  const Json figures = figures_of(preset);
  ZooEntry entry{.task = preset.name.substr(kFolder.size()),
                 .about = preset.about(),
                 .needs = figures.value("needs", ""),
                 .env_steps = figures.value("env_steps", std::int64_t{0}),
                 .goal = {},
                 .measured = {},
                 .rl_zoo = {}};
  if (figures.contains("goal")) entry.goal = figures["goal"];
  if (figures.contains("greedy")) {
    entry.measured = {figures["greedy"], figures.at("worst"), figures.at("seeds"), {}};
    if (figures.contains("cpu_seconds")) entry.measured->cpu_seconds = figures["cpu_seconds"];
  }
  if (figures.contains("rl_zoo")) entry.rl_zoo = {figures["rl_zoo"], figures.at("rl_zoo_env_steps")};
  return entry;
}

}  // namespace

std::vector<ZooEntry> zoo() {
  std::vector<ZooEntry> entries;
  for (const PresetConfig& preset : preset_configs()) {
    if (preset.name.starts_with(kFolder)) entries.push_back(entry_of(preset));
  }
  return entries;
}

std::string zoo_as_json() {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const ZooEntry& e : zoo()) {
    nlohmann::ordered_json row = {{"task", e.task},      {"preset", e.preset()},     {"about", e.about},
                                  {"needs", e.needs},    {"env_steps", e.env_steps}, {"goal", nullptr},
                                  {"measured", nullptr}, {"rl_zoo", nullptr}};
    if (e.goal) row["goal"] = *e.goal;
    if (const auto& m = e.measured) {
      row["measured"] = {{"mean", m->mean}, {"worst", m->worst}, {"seeds", m->seeds}, {"cpu_seconds", nullptr}};
      if (m->cpu_seconds) row["measured"]["cpu_seconds"] = *m->cpu_seconds;
    }
    if (e.rl_zoo) row["rl_zoo"] = {{"mean", e.rl_zoo->mean}, {"env_steps", e.rl_zoo->env_steps}};
    rows.push_back(std::move(row));
  }
  return rows.dump(2);
}

std::string zoo_preset(const std::string& task) {
  std::vector<std::string> tasks;
  for (const ZooEntry& entry : zoo()) {
    if (entry.task == task) return entry.preset();
    tasks.push_back(entry.task);
  }
  throw Error(fmt::format("--zoo: {} is not in the zoo{}; there are: {}", task, did_you_mean(task, tasks),
                          fmt::join(tasks, ", ")));
}

}  // namespace gipo
