#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "gipo/env/env.h"
#include "gipo/policy/distribution.h"
#include "gipo/policy/mlp.h"
#include "gipo/policy/options.h"
#include "gipo/policy/scale.h"

namespace gipo {

class ByteReader;
class ByteWriter;

// The networks of a task: what the actor, the learner and a loaded policy must agree on.
struct ModelSpec {
  PolicyOptions options;             // what the rest was made from, for files
  std::size_t observation_size = 0;  // floats of an observation
  std::size_t privileged = 0;        // of these, the last, which only the critic reads
  ActionSpace action;                // the task's
  std::string spaces;                // the task's, as JSON, for files
  DistributionSpec distribution;     // the policy's
  MlpShape policy_shape, critic_shape;
  std::size_t shared = 0;  // hidden layers of the policy whose output the critic reads; no gradient of its enters them
  bool uniform_init = false;
  double init_log_std = 0;

  std::size_t policy_parameters() const;  // the network's, then the distribution's extra ones
  std::size_t critic_parameters() const;
};

// Throws Error where the distribution does not fit the task's actions.
ModelSpec make_model_spec(const PolicyOptions& options, const EnvSpec& env);

// The columns [begin, begin + width) of rows [rows, from_width], to rows `stride` apart.
template <class T>
void copy_columns(const T* from, std::size_t from_width, std::size_t begin, std::size_t width, std::size_t rows, T* to,
                  std::size_t stride) {
  for (std::size_t r = 0; r < rows; ++r) std::copy_n(from + r * from_width + begin, width, to + r * stride);
}

// The policy's action as the task takes it. Gaussian and binned actions live in units where a bounded range is -1 to 1;
// they are scaled to the task's range and clipped to it.
void to_env_action(const ModelSpec& spec, std::span<const float> action, std::span<double> env_action);

// An immutable state of the policy as actors see it: weights, the scales of observations and rewards, and the version,
// i.e. the number of optimizer updates behind them.
struct Weights {
  std::int64_t version = 0;
  std::int64_t policy_version = 0;  // the last that changed the policy
  std::vector<float> policy, critic;
  ObservationScale scale;
  RunningMoments returns{1};  // discounted ones, for the scale of rewards; none where these stay as they are

  void save(ByteWriter& out) const;
  void load(ByteReader& in);  // into one of the same sizes
};

// Weights by an own random stream: orthogonal, small at the policy's output; or uniform.
template <class T>
void initialise_policy(const ModelSpec& spec, std::span<T> parameters, RandomStream& random);
template <class T>
void initialise_critic(const ModelSpec& spec, std::span<T> parameters, RandomStream& random);

// Those of an untrained policy, version 0, with an observation scale that changes nothing.
Weights initial_weights(const ModelSpec& spec, RandomStream random);

// Every tensor of the policy, and of the critic, with its place in the flat buffer: "policy.0.weight".
std::vector<TensorSlice> policy_tensors(const ModelSpec& spec);
std::vector<TensorSlice> critic_tensors(const ModelSpec& spec);

// The final policy as a safetensors file: tensors under policy.* and critic.*, the scale under observation.*, and in
// the metadata the task, its actions and spaces, the version, the distribution and the options of the group policy.
std::string weights_to_safetensors(const ModelSpec& spec, const Weights& weights, const std::string& env_id);
void write_weights(const ModelSpec& spec, const Weights& weights, const std::string& env_id, ByteWriter& out);
// Throws Error, naming `where`, when a tensor is missing or of another shape.
Weights weights_from_safetensors(const ModelSpec& spec, const std::string& bytes, const std::string& where);

const char* name_of(ActionSpace::Kind kind);  // "discrete", "multi_discrete", "box", "composed"

// A policy as its file alone describes it: no config, and the task need not be there.
struct SavedPolicy {
  std::string env_id;
  ModelSpec model;
  Weights weights;
};
SavedPolicy policy_from_safetensors(const std::string& bytes, const std::string& where);

// Evaluates a policy on rows of raw observations, with workspace for max_rows. One thread. Weights of one version are
// taken to be the same weights, and policies of one policy_version: each object serves one run.
class Inference {
 public:
  Inference(const ModelSpec& spec, std::size_t max_rows);
  static double bytes_needed(const ModelSpec& spec, std::size_t max_rows);

  // Distribution outputs for observations [rows, observation_size]; valid until the next call.
  DistributionView<float> policy(const Weights& weights, std::span<const float> observations);
  // Values [rows] of the critic; valid until the next call.
  const float* values(const Weights& weights, std::span<const float> observations);

 private:
  // What both networks begin with: the output of the shared layers, or the scaled observations.
  const float* features(const Weights& weights, std::span<const float> observations);

  std::size_t observation_size_, shared_;
  Mlp<float> policy_, critic_;
  std::int64_t shared_version_ = -1, policy_version_ = -1, critic_version_ = -1;  // of the last call
  std::size_t privileged_, seen_;                     // seen: what the critic has of features
  AlignedVector<float> scaled_;                       // [max_rows, observation_size]
  AlignedVector<float> policy_input_, critic_input_;  // where some floats are the critic's
};

}  // namespace gipo
