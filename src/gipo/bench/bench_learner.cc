#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "gipo/bench/bench.h"
#include "gipo/bench/made_up.h"
#include "gipo/core/thread_pool.h"
#include "gipo/learner/learner.h"

namespace gipo {
namespace {

struct Shape {
  std::size_t observation_size;
  Widths hidden;
  ActionSpace action;
  std::size_t batch;
};

BenchRow measure(const Shape& s) {
  const LearnerSetup setup = made_up_setup(s.observation_size, s.action, s.hidden, s.batch);
  ThreadPool pool(1);
  const auto learner = make_learner(setup, RandomStream(1), pool);
  const Batch batch = made_up_batch(s.batch, setup.model);
  const auto [update, sgemm] = best_beside_sgemm([&] { learner->update(batch, {0, false}); });
  const double work = update_operations(setup.model, s.batch);
  const std::string outputs =
      s.action.kind == ActionSpace::Kind::kMultiDiscrete
          ? fmt::format("{}-{}-{}", s.observation_size, fmt::join(s.hidden, "-"), setup.model.distribution.outputs())
          : fmt::format("{}", fmt::join(s.hidden, "x"));
  return {fmt::format("learner {} batch {}", outputs, s.batch), 1 / update, "updates/s", "sgemm 2048^3",
          work / update / sgemm};
}

// The network of configs/metaworld/authors.toml, which learns the policy in one of `policy_every` updates.
BenchRow measure_authors(const ActionSpace& bins, std::int64_t policy_every) {
  constexpr std::size_t kBatch = 512;
  PolicyOptions policy{.hidden = {512, 512}, .critic_hidden = Widths{256}, .shared = 1, .activation = "relu"};
  policy.layer_norm = true;
  LearnerSetup setup = made_up_setup(39, bins, policy, kBatch);
  setup.advantage.mode = "stored";
  setup.learner.policy_every = policy_every;
  ThreadPool pool(1);
  const auto learner = make_learner(setup, RandomStream(1), pool);
  const Batch batch = made_up_batch(kBatch, setup.model);
  const auto [round, sgemm] = best_beside_sgemm([&] {
    for (std::int64_t i = 0; i < policy_every; ++i) learner->update(batch, {0, false});
  });
  const auto updates = static_cast<double>(policy_every);
  return {fmt::format("learner shared trunk batch {}, policy 1 of {}", kBatch, policy_every), updates / round,
          "updates/s", "sgemm 2048^3", updates * update_operations(setup.model, kBatch, 1 / updates) / round / sgemm};
}

}  // namespace

std::vector<BenchRow> bench_learner() {
  const ActionSpace two = ActionSpace::discrete(2);
  ActionSpace bins{ActionSpace::Kind::kMultiDiscrete, {256, 256, 256, 256}, {}, {}};
  std::vector<BenchRow> rows;
  for (const Shape& s :
       {Shape{8, {64, 64}, two, 64}, Shape{8, {64, 64}, two, 256}, Shape{8, {64, 64}, two, 512},
        Shape{8, {256, 256}, two, 256}, Shape{8, {256, 256}, two, 512}, Shape{39, {512, 512}, bins, 512}}) {
    rows.push_back(measure(s));
  }
  for (const std::int64_t every : {1, 10}) rows.push_back(measure_authors(bins, every));
  return rows;
}

}  // namespace gipo
