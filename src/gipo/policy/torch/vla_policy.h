#pragma once

#include <memory>

#include "gipo/policy/policy.h"

namespace gipo {

// The large model as a policy (policy/vla_spec.h).
std::unique_ptr<Policy<float>> make_vla_policy(const ModelSpec& spec, const PolicyRoom& room);
PolicyMemory vla_policy_memory(const ModelSpec& spec, const PolicyRoom& room);

}  // namespace gipo
