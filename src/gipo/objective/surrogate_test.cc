#include "gipo/objective/surrogate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "gipo/config/option.h"
#include "gipo/core/error.h"
#include "gipo/core/random.h"

namespace gipo {
namespace {

template <class T>
struct Term {
  T multiplier, loss;
};

template <class T = double>
Term<T> evaluate(const SurrogateOptions& options, T log_ratio, T advantage) {
  Term<T> term{};
  Surrogate(options).evaluate(std::span<const T>(&log_ratio, 1), std::span<const T>(&advantage, 1),
                              std::span<T>(&term.multiplier, 1), std::span<T>(&term.loss, 1));
  return term;
}

constexpr TrustKernel kKernels[] = {TrustKernel::kGaussian, TrustKernel::kLaplacian, TrustKernel::kCauchy};

SurrogateOptions named(const std::string& name) {
  SurrogateOptions options;
  options.name = name;
  return options;
}

SurrogateOptions gipo_with(TrustKernel kernel, double sigma, PullBack pull_back = PullBack::kDamped) {
  SurrogateOptions options = named("gipo");
  options.kernel = kernel;
  options.sigma = sigma;
  options.pull_back = pull_back;
  return options;
}

std::vector<SurrogateOptions> every_variant() {
  std::vector<SurrogateOptions> all;
  for (const SurrogateInfo& info : registered_surrogates()) all.push_back(named(info.name));
  for (const TrustKernel kernel : kKernels) {
    for (const PullBack pull_back : {PullBack::kDamped, PullBack::kPositive, PullBack::kBoth}) {
      for (const double sigma : {1e-3, 0.5, 1.0, 3.0, 1e3}) all.push_back(gipo_with(kernel, sigma, pull_back));
    }
  }
  for (const double tau : {1e-3, 1e3}) {
    all.push_back(named("sapo"));
    all.back().tau_pos = all.back().tau_neg = tau;
  }
  return all;
}

struct Row {
  const char* name;
  double rho, advantage, multiplier, loss;
};

TEST(Surrogate, ValuesByHand) {
  const Row rows[] = {
      {"no_clip", 2.5, 2, 2.5, -5},
      {"no_clip", 0.25, -2, 0.25, 0.5},
      {"ppo", 1.1, 2, 1.1, -2.2},
      {"ppo", 1.5, 2, 0, -2.4},
      {"ppo", 0.5, 2, 0.5, -1},
      {"ppo", 0.5, -2, 0, 1.6},
      {"ppo", 0.9, -2, 0.9, 1.8},
      {"ppo", 5, -2, 5, 10},
      {"dual_clip", 1.5, 2, 0, -2.4},
      {"dual_clip", 2.5, -2, 2.5, 5},
      {"dual_clip", 5, -2, 0, 6},
      {"dual_clip", 0.5, -2, 0, 1.6},
      {"cispo", 1.1, 2, 1.1, -2.2},
      {"cispo", 5, 2, 1.2, -2.4},
      {"cispo", 5, -2, 1.2, 2.4},
      {"cispo", 0.1, -2, 0.8, 1.6},
      {"truncated", 5, 2, 1, -2},
      {"truncated", 0.25, -2, 0.25, 0.5},
      {"sapo", 1, 3, 1, -3},
      {"sapo", 1, -3, 1, 6},
      {"sapo", 2, -1, 2 * 4 * 0.7310585786300049 * 0.2689414213699951, 4 * 0.7310585786300049},
      {"sapo", 2, 1, 2 * 4 * 0.8807970779778823 * 0.1192029220221176, -2 * 0.8807970779778823},
      {"gipo", 1, 2, 1, -2},
  };
  for (const Row& row : rows) {
    const Term<double> term = evaluate(named(row.name), std::log(row.rho), row.advantage);
    EXPECT_NEAR(term.multiplier, row.multiplier, 1e-12) << row.name << " rho " << row.rho << " A " << row.advantage;
    EXPECT_NEAR(term.loss, row.loss, 1e-12) << row.name << " rho " << row.rho << " A " << row.advantage;
  }
}

TEST(Surrogate, GipoKernelsByHand) {
  // At rho = e^-1 and sigma 0.5 the weights are e^-2, e^-2 and 1/5.
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kGaussian, 0.5), -1.0, 2.0).multiplier, std::exp(-3.0), 1e-15);
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kLaplacian, 0.5), -1.0, 2.0).multiplier, std::exp(-3.0), 1e-15);
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kCauchy, 0.5), -1.0, 2.0).multiplier, std::exp(-1.0) / 5, 1e-15);
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kGaussian, 2), 2.0, -3.0).multiplier, std::exp(1.5), 1e-14);
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kLaplacian, 2), 2.0, -3.0).multiplier, std::exp(1.0), 1e-14);
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kCauchy, 2), 2.0, -3.0).multiplier, std::exp(2.0) / 2, 1e-14);
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kGaussian, 2), 2.0, -3.0).loss, 3 * std::exp(1.5), 1e-13);
}

TEST(Surrogate, GipoWidthFollowsTheSignOfTheAdvantage) {
  SurrogateOptions options = gipo_with(TrustKernel::kGaussian, 1);
  options.sigma_neg = 0.5;
  EXPECT_NEAR(evaluate(options, 1.0, 2.0).multiplier, std::exp(0.5), 1e-15);
  EXPECT_NEAR(evaluate(options, 1.0, -2.0).multiplier, std::exp(-1.0), 1e-15);
  options.sigma_pos = 2;
  EXPECT_NEAR(evaluate(options, 1.0, 2.0).multiplier, std::exp(0.875), 1e-15);
}

TEST(Surrogate, LossDerivativeIsMinusMultiplierTimesAdvantage) {
  const double h = 1e-6;
  for (const char* name : {"no_clip", "ppo", "dual_clip", "sapo"}) {
    for (double log_ratio = -2.03; log_ratio < 2; log_ratio += 0.1) {  // misses the kinks at log 0.8, 1.2 and 3
      for (const double advantage : {1.5, -0.7}) {
        const SurrogateOptions options = named(name);
        const double slope =
            (evaluate(options, log_ratio + h, advantage).loss - evaluate(options, log_ratio - h, advantage).loss) /
            (2 * h);
        EXPECT_NEAR(slope, -evaluate(options, log_ratio, advantage).multiplier * advantage, 1e-7)
            << name << " " << log_ratio << " " << advantage;
      }
    }
  }
}

// The weight is not differentiated: freeze it at the point, written out anew here.
TEST(Surrogate, LossDerivativeWithFrozenWeight) {
  const double h = 1e-6, sigma = 0.5, advantage = -0.7;
  for (const double at : {-1.1, -0.3, 0.2, 0.8}) {
    const double weights[] = {std::exp(-at * at / (2 * sigma * sigma)), std::exp(-std::abs(at) / sigma),
                              1 / (1 + at * at / (sigma * sigma))};
    for (std::size_t k = 0; k < 3; ++k) {
      const auto loss = [&](double log_ratio) { return -weights[k] * std::exp(log_ratio) * advantage; };
      const Term<double> term = evaluate(gipo_with(kKernels[k], sigma), at, advantage);
      EXPECT_NEAR((loss(at + h) - loss(at - h)) / (2 * h), -term.multiplier * advantage, 1e-8) << word_of(kKernels[k]);
      EXPECT_NEAR(loss(at), term.loss, 1e-12) << word_of(kKernels[k]);
    }
    // cispo and truncated: weight * log pi * A, the weight frozen.
    const double rho = std::exp(at), clipped = std::max(0.8, std::min(1.2, rho)), cut = std::min(1.0, rho);
    for (const auto& [name, weight] : {std::pair{"cispo", clipped}, {"truncated", cut}}) {
      const auto loss = [&, w = weight](double log_pi) { return -w * log_pi * advantage; };
      const double slope = (loss(-2 + h) - loss(-2 - h)) / (2 * h);
      EXPECT_NEAR(slope, -evaluate(named(name), at, advantage).multiplier * advantage, 1e-8) << name;
    }
  }
}

TEST(Surrogate, GipoIsBoundedByItsPeak) {
  for (const double sigma : {0.1, 0.5, 1.0, 2.0}) {
    const double bound = std::exp(sigma * sigma / 2);
    for (double log_ratio = -20; log_ratio <= 20; log_ratio += 0.01) {
      EXPECT_LE(evaluate(gipo_with(TrustKernel::kGaussian, sigma), log_ratio, 1.0).multiplier, bound * (1 + 1e-12));
    }
    EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kGaussian, sigma), sigma * sigma, 1.0).multiplier, bound, 1e-12);
  }
}

TEST(Surrogate, SapoPeaksAwayFromOne) {
  SurrogateOptions options = named("sapo");
  options.tau_pos = 1;
  double best = 0, at = 0;
  for (double rho = 0.01; rho < 10; rho += 0.001) {
    const double m = evaluate(options, std::log(rho), 1.0).multiplier;
    if (m > best) best = m, at = rho;
  }
  EXPECT_NEAR(best, 1.57, 0.005);
  EXPECT_NEAR(at, 2.06, 0.01);
}

TEST(Surrogate, PullBackTouchesOnlyItsQuadrants) {
  for (const TrustKernel kernel : kKernels) {
    const auto m = [&](PullBack pull_back, double log_ratio, double advantage) {
      return evaluate(gipo_with(kernel, 0.5, pull_back), log_ratio, advantage).multiplier;
    };
    for (const PullBack pull_back : {PullBack::kPositive, PullBack::kBoth}) {
      EXPECT_NEAR(m(pull_back, -1, 1), std::exp(-1.0), 1e-15) << word_of(kernel);
      EXPECT_EQ(m(pull_back, 1, 1), m(PullBack::kDamped, 1, 1)) << word_of(kernel);
      EXPECT_EQ(m(pull_back, -1, -1), m(PullBack::kDamped, -1, -1)) << word_of(kernel);
    }
    EXPECT_EQ(m(PullBack::kPositive, 1, -1), m(PullBack::kDamped, 1, -1)) << word_of(kernel);
    EXPECT_LT(m(PullBack::kDamped, -1, 1), 0.5 * std::exp(-1.0)) << word_of(kernel);
  }
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kGaussian, 0.5, PullBack::kBoth), 1.0, -1.0).multiplier, std::exp(0.125),
              1e-15);
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kGaussian, 0.5, PullBack::kBoth), 0.1, -1.0).multiplier, std::exp(0.1),
              1e-15);
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kLaplacian, 0.5, PullBack::kBoth), 1.0, -1.0).multiplier, 1, 1e-15);
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kLaplacian, 2, PullBack::kBoth), 9.0, -1.0).multiplier, std::exp(2.0),
              1e-14);
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kCauchy, 2, PullBack::kBoth), 9.0, -1.0).multiplier, std::exp(2.0),
              1e-14);
}

TEST(Surrogate, PullBackCapsCauchyAtItsLocalPeak) {
  double peak = 0;
  for (double x = 0; x < 1; x += 1e-4) peak = std::max(peak, std::exp(x) / (1 + x * x / 0.25));
  EXPECT_GT(peak, 1.01);
  EXPECT_NEAR(evaluate(gipo_with(TrustKernel::kCauchy, 0.5, PullBack::kBoth), 15.0, -1.0).multiplier, peak, 1e-7);
}

TEST(Surrogate, PullBackCapUsesTheNegativeWidth) {
  SurrogateOptions options = gipo_with(TrustKernel::kGaussian, 2, PullBack::kBoth);
  options.sigma_neg = 0.5;
  EXPECT_NEAR(evaluate(options, 3.0, -1.0).multiplier, std::exp(0.125), 1e-15);
}

TEST(Surrogate, WideGipoIsNoClip) {
  for (const TrustKernel kernel : kKernels) {
    for (const double log_ratio : {-2.0, -0.1, 0.5, 2.0}) {
      EXPECT_NEAR(evaluate(gipo_with(kernel, 1e6), log_ratio, -2.0).multiplier / std::exp(log_ratio), 1, 1e-5);
    }
  }
}

TEST(Surrogate, OnPolicyMultiplierIsOne) {
  for (const SurrogateOptions& options : every_variant()) {
    for (const double a : {2.0, -2.0}) EXPECT_NEAR(evaluate(options, 0.0, a).multiplier, 1, 1e-12) << options.name;
  }
}

template <class T>
void expect_finite() {
  const T most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::denorm_min();
  const T values[] = {0, -T(0), 1, -1, T(1e30), T(-1e30), most, -most, least, -least, 20, -20, 87, -104, 710, -746};
  for (const SurrogateOptions& options : every_variant()) {
    for (const T log_ratio : values) {
      for (const T advantage : values) {
        const Term<T> term = evaluate<T>(options, log_ratio, advantage);
        EXPECT_TRUE(std::isfinite(term.multiplier) && term.multiplier >= 0) << options.name << " " << log_ratio;
        EXPECT_TRUE(std::isfinite(term.loss)) << options.name << " " << log_ratio << " " << advantage;
      }
    }
  }
}
TEST(Surrogate, ExtremeInputsStayFinite) {
  expect_finite<float>();
  expect_finite<double>();
}

TEST(Surrogate, FloatFollowsDouble) {
  RandomStream random(2);
  for (const SurrogateOptions& options : every_variant()) {
    for (int i = 0; i < 100; ++i) {
      const auto log_ratio = static_cast<float>(2 * random.normal()), advantage = static_cast<float>(random.normal());
      const Term<float> f = evaluate(options, log_ratio, advantage);
      const Term<double> d = evaluate(options, static_cast<double>(log_ratio), static_cast<double>(advantage));
      EXPECT_NEAR(f.multiplier, d.multiplier, 1e-4 * d.multiplier + 1e-36) << options.name << " " << log_ratio;
      EXPECT_NEAR(f.loss, d.loss, 1e-4 * std::abs(d.loss) + 1e-36) << options.name << " " << log_ratio;
    }
  }
}

TEST(Surrogate, OnlyClippingSurrogatesClipToZero) {
  for (const SurrogateInfo& info : registered_surrogates()) {
    // A moderate ratio underflows nothing, so a zero multiplier there is a clip.
    bool zero = false;
    for (const double a : {1.0, -1.0}) {
      for (const double x : {-1.2, 1.2}) zero |= evaluate(named(info.name), x, a).multiplier == 0;
    }
    EXPECT_EQ(Surrogate(named(info.name)).clips_to_zero(), zero) << info.name;
  }
}

TEST(Surrogate, ListedOptionsAreThoseOfTheGroup) {
  std::set<std::string> read = {"name", "ratio", "ratio_group", "centre", "importance_max"},
                        group;  // choose it, feed it
  for (const SurrogateInfo& info : registered_surrogates()) {
    EXPECT_FALSE(info.summary.empty());
    read.insert(info.options.begin(), info.options.end());
  }
  for (const Option<SurrogateOptions>& option : group_of<SurrogateOptions>().options)
    group.insert(option.key.substr(10));
  EXPECT_EQ(read, group);
}

TEST(Surrogate, UnknownNamesAreExplained) {
  const auto message = [](const SurrogateOptions& options) -> std::string {
    try {
      Surrogate surrogate(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string text = message(named("gippo"));
  EXPECT_EQ(text.find("surrogate.name = gippo is not known (did you mean gipo?)"), 0u) << text;
  for (const SurrogateInfo& info : registered_surrogates()) EXPECT_NE(text.find(info.name), std::string::npos);
}

TEST(Surrogate, M2poLeavesOutTheLargestUntilTheMeanSquareIsSmallEnough) {
  const std::vector<double> x = {0.1, -0.5, 0.2, -3, 0.3, 1.0}, a(6, 1.0);
  std::vector<double> m(6), loss(6);
  // Squares in order: .01 .04 .09 .25 1 9; the means of the first so many: .01 .025 .047 .0975 .278 1.73.
  EXPECT_GE(largest_kept<double>(x, 0.0975), 0.5);
  EXPECT_LT(largest_kept<double>(x, 0.0975), 1.0);
  EXPECT_LT(largest_kept<double>(x, 0.0974), 0.5);
  EXPECT_GE(largest_kept<double>(x, 0.0974), 0.3);
  EXPECT_GE(largest_kept<double>(x, 2.0), 3.0);
  EXPECT_LT(largest_kept<double>(x, 0.009), 0.1);
  EXPECT_EQ(largest_kept<double>({}, 0.04), kMaxLogRatio);
  SurrogateOptions o = named("m2po");
  o.moment_max = 0.1;
  Surrogate(o).evaluate(x, a, m, loss);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(m[i], std::abs(x[i]) <= 0.5 ? std::exp(x[i]) : 0.0) << i;
    EXPECT_EQ(loss[i], -m[i]) << i;
  }
}

TEST(Surrogate, WidthGrowsWithAge) {
  SurrogateOptions o = named("gipo");
  o.sigma = 0.3;
  o.sigma_growth = 0.5;
  o.sigma_gap = 10;
  EXPECT_TRUE(Surrogate(o).reads_age());
  const std::vector<double> x = {0.7, 0.7, -0.7, 0.7}, a = {1, 1, 1, -1}, age = {0, 30, 30, -5};
  std::vector<double> m(4), loss(4);
  Surrogate(o).evaluate(x, a, m, loss, age);
  const auto expected = [](double lr, double sigma) { return std::exp(lr - lr * lr / (2 * sigma * sigma)); };
  EXPECT_DOUBLE_EQ(m[0], expected(0.7, 0.3));
  EXPECT_DOUBLE_EQ(m[1], expected(0.7, 0.6));  // sqrt(1 + 30 / 10) = 2
  EXPECT_DOUBLE_EQ(m[2], expected(-0.7, 0.6));
  EXPECT_DOUBLE_EQ(m[3], expected(0.7, 0.3));
  Surrogate(o).evaluate(x, a, m, loss);
  EXPECT_DOUBLE_EQ(m[1], expected(0.7, 0.3));
  // The cap of pull_back = both grows with it.
  o.pull_back = PullBack::kBoth;
  const std::vector<double> far = {3}, bad = {-1}, old = {30};
  Surrogate(o).evaluate(far, bad, std::span(m).first(1), std::span(loss).first(1), old);
  EXPECT_DOUBLE_EQ(m[0], std::exp(0.18));
}

TEST(Surrogate, RefusesUnequalLengths) {
  std::vector<float> two(2), one(1);
  EXPECT_THROW(Surrogate(named("ppo")).evaluate(two, one, two, two), InvariantError);
}

}  // namespace
}  // namespace gipo
