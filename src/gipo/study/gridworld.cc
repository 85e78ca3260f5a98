#include "gipo/study/gridworld.h"

#include <Eigen/LU>
#include <cmath>

#include "gipo/core/error.h"

namespace gipo {
namespace {

using Matrix = Eigen::Matrix<double, kGridStates, kGridStates>;
using Vector = Eigen::Matrix<double, kGridStates, 1>;
constexpr std::size_t kSize = kGridStates * kGridActions;

// I - discount P, P the moves between states that are not the goal.
Matrix bellman(const GridPolicy& policy, double discount) {
  Matrix m = Matrix::Identity();
  for (std::size_t s = 0; s < kGridStates; ++s) {
    for (std::size_t a = 0; a < kGridActions; ++a) {
      const std::size_t next = grid_step(s, a);
      if (next != kGridGoal)
        m(static_cast<Eigen::Index>(s), static_cast<Eigen::Index>(next)) -= discount * policy[s][a];
    }
  }
  return m;
}

std::array<double, kGridStates> to_array(const Vector& v) { return {v(0), v(1), v(2)}; }

}  // namespace

ActionProbabilities softmax(const std::array<double, kGridActions>& theta) {
  ActionProbabilities p{};
  double sum = 0;
  for (std::size_t a = 0; a < kGridActions; ++a) sum += p[a] = std::exp(theta[a]);
  for (double& v : p) v /= sum;
  return p;
}

GridPolicy in_every_state(const ActionProbabilities& probabilities) {
  return {probabilities, probabilities, probabilities};
}

GridPolicy grid_target() { return in_every_state(softmax({0, 1, 0, 1})); }

std::size_t grid_step(std::size_t state, std::size_t action) {
  // States are numbered row by row, two in each; up, down, left, right.
  const std::size_t row = state / 2, column = state % 2;
  if (action == 0) return column;
  if (action == 1) return 2 + column;
  return 2 * row + (action == kGridRight ? 1 : 0);
}

std::array<double, kGridStates> grid_values(const GridPolicy& policy, double discount) {
  const Vector reward = Vector::Constant(-1);
  return to_array(bellman(policy, discount).partialPivLu().solve(reward));
}

std::array<std::array<double, kGridActions>, kGridStates> grid_advantages(const GridPolicy& policy, double discount) {
  const std::array<double, kGridStates> v = grid_values(policy, discount);
  std::array<std::array<double, kGridActions>, kGridStates> advantage{};
  for (std::size_t s = 0; s < kGridStates; ++s) {
    for (std::size_t a = 0; a < kGridActions; ++a) {
      const std::size_t next = grid_step(s, a);
      advantage[s][a] = -1 + (next == kGridGoal ? 0 : discount * v[next]) - v[s];
    }
  }
  return advantage;
}

std::array<double, kGridStates> grid_visits(const GridPolicy& policy, double discount) {
  const Vector start = Vector::Unit(0);
  return to_array(bellman(policy, discount).transpose().partialPivLu().solve(start));
}

GradientMoments::Error GradientMoments::error() const {
  Error e;
  double squares = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    squares += (expectation[i] - truth[i]) * (expectation[i] - truth[i]);
    e.variance += covariance[i * truth.size() + i];
  }
  e.bias = std::sqrt(squares);
  return e;
}

GradientMoments::Error GradientMoments::error(std::size_t i) const {
  GIPO_CHECK(i < truth.size());
  return {std::abs(expectation[i] - truth[i]), covariance[i * truth.size() + i]};
}

GridStudy::GridStudy(const GridPolicy& behaviour, double discount, double prox)
    : target_(grid_target()), behaviour_(behaviour), advantage_(grid_advantages(target_, discount)) {
  for (std::size_t s = 0; s < kGridStates; ++s) {
    std::array<double, kGridActions> theta{};
    for (std::size_t a = 0; a < kGridActions; ++a) {
      theta[a] = (1 - prox) * std::log(behaviour_[s][a]) + prox * std::log(target_[s][a]);
    }
    centre_[s] = softmax(theta);
  }
  state_weights_ = grid_visits(behaviour, discount);
  const double total = state_weights_[0] + state_weights_[1] + state_weights_[2];
  for (double& w : state_weights_) w /= total;
}

double GridStudy::log_ratio(std::size_t s, std::size_t a) const {
  return std::log(target_[s][a]) - std::log(behaviour_[s][a]);
}

GradientMoments GridStudy::moments(const Surrogate& surrogate, const std::array<double, kGridStates>& weights) const {
  GradientMoments m = {std::vector<double>(kSize), std::vector<double>(kSize), std::vector<double>(kSize * kSize)};
  std::vector<double> second(kSize * kSize);
  for (std::size_t s = 0; s < kGridStates; ++s) {
    std::array<double, kGridActions> log_ratios{}, multiplier{}, loss{};
    for (std::size_t a = 0; a < kGridActions; ++a) {
      log_ratios[a] = surrogate.centred() ? std::log(target_[s][a] / centre_[s][a]) : log_ratio(s, a);
    }
    surrogate.evaluate(std::span<const double>(log_ratios), std::span<const double>(advantage_[s]),
                       std::span<double>(multiplier), std::span<double>(loss));
    for (std::size_t a = 0; a < kGridActions; ++a) {
      if (surrogate.centred()) {
        multiplier[a] *= importance_weight(std::log(centre_[s][a] / behaviour_[s][a]), surrogate.importance_max());
      }
      const double p = weights[s] * behaviour_[s][a];
      std::array<double, kGridActions> g{};
      for (std::size_t b = 0; b < kGridActions; ++b) {
        const double score = (a == b ? 1 : 0) - target_[s][b];  // d log pi(a|s) / d theta_b
        g[b] = multiplier[a] * advantage_[s][a] * score;
        m.expectation[s * kGridActions + b] += p * g[b];
        m.truth[s * kGridActions + b] += weights[s] * target_[s][a] * advantage_[s][a] * score;
      }
      for (std::size_t b = 0; b < kSize; ++b) {
        for (std::size_t c = 0; c < kGridActions && b / kGridActions == s; ++c) {
          second[b * kSize + s * kGridActions + c] += p * g[b % kGridActions] * g[c];
        }
      }
    }
  }
  for (std::size_t i = 0; i < kSize * kSize; ++i) {
    m.covariance[i] = second[i] - m.expectation[i / kSize] * m.expectation[i % kSize];
  }
  return m;
}

GradientMoments GridStudy::over_states(const Surrogate& surrogate) const { return moments(surrogate, state_weights_); }

GradientMoments GridStudy::at_state(const Surrogate& surrogate, std::size_t state) const {
  GIPO_CHECK(state < kGridStates);
  std::array<double, kGridStates> weights{};
  weights[state] = 1;
  const GradientMoments all = moments(surrogate, weights);
  // The other states' components are zero: the state's own four are left.
  GradientMoments m;
  const std::size_t begin = state * kGridActions;
  for (std::size_t b = 0; b < kGridActions; ++b) {
    m.truth.push_back(all.truth[begin + b]);
    m.expectation.push_back(all.expectation[begin + b]);
    for (std::size_t c = 0; c < kGridActions; ++c) {
      m.covariance.push_back(all.covariance[(begin + b) * kSize + begin + c]);
    }
  }
  return m;
}

}  // namespace gipo
