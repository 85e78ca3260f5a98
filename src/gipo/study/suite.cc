#include "gipo/study/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "gipo/config/did_you_mean.h"
#include "gipo/config/path_text.h"
#include "gipo/config/toml_shape.h"
#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/plan/config_toml.h"
#include "gipo/plan/memory.h"
#include "gipo/plan/option_table.h"
#include "gipo/plan/presets.h"

namespace gipo {
namespace {

constexpr std::size_t kMostRuns = 100'000;
const std::vector<std::string> kTaskKeys = {"name", "random", "reference", "threshold"};
const std::vector<std::string> kMethodKeys = {"name", "tune"}, kRegimeKeys = {"name", "config", "seeds"};

// One [[task]], [[method]] or [[regime]]: its name and the options it sets.
struct Entry {
  std::string name, where, config;
  std::set<std::int64_t> seeds;  // of a regime; empty: the suite's
  const toml::table* table = nullptr;
};

class Parser {
 public:
  Parser(std::string_view text, std::string name, std::string folder)
      : file_(parse_toml(text, name)), name_(std::move(name)), folder_(std::move(folder)) {}

  Suite make(const std::string& out, const SuiteChoice& choice) {
    read_parts(out, choice);
    if (!suite_.tuned.empty()) settings_ = load_tuned(suite_.tuned, all_methods_, all_regimes_);
    suite_.all = {all_tasks_, all_methods_, all_regimes_, suite_.seeds};
    suite_.seeds = keep("seed", suite_.seeds, choice.seeds, [](std::int64_t seed) { return seed; });
    return with_runs();
  }

  Tuning make_tuning(const std::string& out, const SuiteChoice& choice) {
    read_parts(out, choice);
    if (!suite_.tune) throw Error(fmt::format("{}: no part [tune]: docs/suites.md says what stands there", name_));
    if (out.empty()) suite_.out += "-tune";
    suite_.seeds = suite_.tune->seeds;
    tasks_ = keep("task", tasks_, suite_.tune->tasks, [](const Entry& e) { return e.name; });
    suite_.tasks = keep("task", suite_.tasks, suite_.tune->tasks, [](const SuiteTask& t) { return t.name; });
    Tuning tuning;
    const std::vector<Entry> methods = std::exchange(methods_, {});
    for (const Entry& method : methods) {
      for (std::vector<RunSetting>& point : points_of(suite_.tune->grids.at(method.name), suite_.tune->candidates)) {
        Entry e = method;
        e.name = candidate_name(method.name, point);
        for (const Entry& regime : regimes_) settings_[{e.name, regime.name}] = point;
        tuning.candidates.push_back({e.name, tuning.methods.size(), std::move(point)});
        methods_.push_back(std::move(e));
      }
      tuning.methods.push_back(method.name);
      refuse_too_many();
    }
    for (Entry& regime : regimes_) regime.seeds.clear();  // some of those that are reported
    suite_.all = {all_tasks_, names_of(methods_), all_regimes_, suite_.seeds};
    tuning.runs = with_runs();
    return tuning;
  }

 private:
  void read_parts(const std::string& out, const SuiteChoice& choice) {
    refuse_unknown_parts();
    read_suite(out);
    const auto by_name = [](const Entry& e) { return e.name; };
    tasks_ = entries("task", kTaskKeys, true);
    all_tasks_ = names_of(tasks_);
    tasks_ = keep("task", tasks_, choice.tasks, by_name);
    for (const Entry& e : tasks_) read_task(e);
    methods_ = entries("method", kMethodKeys, true);
    regimes_ = entries("regime", kRegimeKeys, false);
    read_tune_part();
    all_methods_ = names_of(methods_);
    all_regimes_ = names_of(regimes_);
    if (regimes_.empty()) all_regimes_.emplace_back();
    methods_ = keep("method", methods_, choice.methods, by_name);
    regimes_ = keep("regime", regimes_, choice.regimes, by_name);
    if (regimes_.empty()) regimes_.push_back({"", name_, "", {}, nullptr});
  }

  static std::vector<std::string> names_of(const std::vector<Entry>& entries) {
    std::vector<std::string> names;
    names.reserve(entries.size());
    for (const Entry& e : entries) names.push_back(e.name);
    return names;
  }

  void refuse_too_many() const {
    if (tasks_.size() * methods_.size() * regimes_.size() * suite_.seeds.size() <= kMostRuns) return;
    throw Error(fmt::format("{}: more than {} runs", name_, kMostRuns));
  }

  Suite with_runs() {
    suite_.methods = names_of(methods_);
    suite_.regimes = names_of(regimes_);
    refuse_too_many();
    for (const std::int64_t seed : suite_.seeds) {
      for (std::size_t r = 0; r < regimes_.size(); ++r) {
        if (const auto& own = regimes_[r].seeds; !own.empty() && !own.contains(seed)) continue;
        for (std::size_t t = 0; t < tasks_.size(); ++t) {
          for (std::size_t m = 0; m < methods_.size(); ++m) {
            suite_.runs.push_back(make_run(tasks_[t], methods_[m], regimes_[r], seed));
            SuiteRun& run = suite_.runs.back();
            run.task = t, run.method = m, run.regime = r, run.seed = seed;
          }
        }
      }
    }
    refuse_equal_names();
    return std::move(suite_);
  }

  void read_tune_part() {
    const toml::node* tune = file_.get("tune");
    std::vector<std::pair<std::string, const toml::table*>> methods;
    for (const Entry& e : methods_) {
      methods.emplace_back(e.name, e.table);
      const toml::node* own = e.table->get("tune");
      if (own && !tune) refuse(*own, fmt::format("method {} has tune, but the file has no part [tune]", e.name));
    }
    if (!tune) return;
    suite_.tune = read_tune(*tune, methods, suite_.seeds, name_);
    keep("task", entries("task", kTaskKeys, true), suite_.tune->tasks, [](const Entry& e) { return e.name; });
    for (const Entry& e : tasks_) {
      if (e.table->contains("random") && e.table->contains("reference")) continue;
      throw Error(fmt::format("{}: task {}: random and reference are missing: tuning compares normalised scores",
                              e.where, e.name));
    }
  }

  [[noreturn]] void refuse(const toml::node& node, const std::string& why) const { refuse_node(node, name_, why); }

  void refuse_unknown_parts() const {
    const std::vector<std::string> known = {"suite", "task", "method", "regime", "tune"};
    for (const auto& [key, node] : file_) {
      const std::string part(key.str());
      if (std::find(known.begin(), known.end(), part) != known.end()) continue;
      refuse(node,
             fmt::format("unknown part {}{}; known: {}", part, did_you_mean(part, known), fmt::join(known, ", ")));
    }
  }

  std::string text(const toml::node& node, const char* key) const { return text_of(node, key, name_); }

  void read_suite(const std::string& out) {
    const toml::node* node = file_.get("suite");
    if (!node || !node->is_table()) throw Error(fmt::format("{}: no part [suite]", name_));
    suite_table_ = node->as_table();
    keys_ = {"name", "config", "seeds", "keep_checkpoints", "tuned"};
    for (const char* key : {"name", "config", "seeds"}) {
      if (!suite_table_->contains(key)) refuse(*node, fmt::format("[suite]: {} is missing", key));
    }
    suite_.name = text(*suite_table_->get("name"), "suite.name");
    if (suite_.name.find('/') != std::string::npos || suite_.name == "." || suite_.name == "..") {
      refuse(*suite_table_->get("name"), "suite.name: wanted a folder name without a slash");
    }
    if (const std::string fault = name_fault(suite_.name); !fault.empty()) {
      refuse(*suite_table_->get("name"), fmt::format("suite.name = {}: {}", shown_text(suite_.name), fault));
    }
    suite_.out = out.empty() ? "results/" + suite_.name : out;
    config_ = text(*suite_table_->get("config"), "suite.config");
    if (const toml::node* keep = suite_table_->get("keep_checkpoints")) {
      if (!keep->is_boolean()) refuse(*keep, "suite.keep_checkpoints: wanted true or false");
      suite_.keep_checkpoints = keep->as_boolean()->get();
    }
    suite_.seeds = seeds_of(*suite_table_->get("seeds"), "suite.seeds", name_);
    if (const toml::node* tuned = suite_table_->get("tuned")) suite_.tuned = path_of(text(*tuned, "suite.tuned"));
  }

  // Some of the suite's seeds, so that the order of runs stays one list.
  void read_regime(const toml::table& table, Entry& e) const {
    if (const toml::node* config = table.get("config")) e.config = text(*config, "config");
    if (const toml::node* seeds = table.get("seeds")) {
      const std::set<std::int64_t> all(suite_.seeds.begin(), suite_.seeds.end());
      for (const std::int64_t seed : seeds_of(*seeds, "regime.seeds", name_)) {
        if (!all.contains(seed)) refuse(*seeds, fmt::format("regime.seeds: {} is not in suite.seeds", seed));
        e.seeds.insert(seed);
      }
    }
  }

  std::vector<Entry> entries(const char* part, const std::vector<std::string>& keys, bool wanted) {
    std::vector<Entry> all;
    std::set<std::string> names;
    const toml::node* node = file_.get(part);
    if (!node && !wanted) return all;
    if (!node) throw Error(fmt::format("{}: no part [[{}]]", name_, part));
    const toml::array* list = node->as_array();
    if (!list) refuse(*node, fmt::format("{}: wanted [[{}]], twice in brackets", part, part));
    if (list->size() > kMostRuns) refuse(*node, fmt::format("{}: more than {} of them", part, kMostRuns));
    for (const toml::node& item : *list) {
      const toml::table* table = item.as_table();
      if (!table) refuse(item, fmt::format("{}: wanted [[{}]]", part, part));
      if (!table->contains("name")) refuse(item, fmt::format("[[{}]]: name is missing", part));
      Entry e{text(*table->get("name"), "name"), place(*table->get("name"), name_), "", {}, table};
      if (!names.insert(e.name).second) throw Error(fmt::format("{}: {} {} stands there twice", e.where, part, e.name));
      if (std::string_view(part) == "regime") read_regime(*table, e);
      LoadedConfig unused;
      apply(unused, *table, keys);  // a mistake in an entry is found even where no run uses it
      all.push_back(std::move(e));
    }
    return all;
  }

  // Those of `all` that were chosen, in the order of the file; all of them where nothing was.
  template <class T, class Key, class F>
  std::vector<T> keep(const char* part, const std::vector<T>& all, const std::vector<Key>& chosen, F&& key) const {
    std::vector<std::string> known;
    known.reserve(all.size());
    for (const T& item : all) known.push_back(fmt::format("{}", key(item)));
    for (const Key& k : chosen) {
      const std::string wanted = fmt::format("{}", k);
      if (std::find(known.begin(), known.end(), wanted) != known.end()) continue;
      throw Error(fmt::format("{}: no {} {}{}; known: {}", name_, part, wanted, did_you_mean(wanted, known),
                              fmt::join(known, ", ")));
    }
    std::vector<T> kept;
    for (const T& item : all) {
      if (chosen.empty() || std::find(chosen.begin(), chosen.end(), key(item)) != chosen.end()) kept.push_back(item);
    }
    return kept;
  }

  void apply(LoadedConfig& loaded, const toml::table& table, const std::vector<std::string>& keys) const {
    // A length in a later part replaces that of an earlier one, in whatever it is counted.
    if (const toml::table* learner = table["learner"].as_table()) {
      if (learner->contains("updates") || learner->contains("env_steps")) forget_length(loaded);
    }
    for (const auto& [key, node] : table) {
      const std::string group(key.str());
      if (std::find(keys.begin(), keys.end(), group) != keys.end()) continue;
      apply_group(loaded, group, node, name_, keys);
      for (const char* own : {"run.name", "run.dir", "run.seed"}) {
        if (loaded.origins.contains(own) && loaded.origins[own].starts_with(name_ + ":")) {
          throw Error(fmt::format("{}: {} is the suite's own to set", loaded.origins[own], own));
        }
      }
    }
  }

  void read_task(const Entry& e) {
    SuiteTask task{e.name, {}, {}, {}};
    const auto read = [&](const char* key, std::optional<double>& value) {
      if (const toml::node* node = e.table->get(key)) value = number_of(*node, key, name_);
    };
    read("random", task.random);
    read("reference", task.reference);
    read("threshold", task.threshold);
    if (task.random.has_value() != task.reference.has_value()) {
      throw Error(fmt::format("{}: task {}: random and reference go together", e.where, e.name));
    }
    if (task.random && *task.random == *task.reference) {
      throw Error(fmt::format("{}: task {}: random and reference must differ", e.where, e.name));
    }
    suite_.tasks.push_back(std::move(task));
  }

  std::string path_of(const std::string& file) const {
    return (std::filesystem::path(folder_) / file).lexically_normal().string();
  }

  // Of a file beside the suite; else the name of a preset, as it stands.
  std::string config_path(const std::string& config) const {
    std::error_code ignored;
    const std::string path = path_of(config);
    return std::filesystem::exists(path, ignored) ? path : config;
  }

  LoadedConfig base(const std::string& config) {
    const std::string name = config_path(config);
    for (const auto& [known, loaded] : bases_) {
      if (known == name) return loaded;
    }
    bases_.emplace_back(name, load_config_or_preset(name));
    return bases_.back().second;
  }

  // From the general to the particular: the config file, the suite, the regime, the task, the method, what was tuned.
  SuiteRun make_run(const Entry& task, const Entry& method, const Entry& regime, std::int64_t seed) {
    const std::string& config = regime.config.empty() ? config_ : regime.config;
    LoadedConfig loaded = base(config);
    const Origins before = loaded.origins;
    loaded.config.env.id = task.name;
    loaded.origins["env.id"] = task.where;
    apply(loaded, *suite_table_, keys_);
    if (regime.table) apply(loaded, *regime.table, kRegimeKeys);
    apply(loaded, *task.table, kTaskKeys);
    apply(loaded, *method.table, kMethodKeys);
    if (const auto it = settings_.find({method.name, regime.name}); it != settings_.end()) {
      for (const RunSetting& s : it->second) set_option(loaded, s.key, s.value, s.where);
    }
    SuiteRun run;
    run.arguments = {"train", config_path(config)};
    for (const std::string& setting : settings(loaded, before)) {
      run.arguments.insert(run.arguments.end(), {"--set", setting});
    }
    loaded.config.run.seed = seed;
    loaded.config.run.dir = suite_.out + "/runs";
    loaded.config.run.name = file_name_of(
        fmt::format("{}-{}{}{}-{}", task.name, method.name, regime.name.empty() ? "" : "-", regime.name, seed));
    loaded.origins["run.dir"] = name_, loaded.origins["run.name"] = method.where;
    run.arguments.insert(run.arguments.end(), {"--set", "run.dir=\"" + loaded.config.run.dir + "\"", "--seed",
                                               std::to_string(seed), "--name", loaded.config.run.name, "--quiet"});
    run.plan = make_plan(loaded);
    refuse_what_does_not_fit(run.plan, loaded.origins);
    return run;
  }

  // "key=value" for all that was set after `before`, for --set: options of runs, then those of the task.
  static std::vector<std::string> settings(const LoadedConfig& loaded, const Origins& before) {
    std::vector<std::string> all;
    const auto add = [&](const std::string& key, const std::string& value) {
      const auto it = loaded.origins.find(key);
      if (it == loaded.origins.end() || (before.contains(key) && before.at(key) == it->second)) return;
      all.push_back(key + "=" + value);
    };
    for (const OptionGroup<Config>& group : option_table()) {
      for (const Option<Config>& o : group.options) add(o.key, o.get(loaded.config));
    }
    for (const auto& [name, value] : loaded.config.env_options) add(std::string(kEnvOptions) + name, to_toml(value));
    return all;
  }

  void refuse_equal_names() const {
    std::set<std::string> names;
    for (const SuiteRun& run : suite_.runs) {
      if (names.insert(run.plan.name).second) continue;
      throw Error(fmt::format("{}: two runs would share the folder {}: choose other names", name_, run.plan.run_dir));
    }
  }

  const toml::table file_;
  const std::string name_, folder_;
  const toml::table* suite_table_ = nullptr;
  std::vector<std::string> keys_;
  std::string config_;
  std::vector<std::pair<std::string, LoadedConfig>> bases_;
  std::vector<Entry> tasks_, methods_, regimes_;
  std::vector<std::string> all_tasks_, all_methods_, all_regimes_;  // also those that were not chosen
  TunedOptions settings_;                                           // over those of the file
  Suite suite_;
};

}  // namespace

Suite parse_suite(std::string_view text, const std::string& name, const std::string& folder, const std::string& out,
                  const SuiteChoice& choice) {
  return Parser(text, name, folder).make(out, choice);
}

Suite load_suite(const std::string& path, const std::string& out, const SuiteChoice& choice) {
  return parse_suite(read_file(path, kMostTomlBytes), path, std::filesystem::path(path).parent_path().string(), out,
                     choice);
}

Tuning parse_tuning(std::string_view text, const std::string& name, const std::string& folder, const std::string& out,
                    const SuiteChoice& choice) {
  return Parser(text, name, folder).make_tuning(out, choice);
}

Tuning load_tuning(const std::string& path, const std::string& out, const SuiteChoice& choice) {
  return parse_tuning(read_file(path, kMostTomlBytes), path, std::filesystem::path(path).parent_path().string(), out,
                      choice);
}

}  // namespace gipo
