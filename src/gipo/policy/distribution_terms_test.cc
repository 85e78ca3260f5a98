// The terms that also compile for devices, in float and double, against plain formulas in double.
#include "gipo/policy/distribution_terms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "gipo/core/random.h"
#include "gipo/kernels/dense.h"

namespace gipo {
namespace {

void near(double found, double expected, double tolerance) {
  EXPECT_NEAR(found, expected, tolerance * std::max(1.0, std::abs(expected)));
}

template <class T>
void expect_gaussian(double tolerance) {
  RandomStream random(1);
  const auto number = [&] { return static_cast<double>(static_cast<T>(0.7 * random.normal())); };
  for (int i = 0; i < 200; ++i) {
    const double a = number(), m = number(), s = number(), om = number(), os = number(), g = number();
    const GaussianTerms<T> pi{T(m), T(s), std::exp(-T(s))}, other{T(om), T(os), std::exp(-T(os))};
    const double variance = std::exp(2 * s), other_variance = std::exp(2 * os);
    near(gaussian_log_prob(pi, T(a)),
         std::log(std::exp(-(a - m) * (a - m) / (2 * variance)) / std::sqrt(2 * std::numbers::pi * variance)),
         tolerance);
    near(gaussian_entropy(T(s)), 0.5 * std::log(2 * std::numbers::pi * std::numbers::e * variance), tolerance);
    near(gaussian_kl(other, pi),
         std::log(std::exp(s) / std::exp(os)) + (other_variance + (om - m) * (om - m)) / (2 * variance) - 0.5,
         tolerance);
    GaussianGradient<T> d = gaussian_gradient(pi, T(a), T(g), T(0.25));
    near(d.mean, g * (a - m) / variance, tolerance);
    near(d.log_std, g * ((a - m) * (a - m) / variance - 1) - 0.25, tolerance);
    d = {0, 0};
    add_gaussian_kl(other, pi, T(0.5), d);
    near(d.mean, -0.5 * (om - m) / variance, tolerance);
    near(d.log_std, 0.5 * (1 - (other_variance + (om - m) * (om - m)) / variance), tolerance);
  }
}

TEST(DistributionTerms, GaussianMatchesItsFormulas) {
  expect_gaussian<float>(1e-5);
  expect_gaussian<double>(1e-12);
  EXPECT_EQ(kHalfLog2Pi<double>, 0.5 * std::log(2.0 * std::numbers::pi));
  EXPECT_EQ(kHalfLog2Pi<float>, static_cast<float>(0.5 * std::log(2.0 * std::numbers::pi)));
}

struct Head {
  std::vector<double> p, log_p;  // p zero where it is not valid; log_p zero there too
  double entropy = 0;
};

template <class T>
Head softmax(const std::vector<T>& logits, const std::uint8_t* mask) {
  Head h;
  double sum = 0;
  for (std::size_t k = 0; k < logits.size(); ++k) {
    h.p.push_back(mask && !mask[k] ? 0 : std::exp(static_cast<double>(logits[k])));
    sum += h.p.back();
  }
  for (double& p : h.p) {
    p /= sum;
    h.log_p.push_back(p > 0 ? std::log(p) : 0);
    h.entropy -= p * h.log_p.back();
  }
  return h;
}

template <class T>
void expect_categorical(double tolerance, bool masked) {
  const std::size_t n = 9;
  RandomStream random(2);
  for (std::size_t i = 0; i < 100; ++i) {
    std::vector<T> logits(n), others(n), p(n), log_p(n), other_p(n), other_log_p(n), d(n);
    for (T& v : logits) v = static_cast<T>(2 * random.normal());
    for (T& v : others) v = static_cast<T>(2 * random.normal());
    std::vector<std::uint8_t> valid(n);
    for (std::uint8_t& v : valid) v = random.uniform() < 0.6;
    const std::size_t action = i % n;
    valid[action] = 1;
    const std::uint8_t* mask = masked ? valid.data() : nullptr;
    const Head pi = softmax(logits, mask), other = softmax(others, mask);
    const T entropy = categorical_terms(logits.data(), mask, n, p.data(), log_p.data());
    categorical_terms(others.data(), mask, n, other_p.data(), other_log_p.data());
    near(entropy, pi.entropy, tolerance);
    near(log_p[action], pi.log_p[action], tolerance);
    double kl = 3, d_log_prob = 0.5, entropy_coef = 0.25, kl_coef = 2;
    for (std::size_t k = 0; k < n; ++k) kl += other.p[k] * (other.log_p[k] - pi.log_p[k]);
    near(add_categorical_kl(T(3), other_p.data(), other_log_p.data(), log_p.data(), n), kl, tolerance);
    categorical_gradient(p.data(), log_p.data(), other_p.data(), n, action, T(d_log_prob), T(entropy_coef), entropy,
                         T(kl_coef), d.data());
    for (std::size_t k = 0; k < n; ++k) {
      near(p[k], pi.p[k], tolerance);
      if (mask && !mask[k]) {
        EXPECT_EQ(p[k], 0);
        EXPECT_EQ(std::exp(log_p[k]), 0);
        EXPECT_EQ(d[k], 0);
        continue;
      }
      near(d[k],
           d_log_prob * ((k == action) - pi.p[k]) + entropy_coef * pi.p[k] * (pi.log_p[k] + pi.entropy) +
               kl_coef * (pi.p[k] - other.p[k]),
           tolerance);
    }
    if (masked) continue;
    // The kernels of the processor say the same.
    std::vector<T> kernel_p(n), kernel_log_p(n), kernel_d(n);
    T kernel_entropy;
    dense_kernels<T>().softmax(logits.data(), 1, n, n, kernel_p.data(), kernel_log_p.data(), &kernel_entropy, 1);
    dense_kernels<T>().softmax_gradient(kernel_p.data(), kernel_log_p.data(), other_p.data(), n,
                                        {T(d_log_prob), T(entropy_coef), kernel_entropy, T(kl_coef)}, kernel_d.data());
    kernel_d[action] += T(d_log_prob);
    for (std::size_t k = 0; k < n; ++k) near(kernel_d[k], d[k], tolerance);
  }
}

TEST(DistributionTerms, CategoricalMatchesItsFormulas) {
  for (const bool masked : {false, true}) {
    expect_categorical<float>(1e-5, masked);
    expect_categorical<double>(1e-12, masked);
  }
}

}  // namespace
}  // namespace gipo
