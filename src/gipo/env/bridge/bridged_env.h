#pragma once

#include <memory>
#include <vector>

#include "gipo/env/bridge/bridge.h"

namespace gipo {

// The environments of a bridge, in their order, which share it.
std::vector<std::unique_ptr<Env>> make_bridged_envs(const std::shared_ptr<Bridge>& bridge, std::size_t count);

}  // namespace gipo
