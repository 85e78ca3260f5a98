#pragma once

#include <vector>

#include "gipo/plan/presets.h"

namespace gipo {

// The files of configs/ as they were when this was built.
std::vector<PresetConfig> built_in_presets();

}  // namespace gipo
