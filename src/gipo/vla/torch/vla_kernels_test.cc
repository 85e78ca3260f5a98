#include "gipo/vla/torch/vla_kernels.h"

#include <gtest/gtest.h>

#include <vector>

#include "gipo/core/random.h"
#include "gipo/objective/surrogate.h"

namespace gipo {
namespace {

// The head in the plain way, in double: log-softmax, ratios, the surrogate over arrays, and the gradient of each log-prob.
struct PlainHead {
  std::vector<double> log_prob, multiplier, loss, d_logits;
};

struct HeadCase {
  HeadOptions options;
  std::vector<float> logits, behaviour, centre, advantage, age;
  std::vector<std::int32_t> action;
};

PlainHead plain_head(const HeadCase& c, const Surrogate& surrogate) {
  const HeadOptions& o = c.options;
  const auto tokens = static_cast<std::size_t>(o.tokens), each = static_cast<std::size_t>(o.each);
  const std::size_t all = c.action.size(), ratios = all / each;
  PlainHead out;
  std::vector<double> log_p(all * kHeadChoices), entropy(all);
  for (std::size_t t = 0; t < all; ++t) {
    double sum = 0;
    for (std::size_t k = 0; k < kHeadChoices; ++k) {
      log_p[t * kHeadChoices + k] = double(c.logits[t * kHeadChoices + k]) / double(o.temperature);
      sum += std::exp(log_p[t * kHeadChoices + k]);
    }
    for (std::size_t k = 0; k < kHeadChoices; ++k) {
      double& v = log_p[t * kHeadChoices + k];
      v -= std::log(sum);
      entropy[t] -= std::exp(v) * v;
    }
    out.log_prob.push_back(log_p[t * kHeadChoices + static_cast<std::size_t>(c.action[t])]);
  }
  std::vector<double> about(ratios), importance(ratios, 1), advantage(ratios), age(ratios);
  for (std::size_t t = 0; t < all; ++t) {
    const std::size_t j = t / each;
    about[j] += out.log_prob[t] - double(o.centred ? c.centre[t] : c.behaviour[t]);
    if (o.centred) importance[j] *= std::exp(double(c.centre[t]) - double(c.behaviour[t]));
    advantage[j] = double(c.advantage[t / tokens]), age[j] = double(c.age[t / tokens]);
  }
  out.multiplier.resize(ratios), out.loss.resize(ratios);
  surrogate.evaluate(std::span<const double>(about), advantage, std::span<double>(out.multiplier), out.loss, age);
  for (std::size_t j = 0; j < ratios; ++j) {
    importance[j] = std::min(importance[j], double(o.importance_max));
    out.multiplier[j] *= importance[j], out.loss[j] *= importance[j];
  }
  for (std::size_t t = 0; t < all; ++t) {
    for (std::size_t k = 0; k < kHeadChoices; ++k) {
      const double v = log_p[t * kHeadChoices + k], p = std::exp(v);
      const double chosen = static_cast<std::size_t>(c.action[t]) == k ? 1 : 0;
      const double by_log_prob = -out.multiplier[t / each] * advantage[t / each] * (chosen - p);
      const double by_entropy = double(o.entropy_coef) * p * (v + entropy[t]);
      out.d_logits.push_back((by_log_prob + by_entropy) * double(o.weight) / double(o.temperature));
    }
  }
  return out;
}

HeadCase make_case(const Surrogate& surrogate, std::int64_t each) {
  HeadCase c;
  c.options.n = 4, c.options.tokens = 56, c.options.each = each;
  c.options.temperature = 1.6F, c.options.entropy_coef = 0.02F, c.options.weight = 0.25F;
  c.options.surrogate = surrogate.choice();
  c.options.centred = surrogate.centred(), c.options.importance_max = static_cast<float>(surrogate.importance_max());
  RandomStream random(3);
  const auto draw = [&](std::vector<float>& to, std::size_t size, double scale) {
    for (std::size_t i = 0; i < size; ++i) to.push_back(static_cast<float>(scale * random.normal()));
  };
  draw(c.logits, 4 * 56 * kHeadChoices, 2);
  draw(c.advantage, 4, 1);
  for (std::size_t t = 0; t < std::size_t{4} * 56; ++t) {
    c.action.push_back(static_cast<std::int32_t>(random.below(kHeadChoices)));
    double sum = 0;
    for (std::size_t k = 0; k < kHeadChoices; ++k) sum += std::exp(double(c.logits[t * kHeadChoices + k]) / 1.6);
    const double log_prob =
        double(c.logits[t * kHeadChoices + static_cast<std::size_t>(c.action[t])]) / 1.6 - std::log(sum);
    const double spread = 0.5 / std::sqrt(double(each));
    c.behaviour.push_back(static_cast<float>(log_prob + spread * random.normal()));
    c.centre.push_back(static_cast<float>(log_prob + spread * random.normal()));
  }
  for (int i = 0; i < 4; ++i) c.age.push_back(static_cast<float>(random.uniform(0, 300)));
  return c;
}

double worst(const std::vector<float>& ours, const std::vector<double>& plain) {
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    largest = std::max(largest, std::abs(plain[i]));
    difference = std::max(difference, std::abs(double(ours[i]) - plain[i]));
  }
  return difference / largest;
}

TEST(VlaKernels, TheFusedHeadIsThePlainOneForEverySurrogateAndRatio) {
  for (const SurrogateInfo& info : registered_surrogates()) {
    for (const std::int64_t each : {1, 7, 56}) {
      for (const bool centred : {false, true}) {
        SurrogateOptions options;
        options.name = info.name;
        options.sigma_growth = info.name == "gipo" && centred ? 0.5 : 0;
        options.centre = centred ? Centre::kProximal : Centre::kBehaviour;
        const Surrogate surrogate(options);
        HeadCase c = make_case(surrogate, each);
        const std::size_t tokens = c.action.size(), ratios = tokens / static_cast<std::size_t>(each);
        std::vector<float> log_prob(tokens), entropy(tokens), log_ratio(ratios), multiplier(ratios), loss(ratios),
            d_logits(c.logits.size());
        const HeadArrays arrays{c.logits.data(),    c.action.data(),   c.behaviour.data(), c.centre.data(),
                                c.advantage.data(), c.age.data(),      log_prob.data(),    entropy.data(),
                                log_ratio.data(),   multiplier.data(), loss.data(),        d_logits.data()};
        if (info.name == "m2po") {  // the bound first, from all ratios
          host_head(c.options, arrays);
          std::vector<float> about = log_ratio;
          for (std::size_t t = 0; centred && t < tokens; ++t) {
            about[t / static_cast<std::size_t>(each)] -= c.centre[t] - c.behaviour[t];
          }
          c.options.kept = largest_kept<float>(about, options.moment_max);
        }
        host_head(c.options, arrays);
        const PlainHead plain = plain_head(c, surrogate);
        const std::string where = info.name + " over " + std::to_string(each) + (centred ? " centred" : "");
        EXPECT_LT(worst(log_prob, plain.log_prob), 1e-5) << where;
        EXPECT_LT(worst(multiplier, plain.multiplier), 1e-5) << where;
        EXPECT_LT(worst(loss, plain.loss), 1e-5) << where;
        EXPECT_LT(worst(d_logits, plain.d_logits), 1e-5) << where;
      }
    }
  }
}

// Against a search among all of them.
TEST(VlaKernels, RowsInEightBitsAreTheNearest) {
  const auto value_of = [](int code) {  // without its sign
    const int exponent = code / 8, mantissa = code % 8;
    return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  };
  RandomStream random(5);
  std::vector<float> x;
  for (int code = 0; code < 127; ++code) {  // the values, what lies midway, and what lies anywhere
    x.push_back(static_cast<float>(value_of(code)));
    if (code < 126) x.push_back(static_cast<float>((value_of(code) + value_of(code + 1)) / -2));
    x.push_back(static_cast<float>(448 * random.uniform() * std::pow(0.5, 18 * random.uniform())));
  }
  const auto width = static_cast<std::int64_t>(x.size());
  std::vector<float> rows = x, scale(3);
  for (const float v : x) rows.push_back(v * 0.25F);
  rows.resize(3 * x.size(), 0.0F);
  std::vector<std::uint8_t> found(rows.size());
  host_fp8_rows({Value::kFloat, 3, width, rows.data(), found.data(), scale.data()});
  EXPECT_EQ(scale, (std::vector<float>{1, 0.25F, 1}));
  for (std::size_t i = 0; i < x.size(); ++i) {
    int nearest = 0;
    for (int code = 0; code < 127; ++code) {
      const double before = std::abs(value_of(nearest) - std::abs(double(x[i]))),
                   now = std::abs(value_of(code) - std::abs(double(x[i])));
      if (now < before || (now == before && code % 2 == 0)) nearest = code;
    }
    const int wanted = nearest + (std::signbit(x[i]) ? 128 : 0);
    EXPECT_EQ(found[i], wanted) << x[i];
    EXPECT_EQ(found[x.size() + i], wanted) << x[i];
    EXPECT_EQ(found[2 * x.size() + i], 0);
  }
}

TEST(VlaKernels, ASplitFloatLosesNothing) {
  RandomStream random(1);
  for (int i = 0; i < 100000; ++i) {
    const float value = static_cast<float>(random.normal() * std::exp(10 * random.normal()));
    const SplitFloat parts = split(value);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(join(parts)), std::bit_cast<std::uint32_t>(value));
    EXPECT_LE(std::abs(from_bf16(parts.high) - value), std::abs(value) / 256);
  }
  for (const float value : {0.0F, -0.0F, 1.00390625F, -1.00390625F, 1e-40F, 3e38F}) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(join(split(value))), std::bit_cast<std::uint32_t>(value));
  }
}

TEST(VlaKernels, AdamWOnASplitMasterIsThatInFloat) {
  constexpr std::size_t kCount = 64;
  std::vector<float> parameter(kCount), first(kCount), second(kCount), first_split(kCount), second_split(kCount);
  std::vector<std::uint16_t> high(kCount), gradient(kCount);
  std::vector<std::int16_t> low(kCount);
  std::vector<float> wide(kCount);
  RandomStream random(2);
  for (std::size_t i = 0; i < kCount; ++i) {
    parameter[i] = static_cast<float>(random.normal());
    const SplitFloat parts = split(parameter[i]);
    high[i] = parts.high, low[i] = parts.low;
  }
  const AdamWStep<float> step{0.9F, 0.999F, 1e-8F, 1e-5F, 1.0F, 0.9999F, 1.0F};
  for (int s = 0; s < 50; ++s) {
    for (std::size_t i = 0; i < kCount; ++i) {
      gradient[i] = split(static_cast<float>(random.normal())).high;
      wide[i] = from_bf16(gradient[i]);
    }
    const float norm = s == 20 ? HUGE_VALF : 3.0F;  // one that is left out
    host_adamw({Value::kFloat, kCount, parameter.data(), nullptr, wide.data(), first.data(), second.data(), &norm, 1.0F,
                step});
    host_adamw({Value::kBf16, kCount, high.data(), low.data(), gradient.data(), first_split.data(), second_split.data(),
                &norm, 1.0F, step});
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(join({high[i], low[i]}), parameter[i]);
    EXPECT_EQ(first[i], first_split[i]);
    EXPECT_EQ(second[i], second_split[i]);
  }
}

}  // namespace
}  // namespace gipo
