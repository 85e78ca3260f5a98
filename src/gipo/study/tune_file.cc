#include "gipo/study/tune_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "gipo/config/did_you_mean.h"
#include "gipo/config/toml_shape.h"
#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/env/env_options.h"
#include "gipo/io/checksum.h"
#include "gipo/io/files.h"
#include "gipo/plan/option_table.h"

namespace gipo {
namespace {

constexpr std::size_t kMostPoints = 1'000'000;
constexpr std::pair<TuneScore, const char*> kScores[] = {
    {TuneScore::kTraining, "training"}, {TuneScore::kGreedy, "greedy"}, {TuneScore::kMean, "mean"}};

class TuneReader {
 public:
  TuneReader(const toml::node& node, const std::string& name) : node_(node), name_(name) {}

  TuneSpec read(const std::vector<std::pair<std::string, const toml::table*>>& methods,
                const std::vector<std::int64_t>& reported) {
    if (!node_.is_table()) refuse_node(node_, name_, "tune: wanted [tune], once in brackets");
    table_ = node_.as_table();
    refuse_unknown_keys();
    read_seeds(reported);
    read_tasks();
    spec_.candidates = whole("candidates", spec_.candidates, 1, 100'000);
    const std::size_t first = std::min(spec_.first_seeds, spec_.seeds.size());
    spec_.first_seeds = whole("first_seeds", first, 1, spec_.seeds.size());
    if (const toml::node* keep = table_->get("keep")) {
      spec_.keep = number_of(*keep, "tune.keep", name_);
      if (!(spec_.keep > 0 && spec_.keep < 1)) {
        refuse_node(*keep, name_, fmt::format("tune.keep = {}: wanted a number above 0 and below 1", spec_.keep));
      }
    }
    read_score();
    const toml::node* common = table_->get("grid");
    const TuneGrid grid = common ? read_grid(*common, "tune.grid") : TuneGrid{};
    for (const auto& [method, table] : methods) spec_.grids[method] = grid_of(method, *table, grid);
    const bool choice = std::ranges::any_of(spec_.grids, [](const auto& g) { return !g.second.empty(); });
    if (!choice) refuse_node(node_, name_, "[tune]: nothing to choose from: wanted grid.GROUP.NAME = [...]");
    return std::move(spec_);
  }

 private:
  void refuse_unknown_keys() const {
    const std::vector<std::string> known = {"seeds", "tasks", "candidates", "keep", "first_seeds", "score", "grid"};
    for (const auto& [k, node] : *table_) {
      const std::string key(k.str());
      if (std::ranges::find(known, key) != known.end()) continue;
      refuse_node(
          node, name_,
          fmt::format("unknown key tune.{}{}; known: {}", key, did_you_mean(key, known), fmt::join(known, ", ")));
    }
  }

  void read_seeds(const std::vector<std::int64_t>& reported) {
    const toml::node* seeds = table_->get("seeds");
    if (!seeds) refuse_node(node_, name_, "[tune]: seeds is missing");
    spec_.seeds = seeds_of(*seeds, "tune.seeds", name_);
    for (const std::int64_t seed : spec_.seeds) {
      if (std::ranges::find(reported, seed) == reported.end()) continue;
      refuse_node(*seeds, name_,
                  fmt::format("tune.seeds: {} is in suite.seeds too: what is tuned on is not reported", seed));
    }
  }

  void read_tasks() {
    const toml::node* node = table_->get("tasks");
    if (!node) return;
    const toml::array* list = node->as_array();
    if (!list || list->empty()) refuse_node(*node, name_, "tune.tasks: wanted a list of tasks of the suite");
    for (const toml::node& item : *list) spec_.tasks.push_back(text_of(item, "tune.tasks", name_));
  }

  std::size_t whole(const char* key, std::size_t otherwise, std::size_t least, std::size_t most) const {
    const toml::node* node = table_->get(key);
    if (!node) return otherwise;
    const auto* v = node->as_integer();
    if (!v || v->get() < static_cast<std::int64_t>(least) || v->get() > static_cast<std::int64_t>(most)) {
      refuse_node(*node, name_,
                  fmt::format("tune.{} = {}: wanted a whole number from {} to {}", key, shown(*node), least, most));
    }
    return static_cast<std::size_t>(v->get());
  }

  void read_score() {
    const toml::node* node = table_->get("score");
    if (!node) return;
    const std::string word = text_of(*node, "tune.score", name_);
    for (const auto& [score, known] : kScores) {
      if (word == known) {
        spec_.score = score;
        return;
      }
    }
    refuse_node(*node, name_, fmt::format("tune.score = {}: wanted training, greedy or mean", word));
  }

  TuneGrid read_grid(const toml::node& node, const std::string& part) const {
    if (!node.is_table()) refuse_node(node, name_, fmt::format("{}: wanted {}.GROUP.NAME = [...]", part, part));
    TuneGrid grid;
    for_each_option(*node.as_table(), {}, name_, [&](const std::string& key, const toml::node& values) {
      const toml::array* list = values.as_array();
      if (!key.starts_with(kEnvOptions)) find_option<Config>(option_table(), key, place(values, name_));
      if (!list || list->empty()) {
        refuse_node(values, name_, fmt::format("{}.{}: wanted a list of values to try", part, key));
      }
      TuneAxis axis{key, {}};
      std::set<std::string> seen;
      for (const toml::node& item : *list) {
        axis.values.push_back(setting_of(item, key, name_));
        const std::string value = to_toml(axis.values.back().value);
        if (!seen.insert(value).second) {
          refuse_node(item, name_, fmt::format("{}.{}: {} stands there twice", part, key, value));
        }
      }
      grid.push_back(std::move(axis));
    });
    return grid;
  }

  TuneGrid grid_of(const std::string& method, const toml::table& table, const TuneGrid& common) const {
    const toml::node* node = table.get("tune");
    TuneGrid grid = node ? read_grid(*node, "tune") : TuneGrid{};
    for (const TuneAxis& axis : common) {
      if (std::ranges::find(grid, axis.key, &TuneAxis::key) == grid.end()) grid.push_back(axis);
    }
    std::ranges::sort(grid, {}, &TuneAxis::key);
    std::size_t points = 1;
    for (const TuneAxis& axis : grid) {
      points *= axis.values.size();
      if (points > kMostPoints) {
        refuse_node(node ? *node : node_, name_,
                    fmt::format("method {}: its grid has more than {} points", method, kMostPoints));
      }
    }
    return grid;
  }

  const toml::node& node_;
  const std::string& name_;
  const toml::table* table_ = nullptr;
  TuneSpec spec_;
};

class TunedReader {
 public:
  TunedReader(const std::string& path, const std::vector<std::string>& methods, const std::vector<std::string>& regimes)
      : path_(path), methods_(methods), regimes_(regimes) {}

  TunedOptions read() {
    const toml::table file = parse_toml(read_file(path_, kMostTomlBytes), path_);
    for (const auto& [key, node] : file) {
      if (key.str() != "method") refuse_node(node, path_, fmt::format("unknown part {}; known: method", key.str()));
      if (!node.is_array()) refuse_node(node, path_, "method: wanted [[method]], twice in brackets");
      for (const toml::node& item : *node.as_array()) read_entry(item);
    }
    for (const std::string& method : methods_) {
      for (const std::string& regime : regimes_) {
        if (all_.contains({method, regime})) continue;
        throw Error(fmt::format("{}: no options for method {}{}: gipo tune SUITE --write makes them", path_, method,
                                regime.empty() ? "" : " in regime " + regime));
      }
    }
    return std::move(all_);
  }

 private:
  std::string known(const toml::node& node, const char* what, const std::vector<std::string>& names) const {
    std::string name = text_of(node, what, path_);
    if (std::ranges::find(names, name) == names.end()) {
      refuse_node(node, path_, fmt::format("the suite has no {} {}{}", what, name, did_you_mean(name, names)));
    }
    return name;
  }

  void read_entry(const toml::node& item) {
    const toml::table* table = item.as_table();
    if (!table) refuse_node(item, path_, "method: wanted [[method]]");
    if (!table->contains("name")) refuse_node(item, path_, "[[method]]: name is missing");
    const std::string method = known(*table->get("name"), "method", methods_);
    const toml::node* regime = table->get("regime");
    const auto regimes = regime ? std::vector{known(*regime, "regime", regimes_)} : regimes_;
    std::vector<RunSetting> settings;
    for_each_option(*table, {"name", "regime"}, path_, [&](const std::string& key, const toml::node& value) {
      settings.push_back(setting_of(value, key, path_));
    });
    for (const std::string& r : regimes) {
      if (all_.try_emplace({method, r}, settings).second) continue;
      refuse_node(item, path_, fmt::format("method {}{} stands there twice", method, r.empty() ? "" : ", regime " + r));
    }
  }

  const std::string& path_;
  const std::vector<std::string>&methods_, &regimes_;
  TunedOptions all_;
};

// `count` of the first `all` whole numbers, in order.
std::vector<std::size_t> choose(std::size_t all, std::size_t count) {
  std::vector<std::size_t> numbers(all);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  if (count >= all) return numbers;
  RandomStream random = RandomStream::derive(count, "tune", all);
  for (std::size_t i = 0; i < count; ++i) std::swap(numbers[i], numbers[i + random.below(all - i)]);
  numbers.resize(count);
  std::ranges::sort(numbers);
  return numbers;
}

}  // namespace

const char* word_for(TuneScore score) {
  return std::ranges::find(kScores, score, &std::pair<TuneScore, const char*>::first)->second;
}

TuneSpec read_tune(const toml::node& node, const std::vector<std::pair<std::string, const toml::table*>>& methods,
                   const std::vector<std::int64_t>& reported, const std::string& name) {
  return TuneReader(node, name).read(methods, reported);
}

std::vector<std::vector<RunSetting>> points_of(const TuneGrid& grid, std::size_t most) {
  std::size_t all = 1;
  for (const TuneAxis& axis : grid) all *= axis.values.size();
  std::vector<std::vector<RunSetting>> points;
  for (std::size_t number : choose(all, most)) {
    std::vector<RunSetting> point(grid.size());
    for (std::size_t a = grid.size(); a-- > 0; number /= grid[a].values.size()) {
      point[a] = grid[a].values[number % grid[a].values.size()];
    }
    points.push_back(std::move(point));
  }
  return points;
}

std::string candidate_name(const std::string& method, const std::vector<RunSetting>& settings) {
  std::string text;
  for (const RunSetting& s : settings) text += setting_toml(s) + "\n";
  return fmt::format("{}-{:08x}", method, crc32c(text));
}

TunedOptions load_tuned(const std::string& path, const std::vector<std::string>& methods,
                        const std::vector<std::string>& regimes) {
  return TunedReader(path, methods, regimes).read();
}

}  // namespace gipo
