#include "gipo/learner/check_learner.h"

#include <gtest/gtest.h>

#include "gipo/bench/made_up_kinds.h"
#include "gipo/core/error.h"
#include "gipo/core/thread_pool.h"
#include "gipo/io/bytes.h"
#include "gipo/learner/cuda_learner.h"
#include "gipo/objective/surrogate.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {
namespace {

LearnerSetup checked_setup(const ActionKind& kind, const std::string& surrogate) {
  LearnerSetup setup = setup_for(kind);
  setup.learner.backend = "check";
  setup.surrogate.name = surrogate;
  return setup;
}

double largest_difference(const LearnerSetup& setup, int updates) {
  ThreadPool pool(1);
  CheckLearner learner(setup, RandomStream(3), pool);
  const Batch batch = made_up_batch(kTestRows, setup.model);
  for (int i = 0; i < updates; ++i) learner.update(batch, {0, false});
  double most = 0;
  for (const auto& [name, difference] : learner.differences()) most = std::max(most, difference);
  return most;
}

TEST(CheckLearner, FloatIsNearDoubleForEverySurrogateAndDistribution) {
  double most = 0;
  std::string where;
  for (const SurrogateInfo& surrogate : registered_surrogates()) {
    for (const ActionKind& kind : action_kinds()) {
      for (const auto& [centre, word] : kWords<Centre>) {
        LearnerSetup setup = checked_setup(kind, surrogate.name);
        setup.surrogate.centre = centre;
        const double difference = largest_difference(setup, 20);
        const std::string label = surrogate.name + ", " + kind.name + ", " + std::string(word);
        EXPECT_LT(difference, 1e-3) << label;
        if (difference > most) most = difference, where = label;
      }
    }
  }
  EXPECT_GT(most, 0) << "float and double cannot agree to the last bit";
  RecordProperty("largest", std::to_string(most) + " with " + where);
}

// Gradients on the same batches, and where a hundred updates of each alone lead.
TEST(CheckLearner, TorchIsNearTheMlpForEverySurrogateAndDistribution) {
  if (torch_version().empty()) GTEST_SKIP() << kAddTorch;
  for (const SurrogateInfo& surrogate : registered_surrogates()) {
    for (const ActionKind& kind : action_kinds()) {
      LearnerSetup setup = checked_setup(kind, surrogate.name);
      setup.learner.check = "torch, cpu";
      setup.surrogate.centre = Centre::kProximal;
      const std::string label = surrogate.name + ", " + kind.name;
      EXPECT_LT(largest_difference(setup, 20), 1e-3) << label;
      ThreadPool pool(1);
      const Batch batch = made_up_batch(kTestRows, setup.model);
      Weights ended[2];
      for (const int i : {0, 1}) {
        setup.learner.backend = i == 0 ? "torch" : "cpu";
        const auto learner = make_learner(setup, RandomStream(3), pool);
        for (int update = 0; update < 100; ++update) learner->update(batch, {0, false});
        learner->copy_weights(ended[i]);
      }
      double difference = 0, size = 0;
      for (std::size_t k = 0; k < ended[0].policy.size(); ++k) {
        difference = std::max<double>(difference, std::abs(ended[0].policy[k] - ended[1].policy[k]));
        size = std::max<double>(size, std::abs(ended[1].policy[k]));
      }
      EXPECT_LT(difference / size, 1e-4) << label;
    }
  }
}

TEST(CheckLearner, RunsAsItsFirstBackendAlone) {
  LearnerSetup setup = checked_setup(action_kind("gaussian"), "gipo");
  setup.learner.proximal_coef = 0.1;
  ThreadPool pool(1);
  CheckLearner check(setup, RandomStream(3), pool);
  setup.learner.backend = "cpu";
  const auto alone = make_learner(setup, RandomStream(3), pool);
  const Batch batch = made_up_batch(kTestRows, setup.model);
  for (int i = 0; i < 5; ++i) {
    check.update(batch, {0, true});
    alone->update(batch, {0, true});
  }
  EXPECT_EQ(bytes_of([&](ByteWriter& out) { check.save(out); }), bytes_of([&](ByteWriter& out) { alone->save(out); }));
  EXPECT_FALSE(check.figures().others.empty());
  EXPECT_NE(check.remarks().find("cpu against cpu64: the largest relative difference of a gradient is "),
            std::string::npos);
}

TEST(CheckLearner, SeesAWrongGradientAndNamesItsTensor) {
  LearnerSetup setup = checked_setup(action_kind("categorical"), "gipo");
  setup.learner.backend = "cpu";
  ThreadPool pool(1);
  auto right = make_learner(setup, RandomStream(3), pool);
  setup.learner.value_coef *= 1.01;  // wrong in the critic alone
  CheckLearner learner({"right", "wrong"}, std::move(right), make_learner(setup, RandomStream(3), pool));
  learner.update(made_up_batch(kTestRows, setup.model), {0, false});
  for (const auto& [name, difference] : learner.differences()) {
    EXPECT_NEAR(difference, name.starts_with("critic.") ? 0.01 : 0, 2e-3) << name;
  }
  EXPECT_NE(learner.remarks().find("right against wrong"), std::string::npos);
  EXPECT_NE(learner.remarks().find("in critic."), std::string::npos);
}

TEST(CheckLearner, BackendsThatAreNotBuiltAreNamed) {
  LearnerOptions options;
  const auto complaint = [&] {
    try {
      check_backend(options);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string built =
      std::string("cpu, cpu64") + (torch_version().empty() ? "" : ", torch") + (cuda_version().empty() ? "" : ", cuda");
  EXPECT_EQ(complaint(), "");
  options.backend = "tpu";
  EXPECT_EQ(complaint(), "learner.backend = \"tpu\" is not accepted: tpu is not built into this program; built are " +
                             built + ", check");
  options.backend = "cuda";
  EXPECT_EQ(complaint(), cuda_version().empty() ? "learner.backend = \"cuda\": " + std::string(kAddCuda) : "");
  options.backend = "check";
  EXPECT_EQ(complaint(), "");
  options.check = "cpu";
  EXPECT_EQ(
      complaint(),
      "learner.check = \"cpu\" is not accepted: wanted two backends, with a comma between them; built are " + built);
}

}  // namespace
}  // namespace gipo
