#include "gipo/learner/learner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "gipo/core/error.h"
#include "gipo/core/thread_pool.h"
#include "gipo/io/bytes.h"
#include "gipo/learner/adamw.h"
#include "gipo/learner/cpu_learner.h"

namespace gipo {
namespace {

constexpr std::size_t kSize = 32;

LearnerSetup small_setup() {
  LearnerSetup s;
  s.model = make_model_spec(PolicyOptions{.hidden = {8, 8}}, {"T", "", 3, ActionSpace::discrete(3), 10});
  s.learner.batch_size = kSize;
  s.t_old = 2;
  s.window = 10;
  return s;
}

Batch random_batch(std::uint64_t seed) {
  Batch b(kSize, plain_transition(3, 1));
  RandomStream random(seed);
  for (float& v : b.observation()) v = static_cast<float>(random.normal());
  for (std::size_t i = 0; i < kSize; ++i) {
    b.action()[i] = static_cast<float>(random.below(3));
    b.log_prob()[i] = static_cast<float>(std::log(1.0 / 3.0) + 0.2 * random.normal());
    b.reward()[i] = static_cast<float>(random.normal());
  }
  for (std::size_t at = 0; at < kSize; at += 8) b.stretches.push_back({at, 8, at == 8});
  return b;
}

TEST(Learner, ThreadsDoNotChangeTheWeights) {
  ThreadPool one(1), two(2);
  const auto a = make_learner(small_setup(), RandomStream(1), one);
  const auto b = make_learner(small_setup(), RandomStream(1), two);
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Batch batch = random_batch(i);
    a->update(batch, {0, true});
    b->update(batch, {0, true});
  }
  ByteWriter bytes_a, bytes_b;
  a->save(bytes_a);
  b->save(bytes_b);
  EXPECT_EQ(bytes_a.bytes(), bytes_b.bytes());
}

// The authors' set-up in small: shared layers with LayerNorm, bins, the policy learning in one update of three.
LearnerSetup shared_setup() {
  LearnerSetup s = small_setup();
  PolicyOptions options{.hidden = {8, 8}, .critic_hidden = Widths{6}, .shared = 1, .activation = Activation::kRelu};
  options.layer_norm = true;
  s.model = make_model_spec(options, {"T", "", 3, ActionSpace::discrete(3), 10});
  s.advantage.mode = AdvantageMode::kStored;
  s.learner.policy_every = 3;
  return s;
}

TEST(Learner, ThreadsDoNotChangeTheWeightsOfSharedLayers) {
  ThreadPool one(1), two(2);
  const auto a = make_learner(shared_setup(), RandomStream(1), one);
  const auto b = make_learner(shared_setup(), RandomStream(1), two);
  for (std::uint64_t i = 0; i < 20; ++i) {
    a->update(random_batch(i), {0, i % 2 == 0});
    b->update(random_batch(i), {0, i % 2 == 0});
  }
  ByteWriter bytes_a, bytes_b;
  a->save(bytes_a);
  b->save(bytes_b);
  EXPECT_EQ(bytes_a.bytes(), bytes_b.bytes());
}

TEST(Learner, ThePolicyLearnsInOneOfPolicyEveryUpdates) {
  ThreadPool pool(1);
  for (const AdvantageMode mode : {AdvantageMode::kStored, AdvantageMode::kVtrace}) {
    LearnerSetup setup = shared_setup();
    setup.advantage.mode = mode;
    setup.learner.proximal_coef = 0.1;
    const auto learner = make_learner(setup, RandomStream(1), pool);
    Weights before, after;
    for (std::uint64_t i = 0; i < 9; ++i) {
      learner->copy_weights(before);
      const UpdateStats stats = learner->update(random_batch(i), {0, i % 2 == 0});
      learner->copy_weights(after);
      EXPECT_NE(before.critic, after.critic);
      EXPECT_EQ(before.policy != after.policy, i % 3 == 2) << i;
      EXPECT_EQ(stats.policy_grad_norm > 0, i % 3 == 2) << i;
    }
  }
}

// Whether figures are asked for changes nothing of what is learned.
TEST(Learner, DiagnosingDoesNotChangeTheWeights) {
  ThreadPool pool(1);
  const auto a = make_learner(shared_setup(), RandomStream(1), pool);
  const auto b = make_learner(shared_setup(), RandomStream(1), pool);
  for (std::uint64_t i = 0; i < 9; ++i) {
    a->update(random_batch(i), {0, true});
    b->update(random_batch(i), {0, false});
  }
  ByteWriter bytes_a, bytes_b;
  a->save(bytes_a);
  b->save(bytes_b);
  EXPECT_EQ(bytes_a.bytes(), bytes_b.bytes());
}

TEST(Learner, GoesOnIdenticallyAfterSaveAndLoad) {
  ThreadPool pool(1);
  LearnerSetup setup = small_setup();
  setup.learner.proximal_coef = 0.3;
  setup.surrogate.centre = Centre::kProximal;
  const auto a = make_learner(setup, RandomStream(1), pool), b = make_learner(setup, RandomStream(2), pool);
  RunningMoments returns(1);
  returns.add(ColumnSums(1, std::vector<float>{-3, 3}));
  a->set_reward_scale(returns);
  for (std::uint64_t i = 0; i < 5; ++i) a->update(random_batch(i), {});
  ByteWriter saved;
  a->save(saved);
  ByteReader in(saved.bytes());
  b->load(in);
  EXPECT_EQ(in.left(), 0u);
  for (std::uint64_t i = 5; i < 10; ++i) {
    a->update(random_batch(i), {});
    b->update(random_batch(i), {});
  }
  ByteWriter bytes_a, bytes_b;
  a->save(bytes_a);
  b->save(bytes_b);
  EXPECT_EQ(bytes_a.bytes(), bytes_b.bytes());
}

// Rewards in other units, scaled by the deviation of returns in those units, teach the same.
TEST(Learner, TheRewardScaleTakesTheUnitsOutOfTheRewards) {
  ThreadPool pool(1);
  const auto a = make_learner(small_setup(), RandomStream(1), pool),
             b = make_learner(small_setup(), RandomStream(1), pool);
  RunningMoments of_a(1), of_b(1);
  of_a.add(ColumnSums(1, std::vector<float>{-4, 4}));
  of_b.add(ColumnSums(1, std::vector<float>{-1024, 1024}));
  a->set_reward_scale(of_a);
  b->set_reward_scale(of_b);
  Batch batch = random_batch(1);
  const UpdateStats small = a->update(batch, {});
  for (float& r : batch.reward()) r *= 256;
  const UpdateStats large = b->update(batch, {});
  EXPECT_NEAR(small.value_loss, large.value_loss, 1e-6);
  EXPECT_NEAR(small.reward_factor, 0.25, 1e-6);
  EXPECT_GT(small.value_loss, 0.01);
  const auto unscaled = make_learner(small_setup(), RandomStream(1), pool);
  EXPECT_GT(unscaled->update(batch, {}).value_loss, 100 * large.value_loss);
}

TEST(Learner, AnUpdateThatIsNotFiniteIsSkippedAndCounted) {
  ThreadPool pool(1);
  const auto learner = make_learner(small_setup(), RandomStream(1), pool);
  learner->update(random_batch(0), {});
  Weights before, after;
  learner->copy_weights(before);
  Batch bad = random_batch(1);
  bad.reward()[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(learner->update(bad, {0, true}).skipped);
  learner->copy_weights(after);
  EXPECT_EQ(before.policy, after.policy);
  EXPECT_EQ(before.critic, after.critic);
  EXPECT_EQ(learner->skipped_updates(), 1);
  EXPECT_FALSE(learner->update(random_batch(2), {}).skipped);
}

TEST(Learner, EndsByNameAfterTooManySkippedUpdatesInARow) {
  ThreadPool pool(1);
  LearnerSetup setup = small_setup();
  setup.learner.max_bad_updates = 3;
  const auto learner = make_learner(setup, RandomStream(1), pool);
  Batch bad = random_batch(1);
  bad.log_prob()[0] = -std::numeric_limits<float>::infinity();
  bad.reward()[0] = std::numeric_limits<float>::infinity();
  learner->update(bad, {});
  learner->update(random_batch(2), {});  // a good one begins the count anew
  learner->update(bad, {});
  learner->update(bad, {});
  try {
    learner->update(bad, {});
    FAIL() << "went on";
  } catch (const RunError& e) {
    EXPECT_NE(std::string(e.what()).find("learner.max_bad_updates = 3"), std::string::npos) << e.what();
  }
}

TEST(Learner, ValueLossFallsAndExplainedVarianceRisesOnAFixedBatch) {
  ThreadPool pool(1);
  LearnerSetup setup = small_setup();
  setup.advantage.mode = AdvantageMode::kStored;
  setup.learner.value_lr = 0.01;
  const auto learner = make_learner(setup, RandomStream(1), pool);
  Batch batch = random_batch(3);
  for (std::size_t i = 0; i < kSize; ++i) batch.target()[i] = 3 * batch.observation()[3 * i] - 1;
  const double first = learner->update(batch, {}).value_loss;
  for (int i = 0; i < 400; ++i) learner->update(batch, {});
  const UpdateStats last = learner->update(batch, {});
  EXPECT_LT(last.value_loss, 0.05 * first);
  EXPECT_GT(last.explained_variance, 0.9);
}

TEST(Learner, GapIsExactPerSample) {
  ThreadPool pool(1);
  const auto learner = make_learner(small_setup(), RandomStream(1), pool);
  for (std::uint64_t i = 0; i < 4; ++i) learner->update(random_batch(i), {});
  Batch batch = random_batch(9);
  for (std::size_t i = 0; i < kSize; ++i) {
    batch.version()[i] = i < 8 ? 1 : 4;  // gaps 3 and 0 at version 4
    batch.env_step[i] = i < 8 ? 100 : 190;
  }
  learner->update(batch, {200, true});
  std::map<std::string, double> figures;
  for (const auto& [name, value] : learner->diagnostics().figures()) figures[name] = value;
  EXPECT_DOUBLE_EQ(figures["gap_mean"], 0.75);
  EXPECT_DOUBLE_EQ(figures["gap_mean_old"], 3);
  EXPECT_DOUBLE_EQ(figures["age_mean_old"], 100);
}

TEST(Learner, FractionOfOldSamplesIsPooledOverUpdates) {
  ThreadPool pool(1);
  LearnerSetup setup = small_setup();
  setup.t_old = 10;
  const auto learner = make_learner(setup, RandomStream(1), pool);
  Batch batch = random_batch(9);
  std::fill(batch.version().begin(), batch.version().end(), 0);
  // The gap of every sample of update k is k.
  for (int k = 0; k < 20; ++k) learner->update(batch, {0, true});
  std::map<std::string, double> figures;
  for (const auto& [name, value] : learner->diagnostics().figures()) figures[name] = value;
  EXPECT_DOUBLE_EQ(figures["gap_mean"], 19);
  EXPECT_DOUBLE_EQ(figures["old_frac"], 0.5);
  EXPECT_DOUBLE_EQ(figures["old_gap_p95"], 19);
}

TEST(Learner, ProximalTermHoldsThePolicyNearItsAverage) {
  ThreadPool pool(1);
  double moved[2];
  for (int k = 0; k < 2; ++k) {
    LearnerSetup setup = small_setup();
    setup.learner.policy_lr = 0.01;
    setup.learner.proximal_coef = k == 0 ? 1e-9 : 10.0;
    const auto learner = make_learner(setup, RandomStream(1), pool);
    for (std::uint64_t i = 0; i < 30; ++i) moved[k] = learner->update(random_batch(0), {}).proximal_kl;
  }
  EXPECT_LT(moved[1], 0.5 * moved[0]);
}

// sum over k of d^k p_(t-k), divided by the sum of these weights.
TEST(Learner, AverageOfThePolicyCountsTheFirstOneNoMoreThanOthers) {
  ThreadPool pool(1);
  LearnerSetup setup = small_setup();
  setup.learner.policy_lr = 0.01;
  setup.learner.proximal_updates = 5;
  setup.surrogate.centre = Centre::kProximal;
  CpuLearner<double> learner(setup, RandomStream(1), pool);
  std::vector<std::vector<double>> policies;
  const auto remember = [&] {
    policies.emplace_back(learner.policy_parameters().begin(), learner.policy_parameters().end());
  };
  remember();
  for (std::uint64_t i = 0; i < 30; ++i) {
    learner.update(random_batch(i), {});
    remember();
    double sum = 0, weights = 0, weight = 1;
    for (std::size_t k = policies.size(); k-- > 0; weight *= 0.8) {
      sum += weight * policies[k][3];
      weights += weight;
    }
    EXPECT_NEAR(learner.average_policy()[3], sum / weights, 1e-12) << i;
  }
}

// Importance and trust multiply to the plain ratio where neither is cut.
TEST(Learner, WithoutCutsTheCentreMakesNoDifference) {
  ThreadPool pool(1);
  for (const RatioOf ratio : {RatioOf::kJoint, RatioOf::kDimension}) {
    LearnerSetup setup = small_setup();
    setup.learner.policy_lr = 0.01;
    setup.surrogate.name = "no_clip";
    setup.surrogate.ratio = ratio;
    CpuLearner<double> plain(setup, RandomStream(1), pool);
    setup.surrogate.centre = Centre::kProximal;
    setup.surrogate.importance_max = 1e9;
    CpuLearner<double> centred(setup, RandomStream(1), pool);
    for (std::uint64_t i = 0; i < 20; ++i) {
      plain.update(random_batch(i), {});
      const UpdateStats& stats = centred.update(random_batch(i), {0, true});
      EXPECT_EQ(stats.importance_cut_frac, 0);
    }
    for (std::size_t k = 0; k < plain.policy_parameters().size(); ++k) {
      EXPECT_NEAR(plain.policy_parameters()[k], centred.policy_parameters()[k], 1e-9) << k;
    }
  }
}

// At first the average is the policy: the trust region has nothing to say, and the importance weight is the ratio, cut.
TEST(Learner, TheFirstUpdateAboutTheAverageIsThatOfTruncatedWeights) {
  ThreadPool pool(1);
  LearnerSetup setup = small_setup();
  setup.surrogate.name = "truncated";
  setup.surrogate.rho_max = 1.1;
  CpuLearner<double> truncated(setup, RandomStream(1), pool);
  setup.surrogate.name = "gipo";
  setup.surrogate.centre = Centre::kProximal;
  setup.surrogate.importance_max = 1.1;
  CpuLearner<double> centred(setup, RandomStream(1), pool);
  const Batch batch = random_batch(0);
  truncated.compute_gradients(batch);
  centred.update(batch, {0, true});
  EXPECT_GT(centred.figures().importance_cut_frac, 0);
  EXPECT_LT(centred.figures().importance_cut_frac, 1);
  for (std::size_t k = 0; k < truncated.policy_gradient().size(); ++k) {
    EXPECT_NEAR(truncated.policy_gradient()[k], centred.policy_gradient()[k], 1e-12) << k;
  }
  for (const auto& [name, value] : centred.diagnostics().figures()) {
    if (name == "trust_d95") {
      EXPECT_EQ(value, 0);
    } else if (name == "d95") {
      EXPECT_GT(value, 0);
    }
  }
}

TEST(Schedule, WarmsUpAndComesDown) {
  LearnerOptions o;
  o.updates = 100;
  EXPECT_DOUBLE_EQ(rate_factor(o, 50), 1);
  o.schedule = Schedule::kLinear;
  EXPECT_DOUBLE_EQ(rate_factor(o, 25), 0.75);
  o.schedule = Schedule::kCosine;
  o.warmup_updates = 10;
  EXPECT_DOUBLE_EQ(rate_factor(o, 0), 0.1);
  EXPECT_DOUBLE_EQ(rate_factor(o, 10), 1);
  EXPECT_NEAR(rate_factor(o, 55), 0.5, 1e-12);
  EXPECT_NEAR(rate_factor(o, 100), 0, 1e-12);
  EXPECT_DOUBLE_EQ(entropy_weight(o, 80), o.entropy_coef);
  o.entropy_schedule = Schedule::kLinear;
  EXPECT_NEAR(entropy_weight(o, 5), 0.95 * o.entropy_coef, 1e-12);  // without a warm-up
}

TEST(AdamW, MatchesTheTextbook) {
  AdamW<double> optimizer(1, {0.9, 0.99, 1e-8, 0.1});
  double w = 1, m = 0, v = 0;
  std::vector<double> parameter = {1};
  for (int t = 1; t <= 5; ++t) {
    const std::vector<double> gradient = {0.3 * t - 0.8};
    optimizer.step(parameter, gradient, 0.01, 0.5);
    const double g = gradient[0] * 0.5;
    m = 0.9 * m + 0.1 * g;
    v = 0.99 * v + 0.01 * g * g;
    w -= 0.01 * 0.1 * w;
    w -= 0.01 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.99, t))) + 1e-8);
    EXPECT_NEAR(parameter[0], w, 1e-12);
  }
}

}  // namespace
}  // namespace gipo
