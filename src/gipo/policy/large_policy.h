#pragma once

#include <memory>

#include "gipo/policy/policy.h"

namespace gipo {

// The large model in place (policy.model with micro_batch): one copy of it, which learns and acts. The policy of a learner makes
// it; those that act are given it with the weights.
std::unique_ptr<Policy<float>> make_large_policy(const ModelSpec& spec, const PolicyRoom& room);
PolicyMemory large_policy_memory(const ModelSpec& spec, const PolicyRoom& room);

}  // namespace gipo
