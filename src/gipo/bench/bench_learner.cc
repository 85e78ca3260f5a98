#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "gipo/bench/bench.h"
#include "gipo/bench/made_up.h"
#include "gipo/core/thread_pool.h"
#include "gipo/learner/learner.h"

namespace gipo {
namespace {

struct Case {
  std::size_t observation_size;
  Widths hidden;
  ActionSpace action;
  std::size_t batch;
};

std::string name_of(const Case& s) {
  const bool bins = s.action.kind == ActionSpace::Kind::kMultiDiscrete;
  const auto outputs = std::accumulate(s.action.choices.begin(), s.action.choices.end(), std::int64_t{0});
  const std::string network = bins ? fmt::format("{}-{}-{}", s.observation_size, fmt::join(s.hidden, "-"), outputs)
                                   : fmt::format("{}", fmt::join(s.hidden, "x"));
  return fmt::format("learner {} batch {}", network, s.batch);
}

BenchRow measure(const Case& s) {
  const LearnerSetup setup = made_up_setup(s.observation_size, s.action, s.hidden, s.batch);
  ThreadPool pool(1);
  const auto learner = make_learner(setup, RandomStream(1), pool);
  const Batch batch = made_up_batch(s.batch, setup.model);
  const auto [update, sgemm] = best_beside_sgemm([&] { learner->update(batch, {0, false}); });
  const double work = update_operations(setup.model, s.batch);
  return {name_of(s), 1 / update, "updates/s", "sgemm 2048^3", work / update / sgemm};
}

// An update about the moving average of the policy, beside one about the behaviour: 0.8 is a quarter more time.
BenchRow measure_centre(const std::string& name, const Case& s) {
  LearnerSetup setup = made_up_setup(s.observation_size, s.action, s.hidden, s.batch);
  ThreadPool pool(1);
  const auto plain = make_learner(setup, RandomStream(1), pool);
  setup.surrogate.centre = Centre::kProximal;
  const auto centred = make_learner(setup, RandomStream(1), pool);
  const Batch batch = made_up_batch(s.batch, setup.model);
  const auto [seconds, without] = best_seconds(
      [&] {
        centred->update(batch, {0, false});
      },
      [&] {
        plain->update(batch, {0, false});
      });
  return {name, 1 / seconds, "updates/s", "centre = behaviour", without / seconds};
}

constexpr std::size_t kBatch = 512;

// The network of configs/metaworld/authors.toml, which learns the policy in one of `policy_every` updates.
BenchRow measure_authors(const std::string& name, const ActionSpace& bins, std::int64_t policy_every) {
  PolicyOptions policy{
      .hidden = {512, 512}, .critic_hidden = Widths{256}, .shared = 1, .activation = Activation::kRelu};
  policy.layer_norm = true;
  LearnerSetup setup = made_up_setup(39, bins, policy, kBatch);
  setup.advantage.mode = AdvantageMode::kStored;
  setup.learner.policy_every = policy_every;
  ThreadPool pool(1);
  const auto learner = make_learner(setup, RandomStream(1), pool);
  const Batch batch = made_up_batch(kBatch, setup.model);
  const auto [round, sgemm] = best_beside_sgemm([&] {
    for (std::int64_t i = 0; i < policy_every; ++i) learner->update(batch, {0, false});
  });
  const auto updates = static_cast<double>(policy_every);
  return {name, updates / round, "updates/s", "sgemm 2048^3",
          updates * update_operations(setup.model, kBatch, 1 / updates) / round / sgemm};
}

}  // namespace

std::vector<BenchCase> bench_learner() {
  const ActionSpace two = ActionSpace::discrete(2);
  const ActionSpace six = ActionSpace::box(std::vector<double>(6, -1), std::vector<double>(6, 1));
  const ActionSpace bins{ActionSpace::Kind::kMultiDiscrete, {256, 256, 256, 256}, {}, {}};
  std::vector<BenchCase> cases;
  for (const Case& s :
       {Case{8, {64, 64}, two, 64}, Case{8, {64, 64}, two, 256}, Case{8, {64, 64}, two, 512},
        Case{8, {256, 256}, two, 256}, Case{8, {256, 256}, two, 512}, Case{39, {512, 512}, bins, 512}}) {
    cases.push_back({name_of(s), [s] { return std::vector{measure(s)}; }});
  }
  for (const Case& s : {Case{8, {64, 64}, two, 256}, Case{17, {256, 256}, six, 256}}) {
    const std::string name = name_of(s) + ", centre proximal";
    cases.push_back({name, [=] { return std::vector{measure_centre(name, s)}; }});
  }
  for (const std::int64_t every : {1, 10}) {
    const std::string name = fmt::format("learner shared trunk batch {}, policy 1 of {}", kBatch, every);
    cases.push_back({name, [=] { return std::vector{measure_authors(name, bins, every)}; }});
  }
  return cases;
}

}  // namespace gipo
