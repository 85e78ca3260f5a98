// Nothing is allocated in the steady loop: environments stepped, segments handed over, batches drawn, updates made,
// weights published.
#include <gtest/gtest.h>

#include "gipo/core/allocations.h"
#include "gipo/core/thread_pool.h"
#include "gipo/learner/learner.h"
#include "gipo/plan/plan.h"
#include "gipo/replay/replay_buffer.h"
#include "gipo/train/actor.h"
#include "gipo/train/intake.h"
#include "gipo/train/weight_store.h"

namespace gipo {
namespace {

class SteadyLoop : public ::testing::TestWithParam<std::tuple<std::string, std::string, std::int64_t>> {};

TEST_P(SteadyLoop, AllocatesNothing) {
  LoadedConfig loaded;
  Config& c = loaded.config;
  c.env.id = std::get<0>(GetParam());
  c.policy.distribution = read_word<DistributionChoice>(std::get<1>(GetParam())).value();
  c.policy.hidden = {16, 16};
  c.policy.shared = std::get<2>(GetParam());
  c.policy.layer_norm = c.policy.shared > 0;
  c.learner.batch_size = 64;
  c.learner.updates = 1000;
  c.learner.proximal_coef = 0.3;
  c.replay.segment_length = 16;
  const Plan plan = make_plan(loaded);
  ThreadPool pool(1);
  const auto learner = make_learner(plan.learner_setup(), RandomStream(1), pool);
  ReplayBuffer replay(plan.replay_shape(), RandomStream(2));
  WeightStore store;
  store.publish(*learner);
  Actor actor(actor_spec(plan, 0));
  Intake intake(replay, plan.envs());
  Batch batch(64, plan.transition());
  RunningMoments moments(plan.env.observation_size);
  const auto turn = [&] {
    for (int i = 0; i < 4; ++i) {
      actor.step(*store.get(), 0);
      intake.take(actor.report());
      intake.arrived().episodes.clear();
    }
    if (!replay.sample(batch)) return;
    replay.copy_moments(moments);
    learner->set_observation_scale(moments);
    learner->update(batch, {0, true});
    store.publish(*learner);
  };
  for (int i = 0; i < 2000; ++i) turn();  // until every buffer has the size it needs
  allocations.reset();
  for (int i = 0; i < 500; ++i) turn();
  EXPECT_EQ(allocations.count, 0);
}

INSTANTIATE_TEST_SUITE_P(Tasks, SteadyLoop,
                         ::testing::Values(std::make_tuple("CartPole-v1", "auto", 0),
                                           std::make_tuple("Pendulum-v1", "auto", 0),
                                           std::make_tuple("Pendulum-v1", "binned", 1)));

}  // namespace
}  // namespace gipo
