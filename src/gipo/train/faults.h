#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include "gipo/core/finite.h"
#include "gipo/env/env.h"
#include "gipo/run/records.h"

namespace gipo {

// What an environment may give that no learner and no figure may see.
struct Fault {
  const char* name = nullptr;  // as it is counted; null: none
  const char* text = nullptr;  // what the environment gave
  explicit operator bool() const { return name != nullptr; }
};
inline constexpr Fault kBadReward{"reward_not_finite", "a reward that is not finite"};
inline constexpr Fault kBadObservation{"observation_not_finite", "an observation that is not finite"};
inline constexpr Fault kBadStart{"start_not_finite", "a first observation that is not finite"};

// In a row, of one environment, after which the run ends. Of workers, env.max_deaths says how many deaths are too many.
inline constexpr std::int64_t kMostFaults = 10;

// Why segments were rejected: "every segment was rejected (2 worker_died, 1 reward_not_finite); the last: ...".
std::string in_words(const FaultCounts& faults, const std::string& last);

// Of one step. observation: as the policy would see it.
inline Fault find_fault(const StepResult& step, float reward, std::span<const float> observation) {
  if (step.fault == kWorkerDied) return {kWorkerDied, "the end of its worker"};
  if (step.fault) return {step.fault, "a simulation that broke down"};
  if (!std::isfinite(reward)) return kBadReward;
  if (!all_finite(observation)) return kBadObservation;
  return {};
}

}  // namespace gipo
