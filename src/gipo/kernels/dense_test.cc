#include "gipo/kernels/dense.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
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
    ASSERT_NEAR(found[i], expected[i], 5e-5 * (1 + std::abs(expected[i]))) << what << " " << i;
  }
}

// Every version that this processor runs, against plain loops in double, over sizes that fill packets and that do not.
TEST(Dense, EveryVersionMatchesPlainLoops) {
  for (std::size_t version = 0; version < dense_versions(); ++version) {
    const DenseKernels<float>& k = dense_version(version);
    SCOPED_TRACE(k.name);
    for (const auto& [in, out, rows] : {std::array<std::size_t, 3>{3, 5, 1},
                                        {4, 64, 7},
                                        {64, 64, 33},
                                        {17, 1, 256},
                                        {70, 65, 300},
                                        {20, 131, 9},
                                        {400, 400, 30},
                                        {520, 48, 13},
                                        {300, 530, 290}}) {
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
        std::vector<double> a(z);
        for (double& v : a) v = activation == Activation::kTanh ? std::tanh(v) : std::max(0.0, v);
        k.affine(weight.data(), packed.data(), bias.data(), x.data(), result.data(), in, out, rows, activation);
        expect_near(result, a, "activation");
        // Fused into the gradient of the layer above: delta weight, times the slope where the input was an activation.
        std::vector<float> below(x);
        std::vector<double> fused(d_x);
        for (std::size_t i = 0; i < below.size(); ++i) {
          const bool tanh = activation == Activation::kTanh;
          below[i] = tanh ? std::tanh(x[i]) : std::max(0.0f, x[i]);
          fused[i] *= tanh ? 1 - static_cast<double>(below[i]) * below[i] : (below[i] > 0 ? 1.0 : 0.0);
        }
        k.input_gradient(weight.data(), delta.data(), input_gradient.data(), in, out, rows, below.data(), activation);
        expect_near(input_gradient, fused, "input gradient with slope");
      }
    }
  }
}

// The stated error of tanh, over all of its range, and that it never leaves (-1, 1).
TEST(Dense, TanhIsWithinItsStatedError) {
  for (std::size_t version = 0; version < dense_versions(); ++version) {
    const DenseKernels<float>& k = dense_version(version);
    const float one = 1, zero = 0;
    std::vector<float> x, z;
    for (double v = -12; v <= 12; v += 1e-4) x.push_back(static_cast<float>(v));
    z.resize(5 * x.size());
    // Five outputs are a product, not sums of few: its finish is the vectors'.
    const std::vector<float> weight(5, one), bias(5, zero);
    std::vector<float> packed(5);
    k.pack(weight.data(), packed.data(), 1, 5);
    k.affine(weight.data(), packed.data(), bias.data(), x.data(), z.data(), 1, 5, x.size(), Activation::kTanh);
    double worst = 0;
    for (std::size_t i = 0; i < z.size(); ++i) {
      worst = std::max(worst, std::abs(z[i] - std::tanh(static_cast<double>(x[i / 5]))));
      ASSERT_LT(std::abs(z[i]), 1.0f);
    }
    EXPECT_LT(worst, 4e-7) << k.name;
  }
}

TEST(Dense, ActivationsDoNotHideNaN) {
  for (std::size_t version = 0; version < dense_versions(); ++version) {
    const DenseKernels<float>& k = dense_version(version);
    for (const std::size_t in : {1, 4}) {
      const std::vector<float> x(7 * in, std::numeric_limits<float>::quiet_NaN()), bias(20);
      for (const std::size_t out : {2, 20}) {  // sums of few, and a product
        const std::vector<float> weight(in * out, 1.0f);
        std::vector<float> packed(in * out), z(7 * out);
        k.pack(weight.data(), packed.data(), in, out);
        for (const Activation activation : {Activation::kNone, Activation::kTanh, Activation::kRelu}) {
          k.affine(weight.data(), packed.data(), bias.data(), x.data(), z.data(), in, out, 7, activation);
          for (const float v : z)
            EXPECT_TRUE(std::isnan(v)) << k.name << ", " << in << " inputs, " << out << " outputs";
        }
      }
    }
  }
}

TEST(Dense, LayerNormMatchesPlainLoops) {
  for (std::size_t version = 0; version < dense_versions(); ++version) {
    const DenseKernels<float>& k = dense_version(version);
    SCOPED_TRACE(k.name);
    for (const std::size_t width : {1, 3, 16, 70, 512}) {
      constexpr std::size_t kRows = 9;
      auto x = random_values(kRows * width, 1);
      const auto gain = random_values(width, 2), shift = random_values(width, 3),
                 delta = random_values(kRows * width, 4);
      for (float& v : x) v = std::max(0.0f, 3 * v + 1);  // as a ReLU leaves it
      std::vector<float> z(x.size()), mean(kRows), inverse_std(kRows), d(delta), d_gain(width, 7), d_shift(width, 7);
      k.layer_norm(x.data(), gain.data(), shift.data(), z.data(), mean.data(), inverse_std.data(), width, kRows);
      k.layer_norm_backward(x.data(), mean.data(), inverse_std.data(), gain.data(), d.data(), d_gain.data(),
                            d_shift.data(), width, kRows, Activation::kRelu);
      std::vector<double> expected(x.size()), by_x(x.size()), by_gain(width), by_shift(width);
      const auto n = static_cast<double>(width);
      for (std::size_t r = 0; r < kRows; ++r) {
        const float *row = x.data() + r * width, *by_z = delta.data() + r * width;
        double m = 0, variance = 0, sum = 0, product = 0;
        for (std::size_t i = 0; i < width; ++i) m += row[i] / n;
        for (std::size_t i = 0; i < width; ++i) variance += (row[i] - m) * (row[i] - m) / n;
        const double scale = 1 / std::sqrt(variance + 1e-5);
        for (std::size_t i = 0; i < width; ++i) {
          const double normalised = (row[i] - m) * scale;
          expected[r * width + i] = normalised * gain[i] + shift[i];
          by_gain[i] += by_z[i] * normalised;
          by_shift[i] += by_z[i];
          sum += static_cast<double>(by_z[i]) * gain[i] / n;
          product += by_z[i] * normalised * gain[i] / n;
        }
        for (std::size_t i = 0; i < width; ++i) {
          const double g = static_cast<double>(by_z[i]) * gain[i] - sum - (row[i] - m) * scale * product;
          by_x[r * width + i] = row[i] > 0 ? g * scale : 0;
        }
      }
      expect_near(z, expected, "layer norm");
      expect_near(d_gain, by_gain, "gain gradient");
      expect_near(d_shift, by_shift, "shift gradient");
      if (width > 1) expect_near(d, by_x, "layer norm gradient");  // of one value: zero times 1/sqrt(1e-5)
    }
  }
}

TEST(Dense, SoftmaxMatchesPlainLoops) {
  for (std::size_t version = 0; version < dense_versions(); ++version) {
    const DenseKernels<float>& k = dense_version(version);
    SCOPED_TRACE(k.name);
    for (const std::size_t n : {2, 3, 8, 9, 40, 256}) {
      constexpr std::size_t kRows = 37;
      const std::size_t stride = n + 3;
      std::vector<float> logits = random_values(kRows * stride, n);
      for (float& v : logits) v *= 4;
      logits[1] = 500;  // one choice is certain
      std::vector<float> p(logits.size()), log_p(logits.size()), entropy(2 * kRows), d(logits.size());
      k.softmax(logits.data(), kRows, n, stride, p.data(), log_p.data(), entropy.data(), 2);
      for (std::size_t r = 0; r < kRows; ++r) {
        double top = -1e9, sum = 0, expected = 0;
        for (std::size_t c = 0; c < n; ++c) top = std::max<double>(top, logits[r * stride + c]);
        for (std::size_t c = 0; c < n; ++c) sum += std::exp(logits[r * stride + c] - top);
        const SoftmaxLoss<float> loss{0.7f, 0.2f, entropy[2 * r], 0};
        const std::size_t at = r * stride;
        k.softmax_gradient(p.data() + at, log_p.data() + at, nullptr, n, loss, d.data() + at);
        for (std::size_t c = 0; c < n; ++c) {
          const double l = logits[at + c] - top - std::log(sum), q = std::exp(l);
          ASSERT_NEAR(log_p[at + c], l, 1e-5 * (1 + std::abs(l)));
          ASSERT_NEAR(p[at + c], q, 1e-6);
          ASSERT_NEAR(d[at + c], q * (0.2 * (l + entropy[2 * r]) - 0.7), 1e-5);
          expected -= q * l;
        }
        ASSERT_NEAR(entropy[2 * r], expected, 1e-5);
      }
    }
  }
}

TEST(Dense, PassesOverFlatBuffersMatchPlainLoops) {
  for (std::size_t version = 0; version < dense_versions(); ++version) {
    const DenseKernels<float>& k = dense_version(version);
    SCOPED_TRACE(k.name);
    constexpr std::size_t kCount = 23, kWidth = 17, kSize = kCount * kWidth;
    const auto x = random_values(kSize, 1), mean = random_values(kWidth, 2);
    std::vector<double> from(mean.begin(), mean.end()), sum(kWidth), square(kWidth);
    k.moments(x.data(), kCount, kWidth, from.data(), sum.data(), square.data());
    std::vector<float> factor(kWidth, 3.0f), scaled(kSize);
    k.scale(x.data(), kCount, kWidth, mean.data(), factor.data(), 2.5f, scaled.data());
    double squares = 0;
    for (std::size_t d = 0; d < kWidth; ++d) {
      double expected_sum = 0, expected_square = 0;
      for (std::size_t r = 0; r < kCount; ++r) {
        const double v = x[r * kWidth + d], distance = v - from[d];
        expected_sum += distance;
        expected_square += distance * distance;
        squares += v * v;
        ASSERT_NEAR(scaled[r * kWidth + d], std::clamp(3 * distance, -2.5, 2.5), 1e-6);
      }
      ASSERT_NEAR(sum[d], expected_sum, 1e-12);
      ASSERT_NEAR(square[d], expected_square, 1e-12);
    }
    ASSERT_NEAR(k.sum_of_squares(x.data(), kSize), squares, 1e-9);

    const auto gradient = random_values(kSize, 3);
    std::vector<float> parameters = random_values(kSize, 4), first = random_values(kSize, 5), second(kSize, 0.3f);
    const auto p = parameters, m = first;
    const AdamWStep<float> s{0.9f, 0.99f, 1e-5f, 1e-2f, 1.5f, 0.999f, 0.5f};
    k.adamw(s, gradient.data(), parameters.data(), first.data(), second.data(), kSize);
    for (std::size_t i = 0; i < kSize; ++i) {
      const double g = 0.5 * gradient[i], m1 = 0.9 * m[i] + 0.1 * g, v = 0.99 * 0.3 + 0.01 * g * g;
      ASSERT_NEAR(first[i], m1, 1e-6);
      ASSERT_NEAR(second[i], v, 1e-6);
      ASSERT_NEAR(parameters[i], 0.999 * p[i] - 1e-2 * m1 / (std::sqrt(1.5 * v) + 1e-5), 1e-6);
    }
  }
}

}  // namespace
}  // namespace gipo
