#pragma once

#include <vector>

#include "gipo/policy/model.h"
#include "gipo/policy/tensor_slice.h"
#include "gipo/vla/vla_model.h"

namespace gipo {

// The large model as a policy (policy.encoder = openvla_oft). One network reads all fields: images, tokens of an instruction,
// and what is left of the observation, scaled, as the proprioceptive state. Its actions are choices among 256; the critic is
// its value head, whose gradient does not reach the rest.

// What policy.model and the task's fields and actions say of it. Throws Error where the two do not fit together.
struct LargeForm {
  VlaConfig config;
  VlaTrainConfig train;
  Recompute recompute;
  // Above 0: in place, one copy that learns and acts (large_policy.h), so many rows at a time.
  std::int64_t micro_batch = 0;
  std::int64_t act_bits = 16;  // VlaSetup::act_bits
  std::string folder;          // of a checkpoint with the first weights; empty: random ones
};
LargeForm large_form(const ModelSpec& spec);
inline VlaConfig vla_config_of(const ModelSpec& spec) { return large_form(spec).config; }
bool is_in_place(const ModelSpec& spec);  // whether policy.model says so
std::int64_t cameras_of(const ModelSpec& spec);

// Where in the parts' flat buffers its tensors lie, without a gap; names begin with "policy." or "critic.".
std::vector<TensorSlice> vla_slices(const VlaConfig& config, Part part);
inline Part part_of(const VlaTensor& tensor) { return tensor.part == VlaPart::kValue ? Part::kCritic : Part::kPolicy; }

}  // namespace gipo
