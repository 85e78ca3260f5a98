#include <fmt/format.h>

#include "gipo/bench/bench.h"
#include "gipo/bench/made_up.h"
#include "gipo/core/thread_pool.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {
namespace {

constexpr std::size_t kImages = 256;
constexpr int kTogether = 20;

// As a trainer does it: the next batch is staged while the device still works, and nothing is waited for in between.
BenchRow measure(const std::string& name, const std::string& device, Precision precision) {
  LearnerSetup setup = made_up_images(kImages);
  setup.learner.device = device;
  setup.learner.precision = precision;
  setup.advantage.mode = AdvantageMode::kStored;
  ThreadPool pool(2);
  const auto learner = make_learner(setup, RandomStream(1), pool);
  const Batch batch = made_up_batch(kImages, setup.model);
  const int updates = device == "cpu" ? 1 : kTogether;
  const double seconds = best_seconds([&] {
    for (int i = 0; i < updates; ++i) {
      learner->stage(batch);
      learner->begin_update({0, false});
    }
    learner->figures();
  });
  return {name, updates / seconds, "updates/s", "", 0};
}

}  // namespace

std::vector<BenchCase> bench_images() {
  std::vector<BenchCase> cases;
  const auto add = [&](const std::string& device, Precision precision) {
    const std::string name = fmt::format("images nature 4x84x84 batch {}, {}, {}", kImages, device, word_of(precision));
    cases.push_back({name, [=] { return std::vector{measure(name, device, precision)}; }});
  };
  if (torch_version().empty()) return cases;
  add("cpu", Precision::kFloat32);
  for (std::size_t i = 0; i < torch_cuda_devices().size(); ++i) {
    add(fmt::format("cuda:{}", i), Precision::kFloat32);
    add(fmt::format("cuda:{}", i), Precision::kBf16);
  }
  return cases;
}

}  // namespace gipo
