#include <fmt/format.h>

#include "gipo/bench/bench.h"
#include "gipo/bench/collector.h"
#include "gipo/env/env.h"

namespace gipo {
namespace {

constexpr std::size_t kEnvs = 16;

// Every environment once, with the observation written out and episodes begun anew.
class Stepper {
 public:
  explicit Stepper(const std::string& id) : spec_(find_env(id)), observation_(spec_.observation_size) {
    for (std::size_t i = 0; i < kEnvs; ++i) {
      envs_.push_back(make_env(id));
      envs_.back()->reset(i);
    }
    // Made before: drawing actions is not the environment's work.
    RandomStream random(1);
    for (std::size_t i = 0; i < kActions * spec_.action.dims(); ++i) {
      const std::size_t d = i % spec_.action.dims();
      const bool box = spec_.action.kind == ActionSpace::Kind::kBox;
      actions_.push_back(box ? random.uniform(spec_.action.low[d], spec_.action.high[d])
                             : static_cast<double>(random.below(static_cast<std::uint64_t>(spec_.action.choices[d]))));
    }
  }
  void step() {
    const std::size_t dims = spec_.action.dims();
    for (const auto& env : envs_) {
      at_ = (at_ + 1) % kActions;
      const StepResult result = env->step({actions_.data() + at_ * dims, dims});
      if (result.terminated || result.truncated) env->reset();
      env->observe(observation_);
    }
  }

 private:
  static constexpr std::size_t kActions = 1009;
  const EnvSpec& spec_;
  std::vector<std::unique_ptr<Env>> envs_;
  std::vector<double> observation_, actions_;
  std::size_t at_ = 0;
};

std::vector<BenchRow> measure(const std::string& id) {
  Stepper bare(id);
  Collector collector(id, kEnvs);
  const auto [alone, acting] = best_seconds([&] { bare.step(); }, [&] { collector.step(); });
  return {
      {fmt::format("env {} {}", id, kEnvs), kEnvs / alone, "env steps/s", "", 0},
      {fmt::format("actor {} {}", id, kEnvs), kEnvs / acting, "env steps/s", "the environments alone", alone / acting}};
}

}  // namespace

std::vector<BenchCase> bench_env() {
  std::vector<BenchCase> cases;
  for (const EnvSpec& spec : registered_envs()) {
    cases.push_back({fmt::format("env {} {}", spec.id, kEnvs), [id = spec.id] { return measure(id); }});
  }
  return cases;
}

}  // namespace gipo
