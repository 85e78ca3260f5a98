#include <fmt/format.h>

#include "gipo/bench/bench.h"
#include "gipo/bench/made_up.h"
#include "gipo/core/thread_pool.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {
namespace {

constexpr std::size_t kImages = 256;

// Policy and critic with a Nature CNN each, from four frames of 84 x 84 to six actions.
LearnerSetup nature_setup(const std::string& device, Precision precision) {
  LearnerSetup setup;
  EnvSpec env;
  env.id = "made up";
  env.action = ActionSpace::discrete(6);
  env.fields = {{"image", DType::kUint8, {4, 84, 84}}};
  PolicyOptions policy;
  policy.hidden = {512};
  policy.activation = Activation::kRelu;
  const std::vector<Encoder> encoders = choose_encoders("nature", env.fields, true);
  set_encoders(env, encoders);
  setup.model = make_model_spec(policy, env, encoders);
  setup.learner.batch_size = kImages;
  setup.learner.backend = "torch";
  setup.learner.device = device;
  setup.learner.precision = precision;
  setup.advantage.mode = AdvantageMode::kStored;
  return setup;
}

BenchRow measure(const std::string& name, const LearnerSetup& setup) {
  ThreadPool pool(2);
  const auto learner = make_learner(setup, RandomStream(1), pool);
  const Batch batch = made_up_batch(kImages, setup.model);
  const double seconds = best_seconds([&] { learner->update(batch, {0, false}); });
  return {name, 1 / seconds, "updates/s", "", 0};
}

}  // namespace

std::vector<BenchCase> bench_images() {
  std::vector<BenchCase> cases;
  const auto add = [&](const std::string& device, Precision precision) {
    const std::string name = fmt::format("images nature 4x84x84 batch {}, {}, {}", kImages, device, word_of(precision));
    cases.push_back({name, [=] { return std::vector{measure(name, nature_setup(device, precision))}; }});
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
