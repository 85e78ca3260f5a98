#include <fmt/format.h>

#include "gipo/bench/bench.h"
#include "gipo/bench/made_up.h"
#include "gipo/config/words.h"
#include "gipo/core/error.h"
#include "gipo/core/thread_pool.h"
#include "gipo/learner/cuda_learner.h"

namespace gipo {
namespace {

struct CardCase {
  std::string network;
  std::size_t observation_size;
  Widths hidden;
  ActionSpace action;
  std::size_t batch;
};

// By the card's clock, and with the host's share: the batch made ready, copied, the update begun.
std::vector<BenchRow> measure_card_update(const std::string& name, const CardCase& s) {
  LearnerSetup setup = made_up_setup(s.observation_size, s.action, s.hidden, s.batch);
  setup.learner.backend = "cuda";
  setup.learner.publish_every = 1000000;
  const Batch batch = made_up_batch(s.batch, setup.model);
  std::vector<BenchRow> rows;
  for (const auto& [kind, word] : kWords<ProductKind>) {
    setup.learner.products = kind;
    const double seconds = card_update(setup, batch);
    rows.push_back({fmt::format("{} {}", name, word), 1e6 * seconds, "us", "", 0});
  }
  setup.learner.products = LearnerOptions{}.products;
  ThreadPool pool(1);
  const auto learner = make_learner(setup, RandomStream(1), pool);
  constexpr int kUpdates = 100;
  const double seconds = best_seconds([&] {
    for (int i = 0; i < kUpdates; ++i) {
      learner->stage(batch);
      learner->begin_update({});
    }
    learner->figures();
  });
  rows.push_back({name + " with its batch", 1e6 * seconds / kUpdates, "us", "", 0});
  return rows;
}

std::vector<BenchRow> measure_card_surrogate(const std::string& name, const std::string& surrogate,
                                             std::size_t samples) {
  SurrogateOptions options;
  options.name = surrogate;
  const SurrogateSeconds seconds = card_surrogate(options, samples);
  return {{name, 1e6 * seconds.surrogate, "us", "a copy of as many floats", seconds.copy / seconds.surrogate}};
}

std::vector<BenchRow> measure_card_inference(const std::string& name, std::size_t rows) {
  const ModelSpec model = made_up_setup(8, ActionSpace::discrete(2), {64, 64}, 64).model;
  const Weights weights = initial_weights(model, RandomStream(1));
  std::vector<float> observations(rows * 8), outputs(rows * 2);
  RandomStream random(1);
  for (float& v : observations) v = static_cast<float>(random.normal());
  const double seconds = card_inference(model, weights, observations, LearnerOptions{}.products, outputs);
  return {{name, 1e6 * seconds, "us", "", 0}};
}

}  // namespace

std::vector<BenchCase> bench_cuda() {
  if (cuda_version().empty()) throw Error(kAddCuda);
  const ActionSpace two = ActionSpace::discrete(2);
  const ActionSpace bins{ActionSpace::Kind::kMultiDiscrete, {256, 256, 256, 256}, {}, {}};
  std::vector<BenchCase> cases;
  for (const CardCase& s : {CardCase{"64x64", 8, {64, 64}, two, 256}, CardCase{"256x256", 8, {256, 256}, two, 4096},
                            CardCase{"39-512-512-1024", 39, {512, 512}, bins, 512}}) {
    const std::string name = fmt::format("cuda update {} batch {}", s.network, s.batch);
    cases.push_back({name, [=] { return measure_card_update(name, s); }});
  }
  for (const char* surrogate : {"gipo", "ppo", "sapo"}) {
    const std::string name = fmt::format("cuda {} over 64M samples", surrogate);
    cases.push_back({name, [=] { return measure_card_surrogate(name, surrogate, std::size_t{64} << 20); }});
  }
  for (const std::size_t rows : {1u, 256u, 16384u}) {
    const std::string name = fmt::format("cuda inference 64x64 rows {}", rows);
    cases.push_back({name, [=] { return measure_card_inference(name, rows); }});
  }
  return cases;
}

}  // namespace gipo
