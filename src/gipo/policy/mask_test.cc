// Choices that are not valid: never taken, and absent from every term of the loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gipo/core/random.h"
#include "gipo/policy/distribution.h"

namespace gipo {
namespace {

using Mask = std::vector<std::uint8_t>;

template <class T>
std::vector<T> numbers(RandomStream& random, std::size_t n, double scale = 1) {
  std::vector<T> all(n);
  for (T& v : all) v = static_cast<T>(scale * random.normal());
  return all;
}

// Valid with the given probability; every head keeps one.
Mask random_mask(RandomStream& random, const DistributionSpec& spec, double valid) {
  Mask mask;
  for (const std::int64_t n : spec.choices) {
    const std::size_t begin = mask.size();
    for (std::int64_t k = 0; k < n; ++k) mask.push_back(random.uniform() < valid ? 1 + (k % 255) : 0);
    if (n > 0) mask[begin + random.below(static_cast<std::uint64_t>(n))] = 1;
  }
  return mask;
}

TEST(Mask, NoActionThatIsNotValidIsEverTaken) {
  const DistributionSpec spec{{1000}, true};
  RandomStream random(1);
  constexpr int kStates = 1000, kDraws = 1000;
  int taken = 0;
  for (int s = 0; s < kStates; ++s) {
    // From flat logits to such that rounding leaves a rest after the last valid choice.
    const std::vector<float> logits = numbers<float>(random, 1000, s % 4 * 20.0);
    const Mask mask = random_mask(random, spec, s % 3 == 0 ? 0.0 : s % 3 == 1 ? 0.01 : 0.5);
    float action, log_prob;
    mode_action<float>(spec, {logits.data(), {}}, 0, {&action, 1}, mask.data());
    taken += mask[static_cast<std::size_t>(action)] == 0;
    for (int i = 0; i < kDraws; ++i) {
      sample_action<float>(spec, {logits.data(), {}}, 0, random, {&action, 1}, {&log_prob, 1}, mask.data());
      taken += mask[static_cast<std::size_t>(action)] == 0;
      ASSERT_TRUE(log_prob <= 0 && log_prob > -1e4f) << log_prob;
    }
  }
  EXPECT_EQ(taken, 0);
}

TEST(Mask, LogitsThatAreNoNumbersLeadToAValidChoiceToo) {
  const std::vector<float> logits(5, NAN);
  const Mask mask = {0, 0, 1, 1, 0};
  const DistributionSpec spec{{5}, true};
  RandomStream random(2);
  float action, log_prob;
  mode_action<float>(spec, {logits.data(), {}}, 0, {&action, 1}, mask.data());
  EXPECT_TRUE(mask[static_cast<std::size_t>(action)]);
  sample_action<float>(spec, {logits.data(), {}}, 0, random, {&action, 1}, {&log_prob, 1}, mask.data());
  EXPECT_TRUE(mask[static_cast<std::size_t>(action)]);
}

// In a second row, beside a gaussian.
TEST(Mask, ChoicesAreAsFrequentAsTheirProbabilities) {
  const DistributionSpec spec{{0, 4, 6}, true};
  RandomStream random(3);
  const std::vector<float> outputs = numbers<float>(random, 2 * spec.outputs()), log_std = {-0.5f};
  Mask mask(2 * spec.mask_size(), 1);
  const Mask second = {1, 0, 1, 0, 0, 1, 1, 0, 1, 0};
  std::copy(second.begin(), second.end(), mask.begin() + 10);
  EvaluatedDistribution<float> pi(spec, 2);
  pi.evaluate({outputs.data(), log_std}, 2, mask.data());
  std::vector<double> count(10);
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) {
    float action[3], log_prob[3];
    sample_action<float>(spec, {outputs.data(), log_std}, 1, random, action, log_prob, mask.data());
    count[static_cast<std::size_t>(action[1])] += 1.0 / kDraws;
    count[4 + static_cast<std::size_t>(action[2])] += 1.0 / kDraws;
    if (i >= 1000) continue;
    float both[6] = {0, 0, 0, action[0], action[1], action[2]}, again[6];
    pi.log_prob(both, again);
    for (int d = 0; d < 3; ++d) ASSERT_NEAR(log_prob[d], again[3 + d], 1e-5);
  }
  double sum = 0;
  for (std::size_t k = 0; k < 10; ++k) {
    const auto head = static_cast<float>(k < 4 ? k : 0), other = static_cast<float>(k < 4 ? 0 : k - 4);
    float action[6] = {0, 0, 0, 0, head, other}, log_prob[6];
    pi.log_prob(action, log_prob);
    const double p = std::exp(static_cast<double>(log_prob[k < 4 ? 4 : 5]));
    sum += p;
    if (second[k]) {
      EXPECT_NEAR(count[k], p, 0.005);
    } else {
      EXPECT_EQ(p, 0);
      EXPECT_EQ(count[k], 0);
    }
  }
  EXPECT_NEAR(sum, 2, 1e-5);
}

// The terms of the loss over a batch, and their gradient.
template <class T>
struct Rows {
  Rows(const DistributionSpec& s, std::size_t n, std::uint64_t seed) : spec(s), rows(n), random(seed) {
    outputs = numbers<T>(random, rows * spec.outputs());
    extra = numbers<T>(random, spec.extra_parameters(), 0.3);
    other_outputs = numbers<T>(random, rows * spec.outputs());
    other_extra = numbers<T>(random, spec.extra_parameters(), 0.3);
    d_log_prob = numbers<T>(random, rows * spec.dims());
    for (std::size_t r = 0; r < rows; ++r) {
      const Mask row = random_mask(random, spec, 0.5);
      mask.insert(mask.end(), row.begin(), row.end());
      const std::uint8_t* at = mask.data() + mask.size() - row.size();
      for (const std::int64_t choices : spec.choices) {
        const auto k = static_cast<std::size_t>(std::find_if(at, at + choices, [](auto v) { return v; }) - at);
        action.push_back(choices > 0 ? static_cast<T>(k) : static_cast<T>(random.normal()));
        at += choices;
      }
    }
  }

  T loss(const std::uint8_t* with) const {
    EvaluatedDistribution<T> pi(spec, rows), other(spec, rows);
    pi.evaluate({outputs.data(), extra}, rows, with);
    other.evaluate({other_outputs.data(), other_extra}, rows, with);
    std::vector<T> log_prob(rows * spec.dims()), entropy(rows), kl(rows);
    pi.log_prob(action.data(), log_prob.data());
    pi.entropy(entropy.data());
    pi.kl_divergence(other, kl.data());
    T sum = 0;
    for (std::size_t i = 0; i < log_prob.size(); ++i) sum += d_log_prob[i] * log_prob[i];
    for (std::size_t r = 0; r < rows; ++r) sum += kKlCoef * kl[r] - kEntropyCoef * entropy[r];
    return sum;
  }

  void gradient(const std::uint8_t* with, std::vector<T>& d_outputs, std::vector<T>& d_extra) const {
    EvaluatedDistribution<T> pi(spec, rows), other(spec, rows);
    pi.evaluate({outputs.data(), extra}, rows, with);
    other.evaluate({other_outputs.data(), other_extra}, rows, with);
    d_outputs.assign(outputs.size(), T(7));
    d_extra.assign(extra.size(), T(7));
    pi.gradient(action.data(), {d_log_prob.data(), kEntropyCoef, kKlCoef, &other}, d_outputs.data(), d_extra);
  }

  static constexpr T kEntropyCoef = T(0.3), kKlCoef = T(0.7);
  DistributionSpec spec;
  std::size_t rows;
  RandomStream random;
  std::vector<T> outputs, extra, other_outputs, other_extra, d_log_prob, action;
  Mask mask;
};

TEST(Mask, GradientMatchesFiniteDifferences) {
  Rows<double> b({{5, 0, 12, 3, 0}, true}, 9, 4);
  std::vector<double> d_outputs, d_extra;
  b.gradient(b.mask.data(), d_outputs, d_extra);
  const double h = 1e-6;
  double difference = 0, size = 0;
  const auto compare = [&](std::vector<double>& at, const std::vector<double>& gradient) {
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double held = at[i];
      at[i] = held + h;
      const double up = b.loss(b.mask.data());
      at[i] = held - h;
      const double down = b.loss(b.mask.data());
      at[i] = held;
      difference += std::pow((up - down) / (2 * h) - gradient[i], 2);
      size += gradient[i] * gradient[i];
    }
  };
  compare(b.outputs, d_outputs);
  compare(b.extra, d_extra);
  EXPECT_LT(std::sqrt(difference / size), 1e-5);
}

template <class T>
void expect_zero_where_masked() {
  Rows<T> b({{40, 0, 3}, true}, 20, 5);  // wide and narrow: the kernel has a loop for each
  std::vector<T> d_outputs, d_extra;
  b.gradient(b.mask.data(), d_outputs, d_extra);
  std::size_t masked = 0;
  for (std::size_t r = 0; r < b.rows; ++r) {
    for (std::size_t k = 0; k < 43; ++k) {
      const T d = d_outputs[r * 44 + k + (k < 40 ? 0 : 1)];
      EXPECT_TRUE(std::isfinite(d));
      if (b.mask[r * 43 + k]) continue;
      EXPECT_EQ(d, T(0));
      ++masked;
    }
  }
  EXPECT_GT(masked, 200u);
}

TEST(Mask, GradientIsExactlyZeroAtChoicesThatAreNotValid) {
  expect_zero_where_masked<float>();
  expect_zero_where_masked<double>();
}

TEST(Mask, OneValidChoiceIsCertain) {
  const DistributionSpec spec{{300, 4}, true};
  RandomStream random(6);
  const std::vector<float> p = numbers<float>(random, 304, 5), q = numbers<float>(random, 304, 5);
  Mask mask(304);
  mask[17] = mask[302] = 1;
  EvaluatedDistribution<float> pi(spec, 1), other(spec, 1);
  pi.evaluate({p.data(), {}}, 1, mask.data());
  other.evaluate({q.data(), {}}, 1, mask.data());
  const float action[2] = {17, 2}, wrong[2] = {16, 3};
  float log_prob[2], entropy, kl;
  pi.log_prob(action, log_prob);
  pi.entropy(&entropy);
  pi.kl_divergence(other, &kl);
  EXPECT_EQ(log_prob[0], 0);
  EXPECT_EQ(log_prob[1], 0);
  EXPECT_EQ(entropy, 0);
  EXPECT_EQ(kl, 0);
  pi.log_prob(wrong, log_prob);
  EXPECT_TRUE(std::isfinite(log_prob[0]) && std::isfinite(log_prob[1]));
  EXPECT_EQ(std::exp(log_prob[0]), 0);
  EXPECT_EQ(std::exp(log_prob[1]), 0);
}

TEST(Mask, WhereAllIsValidItChangesNothing) {
  Rows<float> b({{2, 0, 40, 7}, true}, 50, 7);
  const Mask ones(b.rows * b.spec.mask_size(), 1);
  EvaluatedDistribution<float> with(b.spec, b.rows), without(b.spec, b.rows);
  with.evaluate({b.outputs.data(), b.extra}, b.rows, ones.data());
  without.evaluate({b.outputs.data(), b.extra}, b.rows);
  std::vector<float> one(b.rows * 4), two(b.rows * 4);
  with.log_prob(b.action.data(), one.data());
  without.log_prob(b.action.data(), two.data());
  EXPECT_EQ(one, two);
  with.entropy(one.data());
  without.entropy(two.data());
  EXPECT_EQ(one, two);
  EXPECT_EQ(b.loss(ones.data()), b.loss(nullptr));
  std::vector<float> d_one, d_two, e_one, e_two;
  b.gradient(ones.data(), d_one, e_one);
  b.gradient(nullptr, d_two, e_two);
  EXPECT_EQ(d_one, d_two);
  EXPECT_EQ(e_one, e_two);
  RandomStream first(8), second(8);
  for (std::size_t i = 0; i < 2000; ++i) {
    std::vector<float> a(4), c(4), la(4), lc(4);
    const std::size_t row = i % b.rows;
    sample_action<float>(b.spec, {b.outputs.data(), b.extra}, row, first, a, la, ones.data());
    sample_action<float>(b.spec, {b.outputs.data(), b.extra}, row, second, c, lc);
    ASSERT_EQ(a, c);
    ASSERT_EQ(la, lc);
    mode_action<float>(b.spec, {b.outputs.data(), b.extra}, row, a, ones.data());
    mode_action<float>(b.spec, {b.outputs.data(), b.extra}, row, c);
    ASSERT_EQ(a, c);
  }
}

TEST(Mask, AStateInWhichAHeadHasNoValidChoiceIsFound) {
  const DistributionSpec spec{{2, 0, 3}, true};
  EXPECT_EQ(spec.mask_size(), 5u);
  EXPECT_TRUE(any_valid(spec, Mask{0, 1, 0, 0, 1}.data()));
  EXPECT_FALSE(any_valid(spec, Mask{1, 1, 0, 0, 0}.data()));
  EXPECT_FALSE(any_valid(spec, Mask{0, 0, 1, 1, 1}.data()));
}

}  // namespace
}  // namespace gipo
