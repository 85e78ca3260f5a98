#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace gipo {

// So many of the seeds each round has: `first`, then twice as many each time, all of them in the last.
std::vector<std::size_t> round_seeds(std::size_t first, std::size_t all);
// So many of n candidates go on to another round: the share, but two where there are two. A round of one would decide
// nothing.
std::size_t going_on(std::size_t n, double keep);

// Where a candidate stands after the last round that it was in.
struct CandidateStanding {
  std::size_t rounds = 0, seeds = 0;
  std::vector<double> tasks;  // [tasks] mean over its seeds
  double mean = 0;            // over the tasks
  std::size_t failed = 0;     // runs
  bool dropped = false;       // after that round
};

// Successive halving over the candidates 0, 1, ... of one method. It knows scores alone: neither files nor time.
class Halving {
 public:
  // The normalised score of a run; nothing where it failed. A seed is its place in the list of seeds.
  using ScoreOf = std::function<std::optional<double>(std::size_t candidate, std::size_t task, std::size_t seed)>;

  Halving(std::size_t candidates, std::size_t tasks, std::vector<std::size_t> seeds_of_rounds, double keep);

  bool done() const { return round_ == seeds_.size(); }
  std::size_t round() const { return round_; }                      // the one to come, from 0 on
  std::size_t seeds() const { return seeds_[round_]; }              // so many it has, from the first on
  const std::vector<std::size_t>& alive() const { return alive_; }  // who is in it, in order
  // Ends the round. A failed run counts as the worst that any candidate of the round made of the task, and as random
  // play (0) at best. Of equal means the earlier candidate wins.
  void take(const ScoreOf& score);

  const std::vector<CandidateStanding>& standings() const { return standings_; }
  // Once done.
  std::size_t chosen() const { return ranking_.front(); }
  // The second of the last round; nothing where there was one candidate.
  std::optional<std::size_t> runner_up() const;

 private:
  std::size_t tasks_, round_ = 0;
  std::vector<std::size_t> seeds_;  // [rounds]
  double keep_;
  std::vector<std::size_t> alive_, ranking_;  // the latter of the last round, best first
  std::vector<CandidateStanding> standings_;  // [candidates]
};

}  // namespace gipo
