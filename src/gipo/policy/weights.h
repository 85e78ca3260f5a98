#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gipo/core/aligned_vector.h"
#include "gipo/core/random.h"
#include "gipo/policy/model.h"
#include "gipo/policy/scale.h"
#include "gipo/policy/tensor_slice.h"

namespace gipo {

class ByteReader;
class ByteWriter;
class SharedModel;

// An immutable state of the policy as actors see it: weights, the scales of observations and rewards, and the version,
// i.e. the number of optimizer updates behind them.
struct Weights {
  std::int64_t version = 0;
  std::int64_t policy_version = 0;  // the last that changed the policy
  AlignedVector<float> policy, critic;
  std::shared_ptr<SharedModel> model;  // in place of both, where what learns also acts; its weights do change
  ObservationScale scale;
  RunningMoments returns{1};  // discounted ones, for the scale of rewards; none where these stay as they are

  // Without the critic: as actors need them that make no advantages.
  void save(ByteWriter& out, bool with_critic = true) const;
  void load(ByteReader& in);  // into one of the same sizes
};

// The named tensors of a part of the weights, and how many numbers they are.
std::vector<TensorSlice> tensors_of(const ModelSpec& spec, Part part);
std::size_t parameter_count(const ModelSpec& spec, Part part);

// Zeros, with an observation scale that changes nothing.
Weights empty_weights(const ModelSpec& spec);
// Those of an untrained policy, version 0.
Weights initial_weights(const ModelSpec& spec, RandomStream random);

// The final policy as a safetensors file: tensors under policy.* and critic.*, the scale under observation.*, and in
// the metadata the task, its actions and spaces, the version, the distribution and the options of the group policy; and
// `more`, by name.
using MoreMetadata = std::map<std::string, std::string>;
std::string weights_to_safetensors(const ModelSpec& spec, const Weights& weights, const std::string& env_id,
                                   const MoreMetadata& more = {});
void write_weights(const ModelSpec& spec, const Weights& weights, const std::string& env_id, ByteWriter& out,
                   const MoreMetadata& more = {});
// Throws Error, naming `where`, when a tensor is missing or of another shape.
Weights weights_from_safetensors(const ModelSpec& spec, const std::string& bytes, const std::string& where);

// A policy as its file alone describes it: no config, and the task need not be there. It reads rows of floats, whatever
// fields the task has.
struct SavedPolicy {
  std::string env_id;
  ModelSpec model;
  Weights weights;
};
SavedPolicy policy_from_safetensors(const std::string& bytes, const std::string& where);

}  // namespace gipo
