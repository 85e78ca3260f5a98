#pragma once

#include "gipo/clone/options.h"
#include "gipo/env/options.h"
#include "gipo/learner/options.h"
#include "gipo/objective/options.h"
#include "gipo/plan/options.h"
#include "gipo/policy/options.h"
#include "gipo/replay/options.h"

namespace gipo {

// A whole run, as the user gave it. What follows from it (the dial, names) is resolved in plan/plan.h. A group more is
// also one entry of option_table().
struct Config {
  RunOptions run;
  EnvOptions env;
  PolicyOptions policy;
  SurrogateOptions surrogate;
  AdvantageOptions advantage;
  ReplayOptions replay;
  StalenessOptions staleness;
  LearnerOptions learner;
  EvalOptions eval;
  CheckpointOptions checkpoint;
  LogOptions log;
  CloneOptions clone;

  // The table [env.options]: which there are, the task says (env/env_options.h). Complete in a Plan, as given elsewhere.
  OptionValues env_options;

  // Updates between lines of metrics.jsonl.
  std::int64_t log_every() const { return clone.data.empty() ? log.every_updates : clone.every_updates; }
};

}  // namespace gipo
