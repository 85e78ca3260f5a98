// The functions that also compile for devices, in float and double, against plain formulas in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gipo/core/random.h"
#include "gipo/objective/advantage_terms.h"
#include "gipo/objective/surrogate_terms.h"

namespace gipo {
namespace {

struct Expected {
  double multiplier, objective;  // per unit of advantage
};

template <class T, class Functor, class Formula>
void expect_terms(const Functor& functor, Formula&& formula, double tolerance) {
  for (double log_ratio = -4.03; log_ratio < 4; log_ratio += 0.11) {
    for (const double advantage : {-1.7, 0.6}) {
      // The formula sees the numbers as T holds them.
      const double x = static_cast<double>(static_cast<T>(log_ratio)),
                   a = static_cast<double>(static_cast<T>(advantage));
      const SurrogateTerm<T> term = surrogate_term(functor, static_cast<T>(log_ratio), static_cast<T>(advantage));
      const Expected expected = formula(x, a);
      EXPECT_NEAR(term.multiplier, expected.multiplier, tolerance * std::abs(expected.multiplier)) << x << " " << a;
      EXPECT_NEAR(term.loss, -expected.objective * a, tolerance * std::abs(expected.objective * a)) << x << " " << a;
    }
  }
}

template <class Functor, class Formula>
void expect_both(const Functor& functor, Formula&& formula) {
  expect_terms<float>(functor, formula, 1e-5);
  expect_terms<double>(functor, formula, 1e-13);
}

Expected same(double m) { return {m, m}; }

TEST(SurrogateTerms, MatchTheirFormulas) {
  using std::exp;
  expect_both(GipoTerm<GaussianWeight, PullBack::kDamped>{0.7, 0.4, 0}, [](double x, double a) {
    const double s = a < 0 ? 0.4 : 0.7;
    return same(exp(x) * exp(-x * x / (2 * s * s)));
  });
  expect_both(GipoTerm<LaplacianWeight, PullBack::kPositive>{0.7, 0.4, 0}, [](double x, double a) {
    const double s = a < 0 ? 0.4 : 0.7;
    return same(a > 0 && x < 0 ? exp(x) : exp(x) * exp(-std::abs(x) / s));
  });
  expect_both(GipoTerm<CauchyWeight, PullBack::kBoth>{0.7, 0.4, 0.3}, [](double x, double a) {
    const double s = a < 0 ? 0.4 : 0.7;
    if (a > 0 && x < 0) return same(exp(x));
    if (a < 0 && x > 0) return same(std::min(exp(x), exp(0.3)));
    return same(exp(x) / (1 + x * x / (s * s)));
  });
  expect_both(ClippedRatioTerm{0.2, 3}, [](double x, double a) {
    const double rho = exp(x), low = 0.8, high = 1.2;
    if (a > 0) return Expected{rho > high ? 0 : rho, std::min(rho, high)};
    return Expected{rho < low || rho > 3 ? 0 : rho, std::min(std::max(rho, low), 3.0)};
  });
  expect_both(SapoTerm{1.0, 1.5}, [](double x, double a) {
    const double tau = a < 0 ? 1.5 : 1.0, s = 1 / (1 + exp(-tau * (exp(x) - 1)));
    return Expected{exp(x) * 4 * s * (1 / (1 + exp(tau * (exp(x) - 1)))), 4 / tau * s};
  });
  expect_both(NoClipTerm{}, [](double x, double) { return same(exp(x)); });
  expect_both(CispoTerm{0.2}, [](double x, double) { return same(std::clamp(exp(x), 0.8, 1.2)); });
  expect_both(TruncatedTerm{1.5}, [](double x, double) { return same(std::min(exp(x), 1.5)); });
  expect_both(ToprTerm{}, [](double x, double a) { return same(a < 0 ? std::min(exp(x), 1.0) : 1.0); });
  expect_both(SecondMomentTerm{1.5}, [](double x, double) { return same(std::abs(x) > 1.5 ? 0 : exp(x)); });
  expect_both(AgedGipoTerm<GaussianWeight, PullBack::kDamped>{0.35, 0.2, 10, 0.5}.at(30), [](double x, double a) {
    const double s = a < 0 ? 0.4 : 0.7;
    return same(exp(x) * exp(-x * x / (2 * s * s)));
  });
  expect_both(CeGppoTerm{0.2, 0.5, 0.75}, [](double x, double a) {
    if (a > 0 && exp(x) > 1.2) return same(0.75 * 1.2);
    if (a < 0 && exp(x) < 0.8) return same(0.5 * 0.8);
    return same(exp(x));
  });
}

TEST(SurrogateTerms, LogRatioAndLossAreBounded) {
  EXPECT_EQ(surrogate_term(NoClipTerm{}, 1e30, 1.0).multiplier, std::exp(20.0));
  EXPECT_EQ(surrogate_term(NoClipTerm{}, -1e30f, 1.0f).multiplier, std::exp(-20.0f));
  EXPECT_TRUE(std::isfinite(surrogate_term(NoClipTerm{}, 30.0f, 3e38f).loss));
}

// Against the sums that the recursions stand for.
template <class T>
void expect_advantages(double tolerance) {
  constexpr int kSteps = 12;
  const double gamma = static_cast<double>(T(0.97)), lambda = static_cast<double>(T(0.9)), rho_bar = 1.25, c_bar = 0.75;
  RandomStream random(1);
  double reward[kSteps], value[kSteps + 1], log_ratio[kSteps];
  const auto number = [&] { return static_cast<double>(static_cast<T>(random.normal())); };
  for (double& v : reward) v = number();
  for (double& v : value) v = number();
  for (double& v : log_ratio) v = number();
  const auto rho = [&](int t) { return std::exp(log_ratio[t]); };
  const auto delta = [&](int t) { return reward[t] + gamma * value[t + 1] - value[t]; };
  // v_t = V(s_t) + the sum over k >= t of gamma^(k-t) (product of c from t to k - 1) min(rho_bar, rho_k) delta_k
  const auto vtrace_target = [&](int t) {
    double sum = t < kSteps ? 0.0 : value[kSteps], weight = 1;
    if (t == kSteps) return sum;
    for (int k = t; k < kSteps; ++k) {
      sum += weight * std::min(rho_bar, rho(k)) * delta(k);
      weight *= gamma * lambda * std::min(c_bar, rho(k));
    }
    return value[t] + sum;
  };
  GaeNext<T> gae{static_cast<T>(value[kSteps])};
  VtraceNext<T> next{gae.value, gae.value};
  const VtraceLimits<T> limits{T(gamma), T(lambda), T(rho_bar), T(c_bar)};
  for (int t = kSteps; t-- > 0;) {
    const AdvantageTerm<T> one = gae_step(T(reward[t]), T(value[t]), T(gamma), T(lambda), gae);
    const AdvantageTerm<T> two = vtrace_step(T(reward[t]), T(value[t]), T(log_ratio[t]), limits, next);
    double advantage = 0;
    for (int k = t; k < kSteps; ++k) advantage += std::pow(gamma * lambda, k - t) * delta(k);
    const auto near = [&](T found, double expected) {
      EXPECT_NEAR(found, expected, tolerance * std::max(1.0, std::abs(expected))) << t;
    };
    near(one.advantage, advantage);
    near(one.target, advantage + value[t]);
    near(two.target, vtrace_target(t));
    near(two.advantage, reward[t] + gamma * vtrace_target(t + 1) - value[t]);
  }
}

TEST(AdvantageTerms, MatchTheirSums) {
  expect_advantages<float>(1e-5);
  expect_advantages<double>(1e-13);
}

}  // namespace
}  // namespace gipo
