#include "gipo/study/gridworld.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gipo/core/random.h"
#include "gipo/study/grid_study.h"

namespace gipo {
namespace {

SurrogateOptions options(const std::string& name) {
  SurrogateOptions o;
  o.name = name;
  return o;
}

GridPolicy behaviour(const std::string& name) { return in_every_state(parse_behaviour(name).probabilities); }

TEST(Gridworld, MovesAndWalls) {
  const std::size_t next[3][4] = {{0, 2, 0, 1}, {1, 3, 0, 1}, {0, 2, 2, 3}};
  for (std::size_t s = 0; s < kGridStates; ++s) {
    for (std::size_t a = 0; a < kGridActions; ++a) EXPECT_EQ(grid_step(s, a), next[s][a]) << s << " " << a;
  }
}

// Values by going through the Bellman equation until nothing moves: another way than the solver's.
TEST(Gridworld, ValuesSatisfyBellmanAndAdvantagesAverageToZero) {
  for (const double discount : {0.0, 0.9, 0.99, 1.0}) {
    const GridPolicy pi = grid_target();
    std::array<double, 4> v{};
    for (int sweep = 0; sweep < 10'000; ++sweep) {
      for (std::size_t s = 0; s < kGridStates; ++s) {
        double sum = 0;
        for (std::size_t a = 0; a < kGridActions; ++a) sum += pi[s][a] * (-1 + discount * v[grid_step(s, a)]);
        v[s] = sum;
      }
    }
    const auto values = grid_values(pi, discount);
    const auto advantages = grid_advantages(pi, discount);
    for (std::size_t s = 0; s < kGridStates; ++s) {
      EXPECT_NEAR(values[s], v[s], 1e-12);
      double mean = 0;
      for (std::size_t a = 0; a < kGridActions; ++a) mean += pi[s][a] * advantages[s][a];
      EXPECT_NEAR(mean, 0, 1e-14);
    }
  }
}

// Exact facts of the paper: the clip removes all of the gradient in cases A and B, not in C.
TEST(Gridworld, PpoHasNoGradientAtS0InCasesAAndB) {
  for (const double discount : {0.9, 0.99}) {
    for (const char* name : {"A", "B"}) {
      const GradientMoments m = GridStudy(behaviour(name), discount).at_state(Surrogate(options("ppo")), 0);
      for (const double e : m.expectation) EXPECT_EQ(e, 0.0) << name;
      for (const double c : m.covariance) EXPECT_EQ(c, 0.0) << name;
    }
    const GradientMoments c = GridStudy(behaviour("C"), discount).at_state(Surrogate(options("ppo")), 0);
    EXPECT_GT(std::abs(c.expectation[kGridRight]), 1e-3);
    EXPECT_GT(c.error(kGridRight).variance, 1e-3);
  }
}

TEST(Gridworld, PlainImportanceRatioHasNoBias) {
  for (const char* name : {"A", "B", "C", "pi:0.1,right:0.9"}) {
    const GridStudy study(behaviour(name), 0.9);
    EXPECT_LT(study.over_states(Surrogate(options("no_clip"))).error().bias, 1e-15);
    for (std::size_t s = 0; s < kGridStates; ++s) {
      EXPECT_LT(study.at_state(Surrogate(options("no_clip")), s).error().bias, 1e-15);
    }
  }
}

// Between mu and pi: at mu a centre changes nothing, at pi only the importance weight is left, and uncut it has no bias.
TEST(Gridworld, CentreMovesFromTheBehaviourToThePolicy) {
  for (const char* name : {"A", "B", "C"}) {
    for (const char* surrogate : {"gipo", "ppo", "sapo"}) {
      SurrogateOptions o = options(surrogate);
      const GradientMoments plain = GridStudy(behaviour(name), 0.9).over_states(Surrogate(o));
      o.centre = Centre::kProximal;
      o.importance_max = 1e9;
      const GradientMoments at_mu = GridStudy(behaviour(name), 0.9, 0).over_states(Surrogate(o));
      for (std::size_t i = 0; i < plain.expectation.size(); ++i) {
        EXPECT_NEAR(at_mu.expectation[i], plain.expectation[i], 1e-15) << name << " " << surrogate;
      }
      EXPECT_LT(GridStudy(behaviour(name), 0.9, 1).over_states(Surrogate(o)).error().bias, 1e-15) << surrogate;
      const double half = GridStudy(behaviour(name), 0.9, 0.5).over_states(Surrogate(o)).error().bias;
      EXPECT_LT(half, plain.error().bias) << name << " " << surrogate;
      // A cut weight is what is left of the plain ratio: bias for less variance.
      o.importance_max = 1;
      const GradientMoments::Error cut = GridStudy(behaviour(name), 0.9, 1).over_states(Surrogate(o)).error();
      SurrogateOptions truncated = options("truncated");
      truncated.rho_max = 1;
      const GradientMoments::Error same = GridStudy(behaviour(name), 0.9).over_states(Surrogate(truncated)).error();
      EXPECT_NEAR(cut.bias, same.bias, 1e-15);
      EXPECT_NEAR(cut.variance, same.variance, 1e-15);
    }
  }
}

TEST(Gridworld, OnPolicyAllSurrogatesAgree) {
  const GridStudy study(grid_target(), 0.9);
  const auto expected = study.over_states(Surrogate(options("no_clip"))).expectation;
  for (const char* name : {"ppo", "sapo", "gipo"}) {
    const auto e = study.over_states(Surrogate(options(name))).expectation;
    for (std::size_t i = 0; i < e.size(); ++i) EXPECT_NEAR(e[i], expected[i], 1e-15) << name;
  }
}

// The truth is the derivative of J up to the visits of each state: five-point differences of the value of S0.
TEST(Gridworld, TruthIsTheDerivativeOfTheReturn) {
  for (const double discount : {0.9, 0.99}) {
    const auto return_at = [&](std::size_t state, std::size_t action, double shift) {
      GridPolicy policy = grid_target();
      std::array<double, kGridActions> theta = {0, 1, 0, 1};
      theta[action] += shift;
      policy[state] = softmax(theta);
      return grid_values(policy, discount)[0];
    };
    const auto visits = grid_visits(grid_target(), discount);
    const GridStudy study(behaviour("A"), discount);
    for (std::size_t s = 0; s < kGridStates; ++s) {
      const GradientMoments m = study.at_state(Surrogate(options("no_clip")), s);
      for (std::size_t a = 0; a < kGridActions; ++a) {
        const double h = 1e-3;
        const double derivative =
            (8 * (return_at(s, a, h) - return_at(s, a, -h)) - return_at(s, a, 2 * h) + return_at(s, a, -2 * h)) /
            (12 * h);
        EXPECT_NEAR(visits[s] * m.truth[a], derivative, 1e-8) << s << " " << a;
      }
    }
  }
}

// Draws (state, action) by walking the grid, multipliers written out by hand.
struct MonteCarlo {
  std::array<double, 12> mean{}, square{};
  std::int64_t draws = 0;

  template <class Multiplier>
  MonteCarlo(const GridPolicy& mu, double discount, std::int64_t wanted, Multiplier&& multiplier) : draws(wanted) {
    const GridPolicy pi = grid_target();
    const auto advantage = grid_advantages(pi, discount);
    RandomStream random(11);
    const auto action_of = [&](std::size_t s) {
      double u = random.uniform();
      std::size_t a = 0;
      while (a + 1 < kGridActions && u >= mu[s][a]) u -= mu[s][a++];
      return a;
    };
    for (std::int64_t n = 0; n < wanted;) {
      // The state at a time that ends with probability 1 - discount at each step; those past the goal do not count.
      std::size_t s = 0;
      while (s != kGridGoal && random.uniform() < discount) s = grid_step(s, action_of(s));
      if (s == kGridGoal) continue;
      ++n;
      const std::size_t a = action_of(s);
      const double factor = multiplier(pi[s][a] / mu[s][a], advantage[s][a]) * advantage[s][a];
      for (std::size_t b = 0; b < kGridActions; ++b) {
        const double g = factor * ((a == b ? 1 : 0) - pi[s][b]);
        mean[4 * s + b] += g / static_cast<double>(wanted);
        square[4 * s + b] += g * g / static_cast<double>(wanted);
      }
    }
  }
};

void compare_with_monte_carlo(std::int64_t draws) {
  const auto ppo = [](double rho, double a) { return (a > 0 && rho > 1.2) || (a < 0 && rho < 0.8) ? 0 : rho; };
  const auto gipo = [](double rho, double) { return rho * std::exp(-std::pow(std::log(rho) / 0.5, 2) / 2); };
  const auto sapo = [](double rho, double a) {
    const double tau = a > 0 ? 2 : 1, s = 1 / (1 + std::exp(-tau * (rho - 1)));
    return 4 * s * (1 - s) * rho;
  };
  for (const char* name : {"A", "C"}) {
    const GridPolicy mu = behaviour(name);
    const GridStudy study(mu, 0.9);
    const auto compare = [&](const char* surrogate, const MonteCarlo& sampled) {
      const GradientMoments m = study.over_states(Surrogate(options(surrogate)));
      for (std::size_t i = 0; i < 12; ++i) {
        const double variance = m.covariance[13 * i], n = static_cast<double>(sampled.draws);
        EXPECT_NEAR(sampled.mean[i], m.expectation[i], 5 * std::sqrt(variance / n) + 1e-15) << surrogate << i;
        const double sampled_variance = sampled.square[i] - sampled.mean[i] * sampled.mean[i];
        EXPECT_NEAR(sampled_variance, variance, 50 * variance / std::sqrt(n) + 1e-15) << surrogate << i;
      }
    };
    compare("ppo", MonteCarlo(mu, 0.9, draws, ppo));
    compare("gipo", MonteCarlo(mu, 0.9, draws, gipo));
    compare("sapo", MonteCarlo(mu, 0.9, draws, sapo));
  }
}

TEST(Gridworld, MomentsAreThoseOfSampling) { compare_with_monte_carlo(200'000); }
TEST(SlowGridworld, MomentsAreThoseOfTenMillionDraws) { compare_with_monte_carlo(10'000'000); }

TEST(GridStudy, MixturesAreReadAndRefused) {
  const Behaviour b = parse_behaviour("mine=pi:0.5,rand:0.5");
  EXPECT_EQ(b.name, "mine");
  EXPECT_NEAR(b.probabilities[kGridRight], 0.5 * 0.25 + 0.5 * std::exp(1) / (2 + 2 * std::exp(1)), 1e-15);
  for (const char* bad : {"", "D", "rand:0.5", "rand:0.5,right:x", "left:1", "rand:1.5,right:-0.5", "rand:1,"}) {
    EXPECT_THROW(parse_behaviour(bad), std::runtime_error) << bad;
  }
}

TEST(GridStudy, ParametersAreReadAndRefused) {
  const auto gipo = parse_methods("gipo", "0.5,0.4:0.2");
  EXPECT_EQ(gipo[0].options.sigma, 0.5);
  EXPECT_EQ(*gipo[1].options.sigma_neg, 0.2);
  EXPECT_EQ(parse_methods("sapo", "1:2")[0].options.tau_neg, 2);
  for (const auto& [name, bad] :
       {std::pair{"gipo", "0"}, {"gipo", "1:2:3"}, {"ppo", "0.2:1"}, {"sapo", "1"}, {"ppo", ""}}) {
    EXPECT_THROW(parse_methods(name, bad), std::runtime_error) << bad;
  }
}

// The optimum beats every neighbour and every point of a coarse grid.
TEST(GridStudy, OptimumIsNoWorseThanAnyOtherParameter) {
  for (const char* name : {"A", "B", "C"}) {
    const GridStudy study(behaviour(name), 0.9);
    for (const StudyFigure figure : {StudyFigure::kRightAtS0, StudyFigure::kWhole}) {
      const auto mse = [&](const SurrogateOptions& o) { return study_error(study, o, figure).mse(); };
      const double gipo = best_gipo(study, figure).error.mse(), ppo = best_ppo(study, figure).error.mse(),
                   sapo = best_sapo(study, figure).error.mse(), pair = best_gipo_pair(study, figure).error.mse();
      EXPECT_LE(pair, gipo + 1e-14);
      for (double x = 1e-3; x < 1e3; x *= 1.3) {
        SurrogateOptions o = options("gipo");
        o.sigma = x;
        EXPECT_LE(gipo, mse(o) + 1e-14) << x;
        o.name = "ppo";
        o.epsilon = std::min(x, 10.0);
        EXPECT_LE(ppo, mse(o) + 1e-14) << x;
        o.name = "sapo";
        o.tau_pos = x;
        for (double y = 1e-3; y < 1e3; y *= 3) {
          o.tau_neg = y;
          EXPECT_LE(sapo, mse(o) + 1e-12) << x << " " << y;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gipo
