// The card against the CPU. Skipped, with the reason, where there is no card; tests/card_twin, which runs it on the
// processor, does less of it.
#include "gipo/learner/cuda_learner.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdio>
#include <limits>

#include "gipo/bench/made_up_kinds.h"
#include "gipo/core/error.h"
#include "gipo/core/thread_pool.h"
#include "gipo/io/bytes.h"
#include "gipo/learner/check_learner.h"
#include "gipo/objective/surrogate.h"
#include "gipo/policy/mlp_policy.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {
namespace {

#if defined(GIPO_CARD_TWIN)
constexpr bool kTwin = true;
#else
constexpr bool kTwin = false;
#endif

#define GIPO_NEEDS_A_CARD()                                                         \
  do {                                                                              \
    try {                                                                           \
      check_card(made_up_setup(7, ActionSpace::discrete(2), Widths{8}, kTestRows)); \
    } catch (const Error& e) {                                                      \
      GTEST_SKIP() << e.what();                                                     \
    }                                                                               \
  } while (false)

// Stretches of other lengths, some of which end a task; and advantages as if stored.
Batch batch_for(const LearnerSetup& setup) {
  const auto rows = static_cast<std::size_t>(setup.learner.batch_size);
  Batch batch = made_up_batch(rows, setup.model);
  RandomStream random(9);
  batch.stretches.clear();
  for (std::size_t at = 0; at < rows;) {
    const std::size_t length = std::min(rows - at, std::size_t{1} + random.below(40));
    batch.stretches.push_back({at, length, random.uniform() < 0.3});
    at += length;
  }
  for (float& v : batch.advantage()) v = static_cast<float>(random.normal());
  for (float& v : batch.target()) v = static_cast<float>(random.normal());
  for (double& v : batch.env_step) v = -100 * random.uniform();
  return batch;
}

// The largest relative differences of the gradients of single updates from the same states: of a network by its norm, and
// of the entry of a tensor as learner.check has it, where sums that cancel lose up to three digits.
struct Differences {
  double norm = 0, entry = 0;
};

Differences differences(LearnerSetup setup, const std::string& one, const std::string& other, ProductKind kind,
                        int updates) {
  setup.learner.products = kind;
  ThreadPool pool(1);
  setup.learner.backend = one;
  const auto ours = make_learner(setup, RandomStream(3), pool);
  setup.learner.backend = "check";
  setup.learner.check = one + ", " + other;
  CheckLearner check(setup, RandomStream(3), pool);
  setup.learner.backend = other;
  const auto theirs = make_learner(setup, RandomStream(3), pool);
  const Batch batch = batch_for(setup);
  Differences most;
  for (int i = 0; i < updates; ++i) {
    const std::string state = bytes_of([&](ByteWriter& out) { ours->save(out); });
    ByteReader in(state);
    theirs->load(in);
    ours->update(batch, {});
    theirs->update(batch, {});
    check.update(batch, {});
    const auto a = ours->gradients(), b = theirs->gradients();
    for (const char network : {'p', 'c'}) {
      double difference = 0, size = 0;
      for (std::size_t t = 0; t < a.size(); ++t) {
        for (std::size_t k = 0; a[t].first[0] == network && k < a[t].second.size(); ++k) {
          difference += std::pow(a[t].second[k] - b[t].second[k], 2);
          size += std::pow(b[t].second[k], 2);
        }
      }
      if (size > 0) most.norm = std::max(most.norm, std::sqrt(difference / size));
    }
  }
  for (const auto& [name, difference] : check.differences()) most.entry = std::max(most.entry, difference);
  return most;
}

// What two ways to compute the same update may differ by. A sample at the edge of a clip, or a unit at the kink of its
// activation, may fall to either side: there the gradient has a step, and tf32 comes near it more often.
struct Largest {
  struct Found {
    double most = 0;
    std::string where;
    void take(double value, const std::string& label) {
      if (!(value <= most)) most = value, where = label;
    }
  };
  Found norm[4], entry[4], own_norm, own_entry;  // by kind; of the CPU's floats against doubles

  void check(const LearnerSetup& setup, const std::string& label, int updates = 30, double of_tf32 = 1e-2) {
    if (kTwin) updates = 1;
    const bool steps = Surrogate(setup.surrogate).clips_to_zero();
    const Differences own = differences(setup, "cpu", "cpu64", ProductKind::kFloat, updates);
    own_norm.take(own.norm, label);
    own_entry.take(own.entry, label);
    for (const auto& [kind, word] : kWords<ProductKind>) {
      if (kTwin && kind != ProductKind::kTf32x3 && kind != ProductKind::kBf16x3) continue;
      const Differences d = differences(setup, "cuda", "cpu64", kind, updates);
      const double bound = steps                          ? 0.5
                           : kind == ProductKind::kTf32   ? of_tf32
                           : kind == ProductKind::kBf16x3 ? 1e-3
                                                          : 1e-5 + 4 * own.norm;
      EXPECT_LT(d.norm, bound) << label << ", " << word;
      norm[static_cast<int>(kind)].take(d.norm, label);
      entry[static_cast<int>(kind)].take(d.entry, label);
    }
  }
  ~Largest() {
    const auto print = [](const char* what, const Found& norm, const Found& entry) {
      std::printf("%-8s norm %.3g (%s), entry %.3g (%s)\n", what, norm.most, norm.where.c_str(), entry.most,
                  entry.where.c_str());
    };
    print("cpu", own_norm, own_entry);
    for (const auto& [kind, word] : kWords<ProductKind>) {
      const auto i = static_cast<int>(kind);
      print(std::string(word).c_str(), norm[i], entry[i]);
    }
  }
};

class CudaLearnerOfSurrogate : public testing::TestWithParam<SurrogateInfo> {};

TEST_P(CudaLearnerOfSurrogate, IsNearTheCpuForEveryDistribution) {
  GIPO_NEEDS_A_CARD();
  Largest largest;
  for (const ActionKind& kind : action_kinds()) {
    for (const auto& [centre, word] : kWords<Centre>) {
      for (const bool in_one_launch : {true, false}) {  // LayerNorm takes a launch for each layer
        PolicyOptions policy{.hidden = {32, 32}};
        policy.layer_norm = !in_one_launch;
        LearnerSetup setup = setup_for(kind, policy);
        setup.surrogate.name = GetParam().name;
        setup.surrogate.centre = centre;
        setup.surrogate.ratio = centre == Centre::kProximal ? RatioOf::kDimension : RatioOf::kJoint;
        largest.check(setup, setup.surrogate.name + ", " + kind.name + ", " + std::string(word), 15);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaLearnerOfSurrogate, testing::ValuesIn(registered_surrogates()), [](const auto& info) {
  std::string name = info.param.name;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
});

TEST(CudaLearner, IsNearTheCpuForEveryShapeOfGipo) {
  GIPO_NEEDS_A_CARD();
  Largest largest;
  for (const auto& [kernel, kernel_word] : kWords<TrustKernel>) {
    for (const auto& [pull_back, word] : kWords<PullBack>) {
      for (const double growth : {0.0, 0.5}) {
        LearnerSetup setup = setup_for(action_kind("gaussian"), {.hidden = {32}});
        setup.surrogate.kernel = kernel;
        setup.surrogate.pull_back = pull_back;
        setup.surrogate.sigma_growth = growth;
        largest.check(setup, std::string(kernel_word) + ", " + std::string(word), 20);
      }
    }
  }
}

TEST(CudaLearner, IsNearTheCpuForEveryNetwork) {
  GIPO_NEEDS_A_CARD();
  Largest largest;
  for (const auto& [activation, word] : kWords<Activation>) {
    if (activation == Activation::kNone) continue;
    for (const bool layer_norm : {false, true}) {
      for (const std::int64_t shared : {0, 1, 2}) {
        for (const std::size_t privileged : {0, 3}) {
          PolicyOptions policy{
              .hidden = {33, 65}, .critic_hidden = Widths{17}, .shared = shared, .activation = activation};
          policy.layer_norm = layer_norm;
          LearnerSetup setup = setup_for(action_kind("composed"), policy, 130);
          setup.model.privileged = privileged;
          setup.learner.proximal_coef = 0.1;
          largest.check(setup,
                        std::string(word) + (layer_norm ? ", norm" : "") + ", shared " + std::to_string(shared) +
                            ", privileged " + std::to_string(privileged),
                        20, activation == Activation::kRelu ? 0.5 : 1e-2);
        }
      }
    }
  }
  largest.check(setup_for({"wide", ActionSpace::discrete(200)}, {.hidden = {300, 520}}, 700), "large", 10);
}

// As few as there can be of them, so that the twin takes seconds.
TEST(CudaLearner, TheLargeTilesOfOneLayerAreNearTheCpu) {
  GIPO_NEEDS_A_CARD();
  Largest largest;
  largest.check(setup_for({"wide", ActionSpace::discrete(200)}, {.hidden = {640}}, 320), "one layer", 10);
}

TEST(CudaLearner, IsNearTheCpuForEveryAdvantageAndTerm) {
  GIPO_NEEDS_A_CARD();
  Largest largest;
  for (const auto& [mode, word] : kWords<AdvantageMode>) {
    if (mode == AdvantageMode::kGroup) continue;  // stored, to a learner
    for (const bool normalise : {false, true}) {
      for (const std::int64_t every : {1, 3}) {
        LearnerSetup setup = setup_for(action_kind("gaussian"), {.hidden = {32, 32}});
        setup.advantage.mode = mode;
        setup.advantage.normalise = normalise;
        setup.learner.policy_every = every;
        setup.learner.kl_coef = 0.1;
        setup.learner.proximal_coef = every == 3 ? 0.2 : 0.0;
        setup.learner.weight_decay = 0.01;
        setup.learner.publish = Published::kAverage;
        setup.learner.schedule = Schedule::kCosine;
        setup.learner.entropy_schedule = Schedule::kLinear;
        setup.learner.warmup_updates = 5;
        largest.check(setup, std::string(word) + ", policy 1 of " + std::to_string(every), 20);
      }
    }
  }
}

std::string bytes(const Learner& learner) {
  return bytes_of([&](ByteWriter& out) { learner.save(out); });
}

TEST(CudaLearner, TheSameBatchesGiveTheSameBytesAlsoAfterSaveAndLoad) {
  GIPO_NEEDS_A_CARD();
  for (const bool in_one_launch : {true, false}) {
    PolicyOptions policy{.hidden = {64, 64}, .shared = in_one_launch ? 0 : 1};
    policy.layer_norm = !in_one_launch;
    LearnerSetup setup = setup_for(action_kind("composed"), policy, kTwin ? 128 : 512);
    setup.learner.backend = "cuda";
    setup.learner.proximal_coef = 0.1;
    setup.surrogate.centre = Centre::kProximal;
    ThreadPool pool(1);
    const auto one = make_learner(setup, RandomStream(3), pool), other = make_learner(setup, RandomStream(3), pool);
    const auto third = make_learner(setup, RandomStream(4), pool);
    const Batch batch = batch_for(setup);
    constexpr int kUpdates = kTwin ? 4 : 200;
    for (int i = 0; i < kUpdates; ++i) {
      EXPECT_FALSE(one->update(batch, {0, i % 10 == 0}).skipped);
      other->stage(batch);  // and nothing waited for
      other->begin_update({0, i % 10 == 0});
      if (i != kUpdates / 2 - 1) continue;
      const std::string saved = bytes(*one);
      ByteReader in(saved);
      third->load(in);
      EXPECT_EQ(bytes(*third), saved);
    }
    for (int i = kUpdates / 2; i < kUpdates; ++i) third->update(batch, {0, i % 10 == 0});
    EXPECT_EQ(bytes(*one), bytes(*other));
    EXPECT_EQ(bytes(*one), bytes(*third));
    Weights weights[2];
    one->copy_weights(weights[0]);
    third->copy_weights(weights[1]);
    EXPECT_EQ(weights[0].policy, weights[1].policy);
    EXPECT_EQ(weights[0].critic, weights[1].critic);
  }
}

TEST(CudaLearner, TheCpuGoesOnFromItsStateAndItFromTheCpus) {
  GIPO_NEEDS_A_CARD();
  LearnerSetup setup = setup_for(action_kind("categorical"), {.hidden = {64, 64}}, 256);
  setup.learner.products = ProductKind::kFloat;
  ThreadPool pool(1);
  const Batch batch = batch_for(setup);
  const auto go_on = [&](const std::string& backend, const std::string& from, int updates) {
    setup.learner.backend = backend;
    const auto learner = make_learner(setup, RandomStream(3), pool);
    if (!from.empty()) {
      ByteReader in(from);
      learner->load(in);
      EXPECT_EQ(bytes(*learner), from) << backend;
    }
    for (int i = 0; i < updates; ++i) learner->update(batch, {0, false});
    return bytes(*learner);
  };
  const std::string cpu = go_on("cpu", "", 10);
  const std::string back = go_on("cpu", go_on("cuda", cpu, 10), 10);
  setup.learner.backend = "cpu";
  const auto alone = make_learner(setup, RandomStream(3), pool), switched = make_learner(setup, RandomStream(3), pool);
  for (int i = 0; i < 30; ++i) alone->update(batch, {0, false});
  ByteReader in(back);
  switched->load(in);
  EXPECT_EQ(switched->version(), 30);
  Weights wanted, found;
  alone->copy_weights(wanted);
  switched->copy_weights(found);
  for (std::size_t i = 0; i < wanted.policy.size(); ++i) EXPECT_NEAR(found.policy[i], wanted.policy[i], 1e-4);
}

TEST(CudaLearner, FiguresAndDiagnosticsAreThoseOfTheCpu) {
  GIPO_NEEDS_A_CARD();
  for (const ActionKind& kind : action_kinds()) {
    LearnerSetup setup = setup_for(kind, {.hidden = {32, 32}});
    setup.learner.products = ProductKind::kFloat;
    setup.learner.proximal_coef = 0.1;
    setup.surrogate.centre = Centre::kProximal;
    ThreadPool pool(1);
    const Batch batch = batch_for(setup);
    std::vector<std::pair<std::string, double>> figures[2];
    for (const int i : {0, 1}) {
      setup.learner.backend = i == 0 ? "cpu" : "cuda";
      const auto learner = make_learner(setup, RandomStream(3), pool);
      for (int update = 0; update < 5; ++update) learner->update(batch, {1000, true});
      learner->figures().append_to(figures[i]);
      for (const auto& figure : learner->diagnostics().figures()) figures[i].push_back(figure);
    }
    ASSERT_EQ(figures[0].size(), figures[1].size());
    for (std::size_t k = 0; k < figures[0].size(); ++k) {
      EXPECT_EQ(figures[1][k].first, figures[0][k].first);
      const double wanted = figures[0][k].second;
      if (std::isnan(wanted)) continue;
      EXPECT_NEAR(figures[1][k].second, wanted, 1e-3 * std::max(1.0, std::abs(wanted)))
          << kind.name << ", " << figures[0][k].first;
    }
  }
}

TEST(CudaLearner, InferenceIsThatOfTheCpu) {
  GIPO_NEEDS_A_CARD();
  for (const Activation activation : {Activation::kTanh, Activation::kRelu}) {
    const ModelSpec model =
        made_up_setup(7, ActionSpace::discrete(5), {.hidden = {33, 64}, .activation = activation}, kTestRows).model;
    const Weights weights = initial_weights(model, RandomStream(1));
    for (const std::size_t rows : {1, 20, 3000}) {
      if (kTwin && rows != 20) continue;
      std::vector<float> seen(rows * 7), found(rows * 5);
      RandomStream random(2);
      for (float& v : seen) v = static_cast<float>(random.normal());
      Mlp<float> cpu(mlp_shapes(model).policy, rows);
      const float* const wanted = cpu.forward(weights.policy, seen.data(), rows);
      for (const auto& [kind, word] : kWords<ProductKind>) {
        card_inference(model, weights, seen, kind, found);
        const double bound = kind == ProductKind::kTf32 ? 1e-2 : 1e-5;
        for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], wanted[i], bound) << word << ' ' << i;
      }
    }
  }
}

// libtorch's networks, with a CNN, with shared layers and with a memory, against the same on the processor.
TEST(CudaLearner, OfLibtorchIsNearTheCpuAndGoesOnFromItsState) {
  if (torch_cuda_devices().empty()) GTEST_SKIP() << "libtorch has no CUDA device here";
  std::vector<std::pair<std::string, LearnerSetup>> cases = {{"nature", made_up_images(64)}};
  for (const std::int64_t shared : {0, 1}) {
    PolicyOptions policy{.hidden = {32, 32}, .shared = shared};
    cases.emplace_back("vectors", setup_for(action_kind("composed"), policy, 64));
    for (const auto& [memory, word] : kWords<Memory>) {
      if (memory == Memory::kNone) continue;
      policy.memory = memory;
      policy.burn_in = 3;
      cases.emplace_back(word, setup_for(action_kind("categorical"), policy, 64));
    }
  }
  // What products round, a narrow trust weight makes larger.
  const std::pair<ProductKind, double> kinds[] = {{ProductKind::kFloat, 2e-3}, {ProductKind::kTf32, 1e-1}};
  for (std::size_t c = 0; c < 2 * cases.size(); ++c) {
    auto [name, setup] = cases[c / 2];
    const auto& [products, bound] = kinds[c % 2];
    name += c % 2 == 0 ? ", float" : ", tf32";
    setup.learner.products = products;
    setup.learner.backend = "torch";
    setup.surrogate.centre = Centre::kProximal;
    setup.learner.proximal_coef = 0.1;
    setup.learner.policy_every = 2;
    ThreadPool pool(1);
    const auto here = make_learner(setup, RandomStream(3), pool);
    setup.learner.device = "cuda";
    const auto there = make_learner(setup, RandomStream(3), pool);
    EXPECT_EQ(bytes(*here), bytes(*there)) << name;
    Batch batch = made_up_batch(64, setup.model);
    for (int i = 0; i < 6; ++i) {
      const std::string state = bytes(*here);
      ByteReader in(state);
      there->load(in);
      EXPECT_EQ(bytes(*there), state) << name;
      if (i == 3 && !setup.model.has_memory()) {  // other shapes
        batch.stretches.clear();
        for (std::size_t at = 0; at < 64; ++at) batch.stretches.push_back({at, 1, at % 2 == 0});
      }
      here->update(batch, {0, true});
      there->update(batch, {0, true});
      EXPECT_FALSE(there->figures().skipped) << name;
      const auto a = here->gradients(), b = there->gradients();
      ASSERT_EQ(a.size(), b.size()) << name;
      double difference = 0, size = 0;
      for (std::size_t t = 0; t < a.size(); ++t) {
        for (std::size_t k = 0; k < a[t].second.size(); ++k) {
          difference += std::pow(a[t].second[k] - b[t].second[k], 2);
          size += std::pow(a[t].second[k], 2);
        }
      }
      EXPECT_LT(std::sqrt(difference / size), bound) << name << ' ' << i;
      EXPECT_NEAR(there->figures().value_loss, here->figures().value_loss,
                  2e-2 * std::max(1.0, here->figures().value_loss))
          << name;
      Weights one, other;
      here->copy_weights(one);
      there->copy_weights(other);
      double moved = 0, apart = 0;
      for (std::size_t k = 0; k < one.critic.size(); ++k) {
        apart += std::pow(one.critic[k] - other.critic[k], 2);
        moved += std::pow(one.critic[k], 2);
      }
      EXPECT_LT(std::sqrt(apart / moved), 1e-2) << name;
    }
  }
}

TEST(CudaLearner, AnUpdateThatIsNotFiniteIsSkippedAndTooManyEndByName) {
  GIPO_NEEDS_A_CARD();
  LearnerSetup setup = setup_for(action_kind("gaussian"), {.hidden = {32, 32}});
  setup.learner.backend = "cuda";
  setup.learner.max_bad_updates = 3;
  ThreadPool pool(1);
  const auto learner = make_learner(setup, RandomStream(3), pool);
  const Batch good = batch_for(setup);
  Batch bad = batch_for(setup);
  bad.reward()[5] = std::numeric_limits<float>::quiet_NaN();
  learner->update(good, {});
  Weights before, after;
  learner->copy_weights(before);
  EXPECT_TRUE(learner->update(bad, {}).skipped);
  learner->copy_weights(after);
  EXPECT_EQ(before.policy, after.policy);
  EXPECT_EQ(before.critic, after.critic);
  EXPECT_EQ(learner->skipped_updates(), 1);
  EXPECT_FALSE(learner->update(good, {}).skipped);
  const auto three_bad = [&] {
    for (int i = 0; i < 3; ++i) learner->update(bad, {});
  };
  EXPECT_THROW(three_bad(), RunError);
}

TEST(CudaLearner, WhatItCannotDoIsNamed) {
  LearnerSetup setup =
      made_up_setup(7, ActionSpace::box(std::vector<double>(2000, -1), std::vector<double>(2000, 1)), Widths{8}, 16);
  const auto complaint = [&] {
    try {
      check_card(setup);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(complaint().find("at most 1600 continuous action dimensions"), std::string::npos) << complaint();
  setup = made_up_setup(7, ActionSpace::discrete(2), Widths{8}, 16);
  setup.model.fields[0].raw = true;
  EXPECT_NE(complaint().find("learner.backend = torch"), std::string::npos) << complaint();
}

}  // namespace
}  // namespace gipo
