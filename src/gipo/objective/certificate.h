#pragma once

#include <cstdint>
#include <optional>

namespace gipo {

// The paper's bounds for GIPO with the gaussian weight w = exp(-(log rho)^2 / (2 sigma^2)), as numbers. Equations are
// numbered as in the paper. mu collected the data, pi is the policy before the update, pi' after it; KLs are maxima
// over states.

// Appendix "Optimizing the truncation parameter": tau* = W(2 sigma^2) minimises the bound of Eq. (17).
double best_tau(double sigma);

// Eq. (17), Lemma 5.1: E[1 - w] <= tau^2 / (2 sigma^2) + 2 exp(-tau) + sqrt(delta / 2), delta = KL(mu, pi').
double weight_bias_bound(double sigma, double delta, double tau);
double weight_bias_bound(double sigma, double delta);  // at tau*

// Eq. (19), Lemma 5.3: 0 < w rho <= exp(sigma^2 / 2), reached at rho = exp(sigma^2).
double multiplier_bound(double sigma);

// Eq. (21), Theorem 5.4: with probability 1 - alpha the mean of w rho A over n samples lies within
// eps exp(sigma^2 / 2) sqrt(2 ln(2 / alpha) / n) of its expectation.
double sampling_interval(double sigma, double advantage_bound, std::int64_t samples, double alpha);

// The least sigma whose bound of Eq. (17) is at most `bias`: 0 where any will do, NaN where none will.
double least_sigma(double bias, double delta);
// The greatest sigma whose interval of Eq. (21) is at most `interval`: NaN where none will do. The interval grows with
// sigma, so every smaller one is certified with it.
double greatest_sigma(double interval, double advantage_bound, std::int64_t samples, double alpha);

struct CertificateInputs {
  // Of a pair, the narrower bounds the bias and the wider the multiplier: both bounds then hold for either sign of A.
  double sigma_narrow = 0.5, sigma_wide = 0.5;
  // c of a trust region about pi_prox, whose multiplier is min(pi_prox / mu, c) w rho. Nothing is known of its bias then.
  std::optional<double> importance_max;
  double kl_behaviour = 0;     // KL(mu, pi)
  double kl_step = 0;          // KL(pi, pi')
  double kl = 0;               // KL(mu, pi'), the paper's delta
  double advantage_bound = 1;  // eps: |A| <= eps
  double discount = 0.99;
  double gain = 0;  // surrogate gain L~(pi') - J(pi) = E[w rho A] / (1 - discount)
  std::int64_t samples = 256;
  double alpha = 0.05;
};

struct Certificate {
  double tau_star = 0, lemma1_bound = 0, multiplier_bound = 0;  // the last times importance_max
  double shift_penalty = 0;  // Eq. (18): C (sqrt KL(mu,pi) sqrt KL(pi,pi') + KL(pi,pi')), C = 4 gamma eps / (1-gamma)^2
  double bias_penalty = 0;   // Eq. (18): eps / (1 - gamma) times the bound of Eq. (17)
  double lower_bound = 0;    // Eq. (18): J(pi') - J(pi) is at least gain minus both
  double interval = 0;       // Eq. (21)
  // NaN where importance_max is given: lemma1_bound, both penalties, lower_bound and certified.
  double certified = 0;  // the lower bound where the gain was estimated from the samples: less interval / (1-gamma)
};
Certificate certify(const CertificateInputs& inputs);

}  // namespace gipo
