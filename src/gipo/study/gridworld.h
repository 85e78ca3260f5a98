#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "gipo/objective/surrogate.h"

namespace gipo {

// The paper's 2x2 grid (appendix "Toy Experiment Setting"): S0 top left, S1 top right, S2 bottom left, the goal bottom
// right. Moves off the grid stay; every step costs 1 until the goal. Small enough that nothing is sampled.
inline constexpr std::size_t kGridStates = 3, kGridActions = 4, kGridGoal = 3;
inline constexpr std::array<const char*, kGridActions> kGridActionNames = {"up", "down", "left", "right"};
inline constexpr std::size_t kGridRight = 3;

using ActionProbabilities = std::array<double, kGridActions>;
using GridPolicy = std::array<ActionProbabilities, kGridStates>;

ActionProbabilities softmax(const std::array<double, kGridActions>& theta);
GridPolicy in_every_state(const ActionProbabilities& probabilities);
GridPolicy grid_target();  // pi: softmax[0, 1, 0, 1] in every state

std::size_t grid_step(std::size_t state, std::size_t action);
std::array<double, kGridStates> grid_values(const GridPolicy& policy, double discount);
// Q - V of the policy, [state][action].
std::array<std::array<double, kGridActions>, kGridStates> grid_advantages(const GridPolicy& policy, double discount);
// Expected discounted visits of each state from S0: the sum over t of discount^t P(s_t = s).
std::array<double, kGridStates> grid_visits(const GridPolicy& policy, double discount);

// First two moments of the one-sample gradient estimate g = m A grad log pi(a|s) with a ~ mu, by enumeration, against
// the truth E_pi[A grad log pi]. theta has a component for every state and action. Components of one state alone where
// the action is drawn there; of all states where the state too is drawn, from mu's discounted visits.
struct GradientMoments {
  std::vector<double> truth, expectation;
  std::vector<double> covariance;  // [n, n]

  // Of some components: the length of (expectation - truth), the trace of the covariance, bias^2 + variance.
  struct Error {
    double bias = 0, variance = 0;
    double mse() const { return bias * bias + variance; }
  };
  Error error() const;
  Error error(std::size_t component) const;
};

// What all moments have in common, computed once.
class GridStudy {
 public:
  // `prox`: where between mu (0) and pi (1) the policy is that a centred surrogate is about: mu^(1-prox) pi^prox.
  GridStudy(const GridPolicy& behaviour, double discount, double prox = 0);

  GradientMoments at_state(const Surrogate& surrogate, std::size_t state) const;
  GradientMoments over_states(const Surrogate& surrogate) const;

  const GridPolicy& behaviour() const { return behaviour_; }
  // log(pi / mu), [state][action].
  double log_ratio(std::size_t state, std::size_t action) const;

 private:
  GradientMoments moments(const Surrogate& surrogate, const std::array<double, kGridStates>& weights) const;

  GridPolicy target_, behaviour_, centre_;
  std::array<std::array<double, kGridActions>, kGridStates> advantage_;
  std::array<double, kGridStates> state_weights_;  // mu's visits, summing to 1
};

}  // namespace gipo
