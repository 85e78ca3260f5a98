#include "gipo/objective/certificate.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "gipo/core/random.h"
#include "gipo/objective/options.h"
#include "gipo/objective/surrogate.h"

namespace gipo {
namespace {

// g(c) - g(d) of g(tau) = tau^2 / (2 sigma^2) + 2 exp(-tau), without the cancellation of taking both apart: near the
// minimum the two values agree in all their digits long before c and d do.
double difference(double c, double d, double sigma) {
  return (c - d) * (c + d) / (2 * sigma * sigma) + 2 * std::exp(-d) * std::expm1(d - c);
}

TEST(Certificate, TauStarIsTheMinimiserThatGoldenSectionFinds) {
  constexpr double kGolden = 0.6180339887498949;
  for (int i = 0; i < 1000; ++i) {
    const double sigma = std::pow(10.0, -3 + 6.0 * i / 999);
    double a = 0, b = 100;
    for (int step = 0; step < 120; ++step) {
      const double c = b - kGolden * (b - a), d = a + kGolden * (b - a);
      if (difference(c, d, sigma) < 0) {
        b = d;
      } else {
        a = c;
      }
    }
    EXPECT_NEAR(best_tau(sigma), (a + b) / 2, 1e-10) << sigma;
  }
}

TEST(Certificate, BoundAtTauStarIsTheLeastAndInClosedForm) {
  for (const double sigma : {0.01, 0.1, 0.5, 1.0, 3.0, 100.0}) {
    const double tau = best_tau(sigma), least = weight_bias_bound(sigma, 0.3);
    EXPECT_NEAR(least, weight_bias_bound(sigma, 0.3, tau), 1e-12);
    EXPECT_NEAR(least, tau * (tau + 2) / (2 * sigma * sigma) + std::sqrt(0.15), 1e-12);
    for (const double factor : {0.5, 0.9, 1.1, 2.0}) EXPECT_LT(least, weight_bias_bound(sigma, 0.3, factor * tau));
  }
}

TEST(Certificate, WiderWeightsAreLessBiasedAndLessBounded) {
  double sigma = 1e-3;
  for (; sigma < 30; sigma *= 1.1) {
    EXPECT_GT(weight_bias_bound(sigma, 0.1), weight_bias_bound(1.1 * sigma, 0.1)) << sigma;
    EXPECT_LE(multiplier_bound(sigma), multiplier_bound(1.1 * sigma));
    EXPECT_LE(sampling_interval(sigma, 2, 100, 0.05), sampling_interval(1.1 * sigma, 2, 100, 0.05));
  }
  EXPECT_LT(weight_bias_bound(0.5, 0.1), weight_bias_bound(0.5, 0.2));
}

// sigma -> infinity is no-clip: no bias of the weight is left, and no bound on the multiplier.
TEST(Certificate, Limits) {
  EXPECT_NEAR(weight_bias_bound(1e100, 0.08), std::sqrt(0.04), 1e-80);
  EXPECT_LT(weight_bias_bound(1e6, 0), 1e-9);
  EXPECT_EQ(multiplier_bound(100), std::numeric_limits<double>::infinity());
  EXPECT_NEAR(weight_bias_bound(1e-8, 0), 2, 1e-12);
  EXPECT_NEAR(multiplier_bound(1e-8), 1, 1e-15);
}

// Lemma 5.3 against the surrogate that trains, over ratios from e^-20 to e^20.
TEST(Certificate, NoMultiplierIsAboveItsBound) {
  for (const double sigma : {0.1, 0.5, 1.0, 2.0}) {
    for (const PullBack pull_back : {PullBack::kDamped, PullBack::kPositive, PullBack::kBoth}) {
      SurrogateOptions o;
      o.sigma = sigma;
      o.pull_back = pull_back;
      const Surrogate surrogate(o);
      double largest = 0;
      for (double lr = -20; lr <= 20; lr += 1e-3) {
        for (const double a : {-1.0, 1.0}) {
          std::array<double, 1> log_ratio = {lr}, advantage = {a}, m{}, loss{};
          surrogate.evaluate(std::span<const double>(log_ratio), std::span<const double>(advantage),
                             std::span<double>(m), std::span<double>(loss));
          EXPECT_LE(m[0], multiplier_bound(sigma) * (1 + 1e-12));
          largest = std::max(largest, m[0]);
        }
      }
      EXPECT_NEAR(largest, multiplier_bound(sigma), 1e-6 * multiplier_bound(sigma));
    }
  }
}

// About pi_prox: over all ways to split a ratio, the multiplier reaches c exp(sigma^2 / 2) and nothing above it.
TEST(Certificate, CutImportanceMultipliesTheBound) {
  CertificateInputs in;
  in.sigma_narrow = in.sigma_wide = 0.4;
  const Certificate plain = certify(in);
  in.importance_max = 1.5;
  const Certificate centred = certify(in);
  EXPECT_DOUBLE_EQ(centred.multiplier_bound, 1.5 * plain.multiplier_bound);
  EXPECT_DOUBLE_EQ(centred.interval, 1.5 * plain.interval);
  EXPECT_TRUE(std::isnan(centred.lemma1_bound) && std::isnan(centred.lower_bound) && std::isnan(centred.certified));
  const GipoTerm<GaussianWeight, PullBack::kBoth> term{0.4, 0.4, GaussianWeight::log_bound(0.4)};
  double largest = 0;
  for (double b = -3; b <= 3; b += 0.05) {
    for (double lp = -3; lp <= 3; lp += 1e-3) {
      for (const double a : {-1.0, 1.0}) {
        largest = std::max(largest, importance_weight(b, 1.5) * surrogate_term(term, lp, a).multiplier);
      }
    }
  }
  EXPECT_LE(largest, centred.multiplier_bound * (1 + 1e-12));
  EXPECT_NEAR(largest, centred.multiplier_bound, 1e-6);
}

// Lemma 5.1 on random pairs of distributions.
TEST(Certificate, MeasuredBiasIsBelowItsBound) {
  RandomStream random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    std::array<double, 5> mu{}, pi{};
    double mu_sum = 0, pi_sum = 0;
    const double spread = random.uniform(0, 4);
    for (std::size_t i = 0; i < mu.size(); ++i) {
      mu_sum += mu[i] = std::exp(spread * random.normal());
      pi_sum += pi[i] = std::exp(spread * random.normal());
    }
    const double sigma = std::pow(10.0, random.uniform(-1.5, 1.5));
    double bias = 0, kl = 0;
    for (std::size_t i = 0; i < mu.size(); ++i) {
      const double p = pi[i] / pi_sum, q = mu[i] / mu_sum, lr = std::log(p / q);
      bias += p * -std::expm1(-lr * lr / (2 * sigma * sigma));
      kl -= q * lr;
    }
    EXPECT_LE(bias, weight_bias_bound(sigma, kl)) << trial;
  }
}

// Theorem 5.4: the interval holds at least as often as it says.
TEST(Certificate, IntervalHoldsAsOftenAsItSays) {
  RandomStream random(5);
  constexpr double kSigma = 0.8, kAlpha = 0.2;
  constexpr int kSamples = 50, kTrials = 2000;
  const auto draw = [&] {  // w rho A with log rho normal and A = +-1
    const double lr = 2 * random.normal(), a = random.uniform() < 0.7 ? 1 : -1;
    return std::exp(lr - lr * lr / (2 * kSigma * kSigma)) * a;
  };
  double expectation = 0;
  for (int i = 0; i < 400'000; ++i) expectation += draw() / 400'000;
  int missed = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    double mean = 0;
    for (int i = 0; i < kSamples; ++i) mean += draw() / kSamples;
    missed += std::abs(mean - expectation) > sampling_interval(kSigma, 1, kSamples, kAlpha);
  }
  EXPECT_LE(missed, kAlpha * kTrials);
}

TEST(Certificate, SigmasThatCertifyAreTheEdges) {
  for (const double bias : {0.3, 0.5, 1.0, 1.9}) {
    const double sigma = least_sigma(bias, 0.02);
    EXPECT_NEAR(weight_bias_bound(sigma, 0.02), bias, 1e-12);
  }
  EXPECT_EQ(least_sigma(2.5, 0.02), 0);
  EXPECT_TRUE(std::isnan(least_sigma(0.1, 0.02)));  // sqrt(delta / 2) alone is 0.1
  for (const double interval : {0.5, 1.0, 10.0}) {
    const double sigma = greatest_sigma(interval, 2, 1000, 0.05);
    EXPECT_NEAR(sampling_interval(sigma, 2, 1000, 0.05), interval, 1e-12);
  }
  EXPECT_TRUE(std::isnan(greatest_sigma(0.01, 2, 1000, 0.05)));
}

TEST(Certificate, LowerBoundIsTheGainLessBothPenalties) {
  CertificateInputs in;
  in.sigma_narrow = in.sigma_wide = 1;
  in.kl_behaviour = 0.04, in.kl_step = 0.01, in.kl = 0.08;
  in.advantage_bound = 0.5, in.discount = 0.9, in.gain = 30;
  in.samples = 200, in.alpha = 0.1;
  const Certificate c = certify(in);
  EXPECT_NEAR(c.tau_star * std::exp(c.tau_star), 2, 1e-14);
  EXPECT_NEAR(c.shift_penalty, 4 * 0.9 * 0.5 / 0.01 * (0.2 * 0.1 + 0.01), 1e-12);
  EXPECT_NEAR(c.bias_penalty, 0.5 / 0.1 * c.lemma1_bound, 1e-12);
  EXPECT_NEAR(c.lower_bound, 30 - c.shift_penalty - c.bias_penalty, 1e-12);
  EXPECT_NEAR(c.interval, 0.5 * std::exp(0.5) * std::sqrt(2 * std::log(20) / 200), 1e-12);
  EXPECT_NEAR(c.certified, c.lower_bound - 10 * c.interval, 1e-12);
}

// A pair is bounded by the worse of its widths, on each side.
TEST(Certificate, PairTakesTheWorseOfEach) {
  CertificateInputs in;
  in.sigma_narrow = 0.2, in.sigma_wide = 0.9;
  EXPECT_EQ(certify(in).lemma1_bound, weight_bias_bound(0.2, 0));
  EXPECT_EQ(certify(in).multiplier_bound, multiplier_bound(0.9));
}

}  // namespace
}  // namespace gipo
