#pragma once

#include <memory>

#include "gipo/study/run_launcher.h"

namespace gipo::cli {

// Of this machine, or of a Ray cluster, which is looked for when the first run is to start.
std::unique_ptr<RunLauncher> make_launcher(bool ray);

}  // namespace gipo::cli
