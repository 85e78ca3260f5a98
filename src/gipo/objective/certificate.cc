#include "gipo/objective/certificate.h"

#include <boost/math/special_functions/lambert_w.hpp>
#include <cmath>
#include <limits>

#include "gipo/core/error.h"

namespace gipo {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double sampling_factor(double advantage_bound, std::int64_t samples, double alpha) {
  return advantage_bound * std::sqrt(2 * std::log(2 / alpha) / static_cast<double>(samples));
}

}  // namespace

double best_tau(double sigma) {
  GIPO_CHECK(sigma > 0);
  return boost::math::lambert_w0(2 * sigma * sigma);
}

double weight_bias_bound(double sigma, double delta, double tau) {
  return tau * tau / (2 * sigma * sigma) + 2 * std::exp(-tau) + std::sqrt(delta / 2);
}

double weight_bias_bound(double sigma, double delta) {
  // With tau e^tau = 2 sigma^2 the paper's tau (tau + 2) / (2 sigma^2) is (tau + 2) e^-tau: no square that overflows.
  const double tau = best_tau(sigma);
  return (tau + 2) * std::exp(-tau) + std::sqrt(delta / 2);
}

double multiplier_bound(double sigma) { return std::exp(sigma * sigma / 2); }

double sampling_interval(double sigma, double advantage_bound, std::int64_t samples, double alpha) {
  return multiplier_bound(sigma) * sampling_factor(advantage_bound, samples, alpha);
}

double least_sigma(double bias, double delta) {
  const double rest = bias - std::sqrt(delta / 2);
  if (!(rest > 0)) return kNone;
  if (rest >= 2) return 0;  // the bound at sigma -> 0
  // (tau + 2) e^-tau = rest, so -(tau + 2) e^-(tau + 2) = -rest e^-2: the branch below -1 has tau > 0.
  const double tau = -boost::math::lambert_wm1(-rest * std::exp(-2.0)) - 2;
  return std::sqrt(tau * std::exp(tau) / 2);
}

double greatest_sigma(double interval, double advantage_bound, std::int64_t samples, double alpha) {
  const double largest_multiplier = interval / sampling_factor(advantage_bound, samples, alpha);
  if (!(largest_multiplier > 1)) return kNone;  // exp(sigma^2 / 2) is above 1 for every sigma
  return std::sqrt(2 * std::log(largest_multiplier));
}

Certificate certify(const CertificateInputs& in) {
  GIPO_CHECK(in.discount >= 0 && in.discount < 1 && in.alpha > 0 && in.alpha < 1 && in.samples > 0);
  const double horizon = 1 / (1 - in.discount);
  Certificate c;
  c.tau_star = best_tau(in.sigma_narrow);
  c.lemma1_bound = weight_bias_bound(in.sigma_narrow, in.kl);
  c.multiplier_bound = multiplier_bound(in.sigma_wide);
  const double shift = 4 * in.discount * in.advantage_bound * horizon * horizon;
  c.shift_penalty = shift * (std::sqrt(in.kl_behaviour) * std::sqrt(in.kl_step) + in.kl_step);
  c.bias_penalty = in.advantage_bound * horizon * c.lemma1_bound;
  c.lower_bound = in.gain - c.shift_penalty - c.bias_penalty;
  c.interval = sampling_interval(in.sigma_wide, in.advantage_bound, in.samples, in.alpha);
  c.certified = c.lower_bound - horizon * c.interval;
  if (in.importance_max) {
    c.multiplier_bound *= *in.importance_max;
    c.interval *= *in.importance_max;
    c.lemma1_bound = c.shift_penalty = c.bias_penalty = c.lower_bound = c.certified = kNone;
  }
  return c;
}

}  // namespace gipo
