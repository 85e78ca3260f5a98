#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "gipo/cli/commands.h"
#include "gipo/cli/table.h"
#include "gipo/core/error.h"
#include "gipo/stats/bootstrap.h"
#include "gipo/study/score_file.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kProfilePoints = 101;

ScoreTable scaled(const ScoreFile& file, const std::string& path, std::string& how) {
  if (how == "auto") how = file.scales.empty() ? "none" : "reference";
  if (how == "none") return file.table;
  if (how == "min_max") return normalised(file.table, min_max_scales(file.table));
  if (file.scales.empty()) {
    throw Error(fmt::format("--normalise reference: {} states no random and reference scores (\"scales\")", path));
  }
  return normalised(file.table, file.scales);
}

// From 0 to 1 where the scores are normalised, over all of them where they are not.
std::vector<double> default_taus(const ScoreTable& table, bool normalised) {
  double low = 0, high = 1;
  if (!normalised) {
    low = HUGE_VAL, high = -HUGE_VAL;
    for (const ScoreScale& s : min_max_scales(table)) low = std::min(low, s.zero), high = std::max(high, s.one);
  }
  std::vector<double> taus(kProfilePoints);
  for (std::size_t i = 0; i < taus.size(); ++i) {
    taus[i] = low + (high - low) * static_cast<double>(i) / static_cast<double>(taus.size() - 1);
  }
  return taus;
}

// Methods from the best IQM to the worst; equal ones in the order of the file.
std::vector<std::size_t> ranking(const Estimates& e) {
  std::vector<std::size_t> order(e.methods.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return e.methods[a].iqm.value > e.methods[b].iqm.value; });
  return order;
}

Json number(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }
Json to_json(const Estimate& e) { return {{"value", e.value}, {"low", e.low}, {"high", e.high}}; }

Json per_task(const ScoreTable& table) {
  Json rows = Json::array();
  for (std::size_t m = 0; m < table.methods.size(); ++m) {
    for (std::size_t t = 0; t < table.tasks.size(); ++t) {
      const MeanStd s = mean_std(table.scores[m][t]);
      rows.push_back({{"method", table.methods[m]},
                      {"task", table.tasks[t]},
                      {"runs", table.scores[m][t].size()},
                      {"mean", s.mean},
                      {"std", number(s.std)}});
    }
  }
  return rows;
}

Json profile_rows(const ScoreTable& table, const Estimates& e) {
  Json rows = Json::array();
  for (std::size_t m = 0; m < table.methods.size(); ++m) {
    Json value = Json::array(), low = Json::array(), high = Json::array();
    for (const Estimate& p : e.methods[m].profile) {
      value.push_back(p.value), low.push_back(p.low), high.push_back(p.high);
    }
    rows.push_back({{"method", table.methods[m]}, {"value", value}, {"low", low}, {"high", high}});
  }
  return rows;
}

void print_json(const AggregateArguments& a, const ScoreTable& raw, const Estimates& e) {
  Json ranks = Json::array(), improvements = Json::array();
  const std::vector<std::size_t> order = ranking(e);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const MethodEstimates& m = e.methods[order[i]];
    std::size_t runs = 0;
    for (const auto& task : raw.scores[order[i]]) runs += task.size();
    ranks.push_back({{"rank", i + 1},
                     {"method", raw.methods[order[i]]},
                     {"runs", runs},
                     {"iqm", to_json(m.iqm)},
                     {"median", to_json(m.median)},
                     {"mean", to_json(m.mean)},
                     {"optimality_gap", to_json(m.optimality_gap)}});
  }
  for (const Improvement& i : e.improvements) {
    Json row = {{"x", raw.methods[i.x]}, {"y", raw.methods[i.y]}};
    row.update(to_json(i.probability));
    improvements.push_back(row);
  }
  const Json out = {{"normalise", a.normalise},
                    {"repetitions", a.bootstrap.repetitions},
                    {"profile_repetitions", a.bootstrap.profile_repetitions},
                    {"confidence", a.bootstrap.confidence},
                    {"seed", a.bootstrap.seed},
                    {"target", a.bootstrap.target},
                    {"tasks", raw.tasks},
                    {"ranks", ranks},
                    {"per_task", per_task(raw)},
                    {"improvement", improvements},
                    {"profile", {{"taus", a.bootstrap.taus}, {"rows", profile_rows(raw, e)}}}};
  fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

std::string in_words(const Estimate& e) { return fmt::format("{:.4f} [{:.4f}, {:.4f}]", e.value, e.low, e.high); }

void print_text(const AggregateArguments& a, const ScoreTable& raw, const Estimates& e) {
  const std::vector<std::size_t> order = ranking(e);
  Table tasks = {{"mean +- standard deviation of the runs"}};
  for (const std::string& task : raw.tasks) tasks[0].push_back(task);
  for (const std::size_t m : order) {
    tasks.push_back({raw.methods[m]});
    for (const auto& runs : raw.scores[m]) {
      const MeanStd s = mean_std(runs);
      tasks.back().push_back(fmt::format("{:.2f} +- {:.2f} ({})", s.mean, s.std, runs.size()));
    }
  }
  Table ranks = {{"rank and method", "IQM", "median", "mean", "optimality gap", "P(first beats it)"}};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const MethodEstimates& m = e.methods[order[i]];
    std::string beaten = "-";
    for (const Improvement& p : e.improvements) {
      const Estimate& v = p.probability;
      if (p.x == order[0] && p.y == order[i]) beaten = in_words(v);
      if (p.y == order[0] && p.x == order[i]) beaten = in_words({1 - v.value, 1 - v.high, 1 - v.low});
    }
    ranks.push_back({fmt::format("{:2} {}", i + 1, raw.methods[order[i]]), in_words(m.iqm), in_words(m.median),
                     in_words(m.mean), in_words(m.optimality_gap), beaten});
  }
  fmt::print("{}\n{}scores normalised: {}; {:g}% intervals, stratified bootstrap, {} repetitions, seed {}\n",
             as_text(tasks), as_text(ranks), a.normalise, 100 * a.bootstrap.confidence, a.bootstrap.repetitions,
             a.bootstrap.seed);
}

}  // namespace

int aggregate(const AggregateArguments& given) {
  AggregateArguments a = given;
  const ScoreFile file = load_scores(a.file);
  const ScoreTable table = scaled(file, a.file, a.normalise);
  std::vector<double>& taus = a.bootstrap.taus;
  if (taus.empty()) taus = default_taus(table, a.normalise != "none");
  std::sort(taus.begin(), taus.end());
  a.bootstrap.profile_repetitions = std::min(a.bootstrap.profile_repetitions, a.bootstrap.repetitions);
  const Estimates e = estimate(table, a.bootstrap);
  if (a.json) {
    print_json(a, file.table, e);
  } else {
    print_text(a, file.table, e);
  }
  return kDone;
}

}  // namespace gipo::cli
