#include "gipo/study/suite_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/io/json_text.h"
#include "gipo/run/run_folder.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr JsonLimits kLimits = {512 * 1024 * 1024, 32};  // of 100,000 runs, twice

std::string row_text(const Json& row) { return row.dump(-1, ' ', false, Json::error_handler_t::replace); }

ResultRow read_row(const Json& row, const std::string& where) {
  if (!row.is_object()) throw Error(where + ": wanted an object");
  const auto text = [&](const char* key) {
    const auto it = row.find(key);
    if (it == row.end() || !it->is_string()) throw Error(fmt::format("{}: {}: wanted text", where, key));
    return it->get<std::string>();
  };
  ResultRow out{text("task"), text("method"), text("regime"), text("name"), 0, text("ended"), "", {}, row_text(row)};
  const auto seed = row.find("seed");
  if (seed == row.end() || !seed->is_number_integer()) throw Error(where + ": seed: wanted a whole number");
  out.seed = seed->get<std::int64_t>();
  if (row.contains("options")) out.options = text("options");
  if (!ended_well(out.ended)) return out;
  for (const char* key : {"final_return", "eval_return"}) {
    const Json stats = row.value(key, Json()), mean = stats.is_object() ? stats.value("mean", Json("")) : Json("");
    if (!mean.is_null() && !mean.is_number()) throw Error(fmt::format("{}: {}: it has no mean", where, key));
  }
  out.returns = returns_of(row);
  return out;
}

template <class Key>
std::map<Key, std::size_t> numbered(const std::vector<Key>& all) {
  std::map<Key, std::size_t> numbers;
  for (const Key& key : all) numbers.emplace(key, numbers.size());
  return numbers;
}

}  // namespace

std::vector<ResultRow> parse_results(std::string_view text, const std::string& where) {
  const Json rows = parse_json<Json>(text, where, kLimits);
  if (!rows.is_array()) throw Error(where + ": wanted a list of rows, one per run");
  std::vector<ResultRow> out;
  out.reserve(rows.size());
  std::set<std::string> names;
  for (const Json& row : rows) {
    out.push_back(read_row(row, fmt::format("{}: row {}", where, out.size() + 1)));
    if (names.insert(out.back().name).second) continue;
    throw Error(fmt::format("{}: the run {} stands there twice", where, out.back().name));
  }
  return out;
}

// Where rows stand: as runs do in the whole suite, and behind them what its file no longer has.
class SuiteResults::Order {
 public:
  explicit Order(const SuiteChoice& all)
      : seeds_(numbered(all.seeds)), tasks_(numbered(all.tasks)), methods_(numbered(all.methods)) {
    for (const std::string& regime : all.regimes) regimes_.emplace(regime_text(regime), regimes_.size());
  }

  Place place(std::int64_t seed, const std::string& regime, const std::string& task, const std::string& method) const {
    const auto s = seeds_.find(seed);
    const auto r = regimes_.find(regime), t = tasks_.find(task), m = methods_.find(method);
    const bool known = s != seeds_.end() && r != regimes_.end() && t != tasks_.end() && m != methods_.end();
    return known ? Place{s->second, r->second, t->second, m->second} : Place{seeds_.size(), 0, 0, 0};
  }

 private:
  std::map<std::int64_t, std::size_t> seeds_;
  std::map<std::string, std::size_t> regimes_, tasks_, methods_;
};

SuiteResults::SuiteResults(const Suite& suite) : suite_(&suite), kept_(suite.runs.size()) {
  const Order order(suite.all);
  for (std::size_t i = 0; i < suite.runs.size(); ++i) {
    const SuiteRun& run = suite.runs[i];
    options_.push_back(options_checksum(run.plan.config));
    Json row = head(i);
    row["ended"] = "not begun or not ended";
    lines_.push_back({order.place(run.seed, row["regime"], row["task"], row["method"]), row_text(row)});
  }
  const std::string path = suite.out + "/results.json";
  if (fs::exists(path)) read(path, order);
  order_.resize(lines_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::stable_sort(order_, {}, [&](std::size_t line) { return lines_[line].place; });
}

void SuiteResults::read(const std::string& path, const Order& order) {
  std::map<std::string_view, std::size_t> runs;
  for (std::size_t i = 0; i < kept_.size(); ++i) runs[suite_->runs[i].plan.name] = i;
  for (ResultRow& row : parse_results(read_file(path, kLimits.bytes), path)) {
    const auto run = runs.find(row.name);
    if (run == runs.end()) {
      lines_.push_back({order.place(row.seed, row.regime, row.task, row.method), std::move(row.text)});
    } else if (ended_well(row.ended)) {
      take_row(run->second, row, path);
    }
  }
}

// Until the run has ended again, a finished row is never given up.
void SuiteResults::take_row(std::size_t run, ResultRow& row, const std::string& path) {
  lines_[run].text = std::move(row.text);
  if (row.options.empty() || fs::exists(suite_->runs[run].plan.run_dir)) return;
  if (row.options != options_[run]) {
    throw Error(
        fmt::format("{}: {} was run with other options, and its folder is gone: remove the row or the file, or give "
                    "the suite another --out",
                    path, row.name));
  }
  kept_[run] = row.returns;
}

Json SuiteResults::head(std::size_t run) const {
  const SuiteRun& r = suite_->runs[run];
  return {{"task", suite_->tasks[r.task].name},
          {"method", suite_->methods[r.method]},
          {"regime", regime_text(suite_->regimes[r.regime])},
          {"seed", r.seed},
          {"name", r.plan.name},
          {"options", options_[run]}};
}

void SuiteResults::take(std::size_t run) {
  const std::string path = suite_->runs[run].plan.run_dir + "/summary.json";
  if (!fs::exists(path)) return;
  Json row = head(run), summary;
  try {
    summary = read_summary(path);
  } catch (const Error&) {  // of a run that failed: the runner says why
    return;
  }
  for (const char* key :
       {"ended", "env_steps", "updates", "episodes", "final_return", "eval_return", "staleness", "window"}) {
    row[key] = summary.value(key, Json());
  }
  lines_[run].text = row_text(row);
}

RunReturns SuiteResults::returns(std::size_t run) const {
  return kept_[run] ? *kept_[run] : returns_of(read_summary(suite_->runs[run].plan.run_dir + "/summary.json"));
}

std::string SuiteResults::text() const {
  std::string rows;
  for (const std::size_t line : order_) rows += (rows.empty() ? "" : ",\n") + lines_[line].text;
  return "[\n" + rows + "\n]\n";
}

}  // namespace gipo
