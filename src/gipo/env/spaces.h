#pragma once

#include <string>

#include "gipo/env/env.h"

namespace gipo {

// The spaces of a task of this library, as the worker of the bridge describes those of a Python package: the
// observation is a row of float32, the action what EnvSpec says.
std::string native_spaces(const EnvSpec& spec);

}  // namespace gipo
