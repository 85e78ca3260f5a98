#pragma once

#include <span>

#include "gipo/env/env.h"

namespace gipo {

// Throws Error for an action that is not one of the task's, as Env::step does. A box action outside its bounds is left
// to the task.
void check_action(const EnvSpec& spec, std::span<const double> action);

}  // namespace gipo
