#include "gipo/study/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "gipo/core/error.h"

namespace gipo {
namespace {

using Json = nlohmann::ordered_json;

std::string in_one_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// As TOML writes it where JSON has no word for it: inf.
Json value_json(const OptionValue& value) {
  const std::string text = to_json(value);
  return Json::accept(text) ? Json::parse(text) : Json(to_toml(value));
}

std::size_t count_of(const Tuning& tuning, std::size_t method) {
  return static_cast<std::size_t>(std::ranges::count(tuning.candidates, method, &Candidate::method));
}

}  // namespace

Tuner::Tuner(const Tuning& tuning) : tuning_(tuning), all_(tuning.runs) {
  const TuneSpec& spec = all_.tune.value();
  rounds_ = round_seeds(spec.first_seeds, spec.seeds.size());
  for (std::size_t m = 0; m < tuning.methods.size(); ++m) {
    const Halving fresh(count_of(tuning, m), all_.tasks.size(), rounds_, spec.keep);
    halvings_.insert(halvings_.end(), all_.regimes.size(), fresh);
  }
  scores_.resize(tuning.candidates.size() * all_.regimes.size() * all_.tasks.size() * spec.seeds.size());
}

std::size_t Tuner::first_of(std::size_t method) const {
  return static_cast<std::size_t>(std::ranges::find(tuning_.candidates, method, &Candidate::method) -
                                  tuning_.candidates.begin());
}

const Halving& Tuner::halving(std::size_t method, std::size_t regime) const {
  return halvings_[method * all_.regimes.size() + regime];
}

std::size_t Tuner::score_index(std::size_t candidate, std::size_t regime, std::size_t task, std::size_t seed) const {
  return ((candidate * all_.regimes.size() + regime) * all_.tasks.size() + task) * all_.seeds.size() + seed;
}

Suite Tuner::round_suite() const {
  GIPO_CHECK(!done());
  const std::size_t regimes = all_.regimes.size();
  std::vector<bool> in_it(tuning_.candidates.size() * regimes, false), anywhere(tuning_.candidates.size(), false);
  for (std::size_t m = 0; m < tuning_.methods.size(); ++m) {
    const std::size_t first = first_of(m);
    for (std::size_t r = 0; r < regimes; ++r) {
      for (const std::size_t c : halving(m, r).alive()) in_it[(first + c) * regimes + r] = anywhere[first + c] = true;
    }
  }
  Suite suite;
  suite.name = all_.name, suite.out = all_.out, suite.keep_checkpoints = all_.keep_checkpoints;
  suite.tasks = all_.tasks, suite.regimes = all_.regimes, suite.all = all_.all;
  const std::size_t before = round() > 0 ? rounds_[round() - 1] : 0;
  suite.seeds.assign(all_.seeds.begin() + static_cast<std::ptrdiff_t>(before),
                     all_.seeds.begin() + static_cast<std::ptrdiff_t>(rounds_[round()]));
  std::vector<std::size_t> place(anywhere.size());
  for (std::size_t c = 0; c < anywhere.size(); ++c) {
    place[c] = suite.methods.size();
    if (anywhere[c]) suite.methods.push_back(all_.methods[c]);
  }
  for (const SuiteRun& run : all_.runs) {
    if (!in_it[run.method * regimes + run.regime]) continue;
    if (std::ranges::find(suite.seeds, run.seed) == suite.seeds.end()) continue;
    suite.runs.push_back(run);
    suite.runs.back().method = place[run.method];
  }
  return suite;
}

void Tuner::take(const Suite& round, const ScoreOf& score) {
  std::map<std::string_view, std::size_t> candidates;
  for (std::size_t c = 0; c < all_.methods.size(); ++c) candidates[all_.methods[c]] = c;
  for (const SuiteRun& run : round.runs) {
    const auto seed = static_cast<std::size_t>(std::ranges::find(all_.seeds, run.seed) - all_.seeds.begin());
    scores_[score_index(candidates.at(round.methods[run.method]), run.regime, run.task, seed)] = score(run);
  }
  for (std::size_t m = 0; m < tuning_.methods.size(); ++m) {
    const std::size_t first = first_of(m);
    for (std::size_t r = 0; r < all_.regimes.size(); ++r) {
      Halving& h = halvings_[m * all_.regimes.size() + r];
      const std::vector<std::size_t> tried = h.alive();
      const std::size_t runs = all_.tasks.size() * h.seeds();
      h.take([&](std::size_t c, std::size_t t, std::size_t s) { return scores_[score_index(first + c, r, t, s)]; });
      if (std::ranges::all_of(tried, [&](std::size_t c) { return h.standings()[c].failed == runs; })) {
        throw RunError(fmt::format("{}: every run of method {}{} failed: nothing can be chosen; {}/output has why",
                                   all_.name, tuning_.methods[m],
                                   all_.regimes[r].empty() ? "" : " in regime " + all_.regimes[r], all_.out));
      }
    }
  }
}

std::vector<std::size_t> Tuner::candidates_of_rounds() const {
  std::vector<std::size_t> counts(rounds_.size(), 0);
  for (std::size_t m = 0; m < tuning_.methods.size(); ++m) {
    std::size_t n = count_of(tuning_, m);
    for (std::size_t& count : counts) count += n, n = going_on(n, all_.tune->keep);
  }
  return counts;
}

std::vector<TuneResult> Tuner::results() const {
  GIPO_CHECK(done());
  std::vector<TuneResult> all;
  for (std::size_t m = 0; m < tuning_.methods.size(); ++m) {
    for (std::size_t r = 0; r < all_.regimes.size(); ++r) {
      const Halving& h = halving(m, r);
      TuneResult result{tuning_.methods[m],
                        all_.regimes[r],
                        h.standings().size(),
                        tuning_.candidates[first_of(m) + h.chosen()].settings,
                        h.standings()[h.chosen()].mean,
                        {}};
      if (h.runner_up()) result.runner_up = h.standings()[*h.runner_up()].mean;
      all.push_back(std::move(result));
    }
  }
  return all;
}

std::string Tuner::candidate_json(std::size_t method, std::size_t regime, std::size_t number) const {
  const std::size_t candidate = first_of(method) + number;
  const CandidateStanding& standing = halving(method, regime).standings()[number];
  Json options = Json::object(), scores = Json::object(), means = Json::object();
  for (const RunSetting& s : tuning_.candidates[candidate].settings) options[s.key] = value_json(s.value);
  for (std::size_t t = 0; t < all_.tasks.size(); ++t) {
    Json runs = Json::array();
    for (std::size_t s = 0; s < standing.seeds; ++s) {
      const std::optional<double> score = scores_[score_index(candidate, regime, t, s)];
      runs.push_back(score ? Json(*score) : Json(nullptr));
    }
    scores[all_.tasks[t].name] = std::move(runs);
    if (standing.rounds > 0) means[all_.tasks[t].name] = standing.tasks[t];
  }
  const std::vector<std::int64_t> seeds(all_.seeds.begin(),
                                        all_.seeds.begin() + static_cast<std::ptrdiff_t>(standing.seeds));
  return in_one_line({{"name", tuning_.candidates[candidate].name},
                      {"options", options},
                      {"mean", standing.rounds > 0 ? Json(standing.mean) : Json(nullptr)},
                      {"rounds", standing.rounds},
                      {"dropped_in_round", standing.dropped ? Json(standing.rounds) : Json(nullptr)},
                      {"failed_runs", standing.failed},
                      {"seeds", seeds},
                      {"task_means", means},
                      {"scores", scores}});
}

std::string Tuner::json() const {
  const TuneSpec& spec = *all_.tune;
  Json tasks = Json::array();
  for (const SuiteTask& t : all_.tasks) {
    tasks.push_back({{"name", t.name}, {"random", *t.random}, {"reference", *t.reference}});
  }
  const Json head = {{"schema_version", 1},           {"name", all_.name},      {"score", word_for(spec.score)},
                     {"candidates", spec.candidates}, {"keep", spec.keep},      {"seeds", spec.seeds},
                     {"seeds_of_rounds", rounds_},    {"rounds_done", round()}, {"tasks", tasks}};
  std::string rows;
  for (std::size_t m = 0; m < tuning_.methods.size(); ++m) {
    for (std::size_t r = 0; r < all_.regimes.size(); ++r) {
      const Halving& h = halving(m, r);
      const Json name = all_.regimes[r].empty() ? Json(nullptr) : Json(all_.regimes[r]);
      const auto named = [&](std::size_t c) { return Json(tuning_.candidates[first_of(m) + c].name); };
      const Json row = {{"method", tuning_.methods[m]},
                        {"regime", name},
                        {"chosen", done() ? named(h.chosen()) : Json(nullptr)},
                        {"runner_up", done() && h.runner_up() ? named(*h.runner_up()) : Json(nullptr)}};
      std::string candidates;
      for (std::size_t c = 0; c < h.standings().size(); ++c) {
        candidates += (c > 0 ? ",\n  " : "\n  ") + candidate_json(m, r, c);
      }
      std::string text = in_one_line(row);
      text.pop_back();
      rows += fmt::format("{}{},\"tried\":[{}]}}", rows.empty() ? "\n" : ",\n", text, candidates);
    }
  }
  std::string text = in_one_line(head);
  text.pop_back();
  return text + ",\n\"methods\":[" + rows + "\n]}\n";
}

std::string Tuner::chosen_toml() const {
  std::string text = fmt::format("# What `gipo tune` chose for the methods of the suite {}.\n", toml_text(all_.name));
  for (const TuneResult& result : results()) {
    text += "\n[[method]]\nname = " + toml_text(result.method) + "\n";
    if (!result.regime.empty()) text += "regime = " + toml_text(result.regime) + "\n";
    for (const RunSetting& s : result.settings) text += setting_toml(s) + "\n";
  }
  return text;
}

std::optional<double> run_score(const RunReturns& returns, const SuiteTask& task, TuneScore score) {
  const auto scaled = [&](const std::optional<double>& value) -> std::optional<double> {
    if (!value) return std::nullopt;
    return (*value - *task.random) / (*task.reference - *task.random);
  };
  const std::optional<double> training = scaled(returns.training), greedy = scaled(returns.greedy);
  if (score == TuneScore::kTraining) return training;
  if (score == TuneScore::kGreedy) return greedy;
  return training && greedy ? std::optional((*training + *greedy) / 2) : std::nullopt;
}

std::string settings_text(const std::vector<RunSetting>& settings) {
  std::string text;
  for (const RunSetting& s : settings) text += (text.empty() ? "" : ", ") + setting_toml(s);
  return text.empty() ? "-" : text;
}

}  // namespace gipo
