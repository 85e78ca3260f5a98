#include "gipo/policy/dense.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "gipo/core/random.h"

namespace gipo {
namespace {

std::vector<float> random_values(std::size_t n, std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(random.normal());
  return v;
}

void expect_near(const std::vector<float>& found, const std::vector<double>& expected, const char* what) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 2e-5 * (1 + std::abs(expected[i]))) << what << " " << i;
  }
}

// Every version that this processor runs, against plain loops in double, over sizes that fill packets and that do not.
TEST(Dense, EveryVersionMatchesPlainLoops) {
  for (std::size_t version = 0; version < dense_versions(); ++version) {
    const DenseKernels<float>& k = dense_version(version);
    SCOPED_TRACE(k.name);
    for (const auto& [in, out, rows] : {std::array<std::size_t, 3>{3, 5, 1}, {4, 64, 7}, {64, 64, 33}, {17, 1, 256}}) {
      const auto weight = random_values(in * out, 1), bias = random_values(out, 2), x = random_values(in * rows, 3);
      const auto delta = random_values(out * rows, 4);
      std::vector<double> z(out * rows), d_weight(in * out), d_bias(out), d_x(in * rows);
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t o = 0; o < out; ++o) {
          const double d = delta[r * out + o];
          double sum = bias[o];
          d_bias[o] += d;
          for (std::size_t i = 0; i < in; ++i) {
            sum += static_cast<double>(weight[o * in + i]) * x[r * in + i];
            d_weight[o * in + i] += d * x[r * in + i];
            d_x[r * in + i] += d * weight[o * in + i];
          }
          z[r * out + o] = sum;
        }
      }
      std::vector<float> result(out * rows), gradient(in * out), bias_gradient(out), input_gradient(in * rows);
      std::vector<float> packed(in * out);
      k.pack(weight.data(), packed.data(), in, out);
      k.affine(weight.data(), packed.data(), bias.data(), x.data(), result.data(), in, out, rows, Activation::kNone);
      expect_near(result, z, "affine");
      k.weight_gradient(delta.data(), x.data(), gradient.data(), bias_gradient.data(), in, out, rows);
      expect_near(gradient, d_weight, "weight gradient");
      expect_near(bias_gradient, d_bias, "bias gradient");
      k.input_gradient(weight.data(), delta.data(), input_gradient.data(), in, out, rows, nullptr, Activation::kNone);
      expect_near(input_gradient, d_x, "input gradient");

      for (const Activation activation : {Activation::kTanh, Activation::kRelu}) {
        std::vector<double> a(z), slope(z);
        for (std::size_t i = 0; i < z.size(); ++i) {
          const bool tanh = activation == Activation::kTanh;
          a[i] = tanh ? std::tanh(z[i]) : std::max(0.0, z[i]);
          slope[i] = delta[i] * (tanh ? 1 - a[i] * a[i] : (z[i] > 0 ? 1.0 : 0.0));
        }
        k.affine(weight.data(), packed.data(), bias.data(), x.data(), result.data(), in, out, rows, activation);
        expect_near(result, a, "activation");
        std::vector<float> d(delta);
        k.activation_backward(result.data(), d.data(), d.size(), activation);
        expect_near(d, slope, "activation backward");
      }
    }
  }
}

}  // namespace
}  // namespace gipo
