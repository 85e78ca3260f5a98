#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gipo/study/halving.h"
#include "gipo/study/suite_state.h"

namespace gipo {

// What was chosen for a method in a regime.
struct TuneResult {
  std::string method, regime;
  std::size_t candidates = 0;
  std::vector<RunSetting> settings;
  double score = 0;
  std::optional<double> runner_up;  // its score
};

// Successive halving of every method in every regime, each for itself, one round of all at a time:
//
//   round_suite -> whoever runs it -> take -> round_suite -> ... -> done
//
// It keeps nothing on disk. What was decided follows from the scores of the runs alone, so a tuning that was killed
// comes to the same decisions from the same runs. Used by one thread; `tuning` must live as long.
class Tuner {
 public:
  // The normalised score of a run; nothing where it failed.
  using ScoreOf = std::function<std::optional<double>(const SuiteRun& run)>;

  explicit Tuner(const Tuning& tuning);

  bool done() const { return halvings_.front().done(); }
  std::size_t round() const { return halvings_.front().round(); }     // the one to come, from 0 on
  const std::vector<std::size_t>& rounds() const { return rounds_; }  // seeds of each
  // The runs that the round adds: those who are left, on its further seeds.
  Suite round_suite() const;
  // Ends the round. Throws RunError where all runs of a method failed: there is nothing to choose by.
  void take(const Suite& round, const ScoreOf& score);

  // Candidates of each round, over methods, in one regime; known before anything is run.
  std::vector<std::size_t> candidates_of_rounds() const;
  std::vector<TuneResult> results() const;  // once done
  // tune.json: all that was tried so far. Neither it nor chosen.toml has a time or a path in it.
  std::string json() const;
  std::string chosen_toml() const;  // once done

 private:
  std::size_t first_of(std::size_t method) const;  // its candidates stand together
  const Halving& halving(std::size_t method, std::size_t regime) const;
  std::size_t score_index(std::size_t candidate, std::size_t regime, std::size_t task, std::size_t seed) const;
  std::string candidate_json(std::size_t method, std::size_t regime, std::size_t number) const;

  const Tuning& tuning_;
  const Suite& all_;
  std::vector<std::size_t> rounds_;            // seeds of each
  std::vector<Halving> halvings_;              // [methods][regimes]
  std::vector<std::optional<double>> scores_;  // [candidates][regimes][tasks][seeds]
};

// The score of a run with these returns; nothing where no episode ended.
std::optional<double> run_score(const RunReturns& returns, const SuiteTask& task, TuneScore score);

// "learner.policy_lr = 0.001, surrogate.sigma = 0.5"; "-" where there are none.
std::string settings_text(const std::vector<RunSetting>& settings);

}  // namespace gipo
