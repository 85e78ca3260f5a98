#include "gipo/objective/diagnostics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/objective/surrogate.h"

namespace gipo {
namespace {

struct Data {
  std::vector<float> log_ratio, advantage, multiplier, trust;
  std::vector<std::int64_t> gap;
  std::vector<double> age;
  std::size_t dims = 1;
  std::int64_t t_old = 600;
  bool clips_to_zero = false;
  DiagnosticsInput input() const {
    return {log_ratio, advantage, multiplier, gap, age, dims, t_old, 1000, 0.2, clips_to_zero, {}, trust};
  }
};

Data random_data(std::size_t samples, std::size_t dims, std::int64_t gap_low, std::int64_t gap_high,
                 const std::string& surrogate, std::uint64_t seed) {
  RandomStream random(seed);
  Data d;
  d.dims = dims;
  for (std::size_t n = 0; n < samples; ++n) {
    d.gap.push_back(random.uniform() < 0.2
                        ? gap_low
                        : gap_low +
                              static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(gap_high - gap_low))));
    d.age.push_back(8 * static_cast<double>(d.gap.back()) + random.uniform());
    for (std::size_t k = 0; k < dims; ++k) {
      d.log_ratio.push_back(static_cast<float>((random.uniform() < 0.05 ? 12 : 0.6) * random.normal()));
      d.advantage.push_back(random.uniform() < 0.05 ? 0 : static_cast<float>(random.normal()));
    }
  }
  d.multiplier.resize(d.log_ratio.size());
  std::vector<float> loss(d.log_ratio.size());
  SurrogateOptions options;
  options.name = surrogate;
  const Surrogate made(options);
  made.evaluate(d.log_ratio, d.advantage, d.multiplier, loss);
  d.clips_to_zero = made.clips_to_zero();
  return d;
}

using Figures = std::map<std::string, double>;
Figures to_map(const std::vector<std::pair<std::string, double>>& figures) {
  return Figures(figures.begin(), figures.end());
}

double mean(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x;
  return v.empty() ? 0 : sum / static_cast<double>(v.size());
}
double percentile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  const double h = q * static_cast<double>(v.size() - 1);
  const auto k = static_cast<std::size_t>(h);
  return v[k] + (v[std::min(k + 1, v.size() - 1)] - v[k]) * (h - static_cast<double>(k));
}

// One subset, each figure from its own definition; sums of u and u^2 and the sizes under names of their own.
Figures naive_subset(const Data& d, const std::string& suffix, const std::function<bool(std::int64_t)>& chosen) {
  std::vector<double> gap, age, lr, abs_lr, abs_trust, rho, m, u, u2;
  for (std::size_t i = 0; i < d.log_ratio.size(); ++i) {
    const std::size_t n = i / d.dims;
    if (!chosen(d.gap[n])) continue;
    if (i % d.dims == 0) gap.push_back(static_cast<double>(d.gap[n])), age.push_back(d.age[n]);
    lr.push_back(d.log_ratio[i]);
    abs_lr.push_back(std::abs(lr.back()));
    abs_trust.push_back(std::abs(d.trust.empty() ? d.log_ratio[i] : d.trust[i]));
    rho.push_back(std::exp(std::min(20.0, std::max(-20.0, lr.back()))));
    m.push_back(d.multiplier[i]);
    u.push_back(std::abs(m.back() * d.advantage[i]));
    u2.push_back(u.back() * u.back());
  }
  const auto fraction = [](const std::vector<double>& v, auto predicate) {
    const auto count = static_cast<double>(std::count_if(v.begin(), v.end(), predicate));
    return v.empty() ? 0 : count / static_cast<double>(v.size());
  };
  const double zeros = fraction(m, [](double x) { return x == 0; });
  const Figures plain = {
      {"gap_mean", mean(gap)},
      {"gap_p95", percentile(gap, 0.95)},
      {"age_mean", mean(age)},
      {"ratio_mean", mean(rho)},
      {"ratio_p50", percentile(rho, 0.5)},
      {"ratio_p90", percentile(rho, 0.9)},
      {"ratio_p99", percentile(rho, 0.99)},
      {"ratio_max", percentile(rho, 1)},
      {"log_ratio_mean", mean(lr)},
      {"kl", -mean(lr) * static_cast<double>(d.dims)},
      {"d95", percentile(abs_lr, 0.95)},
      {"trust_d95", percentile(abs_trust, 0.95)},
      {"near_zero_frac", fraction(u, [](double x) { return x <= 1e-3; })},
      {"dead_frac", d.clips_to_zero ? zeros : 0},
      {"underflow_frac", d.clips_to_zero ? 0 : zeros},
      {"suppressed_frac", fraction(m, [](double x) { return x > 0 && x <= 1e-3; })},
      {"clip_frac", fraction(rho, [](double x) { return x > 1.2 || x < 0.8; })},
      {"contribution_mean", mean(u)},
  };
  Figures figures;
  for (const auto& [name, value] : plain) figures[name + suffix] = gap.empty() ? std::nan("") : value;
  figures["#samples" + suffix] = static_cast<double>(gap.size());
  figures["#entries" + suffix] = static_cast<double>(u.size());
  figures["#u" + suffix] = mean(u) * static_cast<double>(u.size());
  figures["#u2" + suffix] = mean(u2) * static_cast<double>(u.size());
  return figures;
}

Figures naive(const Data& d) {
  Figures f = naive_subset(d, "", [](std::int64_t) { return true; });
  f.merge(naive_subset(d, "_new", [](std::int64_t gap) { return gap <= 2; }));
  f.merge(naive_subset(d, "_old", [&](std::int64_t gap) { return gap >= d.t_old; }));
  const auto divide = [](double a, double b) { return b == 0 ? 0 : a / b; };
  f["new_frac"] = divide(f["#samples_new"], f["#samples"]);
  f["old_frac"] = divide(f["#samples_old"], f["#samples"]);
  f["old_gap_p95"] = f["#samples_old"] == 0 ? 0 : f["gap_p95_old"];
  f["share_old"] = divide(f["#u_old"], f["#u"]);
  f["ess"] = divide(f["#u"] * f["#u"], f["#u2"]);
  f["ess_norm"] = divide(f["ess"], f["#entries"]);
  f["ess_old"] = divide(f["#u_old"] * f["#u_old"], f["#u2_old"]);
  f["ess_old_norm"] = divide(f["ess_old"], f["#entries_old"]);
  f["abs_log_rho_p95"] = f["#samples"] == 0 ? 0 : f["d95"];
  std::erase_if(f, [](const auto& item) { return item.first[0] == '#'; });
  return f;
}

void expect_same(const Data& d) {
  Diagnostics diagnostics;
  const Figures expected = naive(d), found = to_map(diagnostics.compute(d.input()));
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(found.count(name)) << name;
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(found.at(name))) << name;
    } else {
      EXPECT_NEAR(found.at(name), value, 2e-6 * std::abs(value) + 1e-12) << name;  // rho is a float
    }
  }
}

TEST(Diagnostics, MatchTheDefinitions) {
  for (const char* surrogate : {"gipo", "ppo", "sapo"}) {
    for (const std::size_t dims : {1, 3}) {
      for (const std::size_t samples : {1, 2, 37, 256}) {
        SCOPED_TRACE(std::string(surrogate) + " " + std::to_string(dims) + " " + std::to_string(samples));
        Data d = random_data(samples, dims, 0, 1500, surrogate, samples + dims);
        expect_same(d);
        for (const float x : d.log_ratio) d.trust.push_back(0.1f * x - 0.02f);  // about another centre
        expect_same(d);
      }
    }
  }
}

TEST(Diagnostics, SubsetsMayBeEmptyOrOverlap) {
  expect_same(random_data(50, 3, 0, 500, "gipo", 1));    // none old
  expect_same(random_data(50, 1, 700, 900, "gipo", 2));  // none new
  expect_same(random_data(50, 1, 10, 500, "gipo", 3));   // neither
  Data overlapping = random_data(50, 1, 0, 5, "ppo", 4);
  overlapping.t_old = 1;
  expect_same(overlapping);
  expect_same(Data{});
}

TEST(Diagnostics, ByHand) {
  Data d;
  d.log_ratio = {0, 0, 0, std::log(2.0f)};
  d.advantage = {1, -2, 0, 4};
  d.multiplier = {1, 0.5f, 1, 5e-4f};
  d.gap = {0, 700, 3, 800};
  d.age = {0, 70, 3, 87};
  Diagnostics diagnostics;
  const Figures f = to_map(diagnostics.compute(d.input()));
  EXPECT_DOUBLE_EQ(f.at("new_frac"), 0.25);
  EXPECT_DOUBLE_EQ(f.at("old_frac"), 0.5);
  EXPECT_DOUBLE_EQ(f.at("old_gap_p95"), 795);
  EXPECT_DOUBLE_EQ(f.at("age_mean"), 40);
  EXPECT_NEAR(f.at("ratio_p90"), 1.7, 1e-6);  // 1, 1, 1, 2: 0.7 of the way, in rho and not in log rho
  EXPECT_DOUBLE_EQ(f.at("near_zero_frac"), 0.25);
  EXPECT_DOUBLE_EQ(f.at("suppressed_frac"), 0.25);
  EXPECT_DOUBLE_EQ(f.at("clip_frac_old"), 0.5);
  EXPECT_NEAR(f.at("share_old"), 1.002 / 2.002, 1e-9);
  EXPECT_NEAR(f.at("ess_old"), 1.002 * 1.002 / (1 + 4e-6), 1e-9);
  EXPECT_NEAR(f.at("ess_old_norm"), f.at("ess_old") / 2, 1e-12);
}

TEST(Diagnostics, DeadAndUnderflowAreApart) {
  Data d = random_data(10, 1, 0, 100, "no_clip", 5);
  d.multiplier[2] = d.multiplier[7] = d.multiplier[8] = 0;
  Diagnostics diagnostics;
  Figures f = to_map(diagnostics.compute(d.input()));
  EXPECT_DOUBLE_EQ(f["underflow_frac"], 0.3);
  EXPECT_EQ(f["dead_frac"], 0);
  EXPECT_EQ(f["suppressed_frac"], 0);
  d.clips_to_zero = true;
  f = to_map(diagnostics.compute(d.input()));
  EXPECT_DOUBLE_EQ(f["dead_frac"], 0.3);
  EXPECT_EQ(f["underflow_frac"], 0);
}

TEST(Diagnostics, HistogramsCountEveryEntryByAge) {
  const Data d = random_data(300, 3, 0, 1500, "ppo", 6);
  AgeHistogram u_expected{}, lr_expected{};
  const auto first_not_below = [](const auto& edges, double value) {
    std::size_t k = 0;
    while (k < edges.size() && value > edges[k]) ++k;
    return k;
  };
  for (std::size_t i = 0; i < d.log_ratio.size(); ++i) {
    const auto row = static_cast<std::size_t>(std::min<std::int64_t>(7, 8 * d.gap[i / 3] / 1000));
    const double u = std::abs(static_cast<double>(d.multiplier[i]) * d.advantage[i]);
    ++u_expected[row][first_not_below(kContributionEdges, u)];
    ++lr_expected[row][first_not_below(kLogRatioEdges, std::abs(d.log_ratio[i]))];
  }
  Diagnostics diagnostics;
  for (int repeat = 0; repeat < 2; ++repeat) {  // counts start anew at every call
    diagnostics.compute(d.input());
    EXPECT_EQ(diagnostics.contribution_by_age(), u_expected);
    EXPECT_EQ(diagnostics.log_ratio_by_age(), lr_expected);
  }
  std::uint32_t total = 0, zeros = 0;
  for (const auto& row : diagnostics.contribution_by_age()) {
    zeros += row[0];
    for (const std::uint32_t count : row) total += count;
  }
  EXPECT_EQ(total, 900u);
  EXPECT_GT(zeros, 0u);
}

std::map<std::string, std::vector<double>> profiles_of(const Diagnostics& diagnostics) {
  std::map<std::string, std::vector<double>> all;
  for (const auto& [name, values] : diagnostics.profiles()) all[name].assign(values.begin(), values.end());
  return all;
}

TEST(Diagnostics, ProfilesByAgeMatchTheDefinitions) {
  for (const char* surrogate : {"ppo", "gipo"}) {
    Data d = random_data(300, 3, 0, 900, surrogate, 6);
    d.multiplier[5] = 0;  // of a kernel: underflow
    std::vector<double> entries(kAgeBins), sum(kAgeBins), squares(kAgeBins), zero(kAgeBins);
    double total = 0;
    for (std::size_t i = 0; i < d.log_ratio.size(); ++i) {
      const auto row = static_cast<std::size_t>(8 * d.gap[i / 3] / 1000);
      const double u = std::abs(static_cast<double>(d.multiplier[i]) * d.advantage[i]);
      entries[row] += 1, sum[row] += u, squares[row] += u * u, zero[row] += d.multiplier[i] == 0, total += u;
    }
    Diagnostics diagnostics;
    diagnostics.compute(d.input());
    const auto found = profiles_of(diagnostics);
    double shares = 0;
    for (std::size_t k = 0; k < kAgeBins - 1; ++k) {
      ASSERT_GT(entries[k], 0);
      EXPECT_NEAR(found.at("share_by_age")[k], sum[k] / total, 1e-12);
      EXPECT_NEAR(found.at("ess_by_age")[k], sum[k] * sum[k] / squares[k] / entries[k], 1e-12);
      EXPECT_NEAR(found.at("dead_by_age")[k], zero[k] / entries[k], 1e-12);
      shares += found.at("share_by_age")[k];
    }
    EXPECT_NEAR(shares + found.at("share_by_age").back(), 1, 1e-12);
    std::vector<std::uint32_t> oldest(diagnostics.contribution_by_age().back().begin(),
                                      diagnostics.contribution_by_age().back().end());
    EXPECT_EQ(std::count(oldest.begin(), oldest.end(), 0u) == 8, entries.back() == 0);
  }
}

TEST(Diagnostics, AnAgeWithoutEntriesHasZeros) {
  Diagnostics diagnostics;
  diagnostics.compute(random_data(50, 1, 0, 100, "gipo", 3).input());  // all in the first eighth
  const auto found = profiles_of(diagnostics);
  EXPECT_NEAR(found.at("share_by_age")[0], 1, 1e-12);
  for (const char* name : {"share_by_age", "ess_by_age", "dead_by_age"}) {
    for (std::size_t k = 1; k < kAgeBins; ++k) EXPECT_EQ(found.at(name)[k], 0) << name;
  }
}

TEST(Diagnostics, LogRatiosAreCountedWithTheirSigns) {
  Data d;
  d.log_ratio = {-11, -10, -0.015F, 0, 0.005F, 0.01F, 0.011F, 3, 12, std::nanf("")};
  d.multiplier = {1, 3, 0.5F, 1, 2, 4, 0, 0, 8, 1};
  d.advantage.assign(10, 1);
  d.gap.assign(10, 1);
  d.age.assign(10, 8);
  Diagnostics diagnostics;
  diagnostics.compute(d.input());
  auto found = profiles_of(diagnostics);
  EXPECT_FALSE(found.contains("trust_counts")) << "the same where there is no centre";
  std::vector<double> counts(kSignedBins), mean(kSignedBins);
  const auto zero = static_cast<std::size_t>(std::ranges::find(kSignedEdges, 0) - kSignedEdges.begin());
  counts[0] = 2, mean[0] = 2;                  // up to -10, that included
  counts[zero - 1] = 1, mean[zero - 1] = 0.5;  // (-0.02, -0.01]
  counts[zero] = 1, mean[zero] = 1;            // (-0.01, 0]
  counts[zero + 1] = 2, mean[zero + 1] = 3;    // (0, 0.01]
  counts[zero + 2] = 1;                        // (0.01, 0.02]
  counts[zero + 11] = 1;                       // (2, 3]
  counts.back() = 2, mean.back() = 4.5;        // above 10, and what is no number
  EXPECT_EQ(found.at("log_ratio_counts"), counts);
  EXPECT_EQ(found.at("multiplier_mean"), mean);

  d.trust.assign(10, 0.005F);  // about a centre: multipliers stand where the surrogate sees them
  diagnostics.compute(d.input());
  found = profiles_of(diagnostics);
  EXPECT_EQ(found.at("log_ratio_counts"), counts);
  EXPECT_EQ(found.at("trust_counts")[zero + 1], 10);
  EXPECT_NEAR(found.at("multiplier_mean")[zero + 1], 2.05, 1e-12);
}

TEST(Diagnostics, NamesAndStorageAreStable) {
  Diagnostics diagnostics;
  const auto& first = diagnostics.compute(random_data(20, 1, 0, 1500, "gipo", 7).input());
  const auto kept = first;
  std::vector<const char*> storage;
  std::set<std::string> names;
  for (const auto& [name, value] : first) storage.push_back(name.data()), names.insert(name);
  EXPECT_EQ(names.size(), first.size()) << "a name occurs twice";
  const auto& second = diagnostics.compute(random_data(20, 1, 0, 1500, "gipo", 8).input());
  EXPECT_EQ(&first, &second);
  bool changed = false;
  for (std::size_t i = 0; i < second.size(); ++i) {
    EXPECT_EQ(second[i].first, kept[i].first);
    EXPECT_EQ(second[i].first.data(), storage[i]);
    changed |= second[i].second != kept[i].second;
  }
  EXPECT_TRUE(changed);
}

TEST(Diagnostics, NonFiniteInputsDoNotCrash) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  Data d = random_data(100, 1, -5, 1500, "gipo", 9);
  for (std::size_t i = 0; i < 60; i += 3) {
    d.log_ratio[i] = i % 2 ? nan : inf;
    d.advantage[i + 1] = i % 2 ? -inf : nan;
    d.multiplier[i + 2] = nan;
  }
  d.gap[3] = std::numeric_limits<std::int64_t>::max();
  d.gap[4] = std::numeric_limits<std::int64_t>::min();
  d.age[5] = std::nan("");
  Diagnostics diagnostics;
  for (const double window : {0.0, -1.0, 1000.0, static_cast<double>(nan)}) {
    DiagnosticsInput input = d.input();
    input.window = window;
    const Figures f = to_map(diagnostics.compute(input));
    EXPECT_TRUE(std::isnan(f.at("ratio_p50")));  // one NaN is not hidden
    std::uint32_t total = 0;
    for (const auto& row : diagnostics.log_ratio_by_age()) {
      for (const std::uint32_t count : row) total += count;
    }
    EXPECT_EQ(total, 100u);
  }
}

TEST(Diagnostics, RefusesShapesThatDisagree) {
  Data d = random_data(10, 1, 0, 100, "gipo", 10);
  d.gap.pop_back();
  Diagnostics diagnostics;
  EXPECT_THROW(diagnostics.compute(d.input()), InvariantError);
}

}  // namespace
}  // namespace gipo
