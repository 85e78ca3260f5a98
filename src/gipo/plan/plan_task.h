#pragma once

#include "gipo/plan/plan.h"

namespace gipo {

// Of make_plan's plan the task alone: `env`, and all of its options in `config`. Throws Error likewise.
Plan plan_task(const LoadedConfig& loaded);

}  // namespace gipo
