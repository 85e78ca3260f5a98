#pragma once

#include <string>

#include "gipo/env/env.h"

namespace gipo {

// The spaces of a task of this library, as the worker of the bridge describes those of a Python package: the
// observation is a row of float32, the action what EnvSpec says.
std::string native_spaces(const EnvSpec& spec);

// Gives the fields of env.critic_fields to the critic alone, and says in spec.spaces which fields are not the policy's.
// Throws Error for a name that there is not, and where nothing is left for the policy.
void assign_roles(const EnvOptions& env, EnvSpec& spec);

}  // namespace gipo
