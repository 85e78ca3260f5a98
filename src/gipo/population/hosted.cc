#include "gipo/population/hosted.h"

#include <fmt/format.h>

#include <algorithm>

#include "gipo/core/finite.h"

namespace gipo::population {
namespace {

constexpr std::size_t kEnvsOfAJob = 4;

}  // namespace

// What is seen grows with the bodies that are simulated.
std::vector<std::size_t> hosted_runs(std::span<const RunSpec> specs) {
  std::vector<std::size_t> runs;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].task == Task::kHosted) runs.push_back(i);
  }
  std::ranges::stable_sort(runs, std::ranges::greater(), [&](std::size_t i) { return specs[i].observation; });
  return runs;
}

void HostedEnvs::begin(std::span<const Plan* const> plans, std::span<const RunSpec> specs,
                       std::span<const RunMemory> memories) {
  all_.clear();
  all_.resize(plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    all_[i].plan = plans[i];
    all_[i].spec = &specs[i];
    all_[i].memory = memories[i];
  }
  const std::vector<std::size_t> hosted = hosted_runs(specs);
  pool_.run(hosted.size(), [&](std::size_t i) { make(all_[hosted[i]]); });
}

void HostedEnvs::make(HostedRun& run) {
  const Plan& plan = *run.plan;
  const auto seed = static_cast<std::uint64_t>(plan.config.run.seed);
  for (std::unique_ptr<Env>& env :
       make_envs(plan.env, plan.config.env, plan.config.env_options, {plan.envs(), 1, true, nullptr, 0})) {
    const std::size_t i = run.places.size();
    run.places.push_back({std::move(env), std::vector<double>(plan.env.action.dims()), {}});
    run.places[i].env->reset(derive_seed(seed, "env", i));
    run.memory.stepped[i] = {};
    run.memory.stepped[i].bad_starts = start(run, i);
  }
}

bool HostedEnvs::look(const HostedRun& run, std::size_t env, float* to) {
  const auto size = static_cast<std::size_t>(run.spec->observation);
  float* const row = to + env * size;
  std::byte* const field = reinterpret_cast<std::byte*>(row);
  run.places[env].env->observe(ObservationRow(&field, 1));
  return all_finite_floats(std::span<const float>(row, size));
}

void HostedEnvs::reject(HostedRun& run, std::size_t env, Fault why) {
  run.places[env].rejections.add(
      why.name, fmt::format("environment {} ({}) gave {} ({})", env, run.plan->env.id, why.text, why.name));
}

// An episode has begun; where its first observation cannot be used, others. Returns how many could not.
int HostedEnvs::start(HostedRun& run, std::size_t env) {
  int bad = 0;
  while (!look(run, env, run.memory.first) && bad < run.spec->most_faults) {
    ++bad;
    reject(run, env, kBadStart);
    run.places[env].env->reset();
  }
  return bad;
}

void HostedEnvs::step(HostedRun& run, std::size_t env) {
  Place& place = run.places[env];
  Stepped& told = run.memory.stepped[env];
  const std::size_t dims = place.action.size();
  to_env_action(run.plan->model, {run.memory.chosen + env * dims, dims}, place.action);
  const StepResult result = place.env->step(place.action);
  const bool finite = look(run, env, run.memory.seen);
  const auto reward = static_cast<float>(result.reward * run.spec->reward_scale);
  const Fault fault = find_fault(result, reward, finite);
  told = {result.reward, result.terminated, result.truncated, fault ? 1 : 0, 0};
  if (fault) reject(run, env, fault);
  if (!fault && !result.terminated && !result.truncated) return;
  place.env->reset();
  told.bad_starts = start(run, env);
}

bool HostedEnvs::step(std::span<const std::size_t> runs) {
  jobs_.clear();
  for (const std::size_t run : runs) {
    if (!*all_[run].memory.acting) continue;
    const std::size_t envs = all_[run].places.size();
    for (std::size_t env = 0; env < envs; env += kEnvsOfAJob) {
      jobs_.push_back({run, env, std::min(env + kEnvsOfAJob, envs)});
    }
  }
  pool_.run(jobs_.size(), [&](std::size_t i) {
    for (std::size_t env = jobs_[i].begin; env < jobs_[i].end; ++env) step(all_[jobs_[i].run], env);
  });
  return !jobs_.empty();
}

Rejections HostedEnvs::rejections(std::size_t run) const {
  Rejections sum;
  for (const Place& place : all_[run].places) sum.add(place.rejections);
  return sum;
}

}  // namespace gipo::population
