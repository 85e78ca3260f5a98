#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gipo/data/encode.h"
#include "gipo/policy/distribution.h"
#include "gipo/policy/model.h"
#include "gipo/policy/weights.h"

namespace gipo {

class OnnxGraph;
class OwnParameters;
class RandomStream;
class RankGroup;

// Names of nodes: the scaled floats of observations, empty where there are none, and the fields that encoders read.
struct OnnxObservation {
  std::string floats;
  std::vector<std::string> raw;  // [fields]
  std::string state = {};        // of a policy with memory; what follows it becomes the node next_state
};

// The parameters as a policy reads them. They lie outside it, in a learner or in published weights, and stay as they are
// until nothing more is asked about them.
template <class T>
struct PolicyParameters {
  std::span<const T> policy,
      critic;  // flat, as tensors() says; from a cache line on, so that products always round alike
  const ObservationScale* scale = nullptr;
  // Two calls with one version mean the same numbers; negative: always others.
  std::int64_t policy_version = -1, critic_version = -1;
  SharedModel* model = nullptr;  // Weights::model
};
PolicyParameters<float> parameters_of(const Weights& weights);

// Rows that follow each other in time, for a policy with memory.
struct Sequence {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t begin = 0, length = 0;           // rows [begin, begin + length)
  std::size_t after = kNone;                   // the row that comes next, of which the critic alone is asked
  std::size_t context_begin = 0, context = 0;  // rows of before, behind all others: the state alone comes from them
};

// Observations, typed as the task gives them, in the order of ModelSpec::fields.
struct PolicyInput {
  FieldColumns columns;  // of `rows` observations each, and of contexts
  std::size_t rows = 0;
  // For a policy with memory.
  const float* state = nullptr;              // [sequences, state_size] before the first row of each, or of its context
  std::span<const Sequence> sequences = {};  // all rows; none: each row is one of its own
};

// Where the action of one row goes. Without a random stream it is the most likely one, and log_prob may be empty.
struct ActionRow {
  RandomStream* random = nullptr;
  std::span<float> action, log_prob;  // [dims]
  LastingNoise noise = {};
};

// The actions of the first rows of distributions, one for each; mask [rows, mask_size()] may be null.
template <class T>
void choose_actions(const DistributionSpec& spec, const DistributionView<T>& pi, std::span<const ActionRow> rows,
                    const std::uint8_t* mask);

template <class T>
class Policy;

// What the loss says of the rows of a forward; the policy turns it into the gradient by its parameters.
template <class T>
struct PolicyLoss {
  const T* d_log_prob = nullptr;     // [rows, dims]
  T entropy_coef = 0;                // weight of -entropy, per row
  T kl_coef = 0;                     // weight of KL(other || this), per row
  const Policy<T>* other = nullptr;  // where kl_coef is not zero: one of the same kind, after its forward
};

// A policy with its critic, as actors, the evaluator, learners, exports and Python know it: networks over parameters that
// lie outside, and the distribution of actions that they lead to. Log-probs are given for each part of an action: where
// parts depend on each other, each for what came before it.
//
//   see: encode, scale, what both share --+-> forward -> choose | log_prob, entropy -> policy_gradient
//                                         +-> values                                -> value_gradient
//
// Keeps what its last calls found, in workspace made once. One thread at a time, but the two branches of the picture may
// run side by side.
template <class T>
class Policy {
 public:
  virtual ~Policy() = default;

  // The named parameters of a part, each with its place in the part's flat buffer: "policy.0.weight".
  virtual std::vector<TensorSlice> tensors(Part part) const = 0;
  virtual void initialise(Part part, std::span<T> parameters, RandomStream& random) const = 0;
  // Brings parameters that an update moved too far back to where the distribution takes them.
  virtual void constrain(std::span<T> policy) const = 0;
  // Not null: there are no tensors, and it keeps its parameters itself (own_parameters.h).
  virtual OwnParameters* own() { return nullptr; }

  virtual void see(const PolicyParameters<T>& parameters, const PolicyInput& input) = 0;
  // What another one of the same kind has just seen, with these parameters.
  virtual void see_as(const PolicyParameters<T>& parameters, const Policy& other) = 0;

  // The distributions of the first `rows` rows, which the next functions are about.
  virtual void forward(std::size_t rows) = 0;
  virtual void choose(std::span<const ActionRow> rows) = 0;  // one for each
  // With memory, after the forward of rows that are sequences of their own: the state after each, [rows, state_size].
  virtual void next_state(float*) {}
  // What the distributions are made of: valid until the next forward.
  virtual DistributionView<T> distribution() const = 0;
  // The rest is for those made with room to learn.
  virtual void log_prob(const T* actions, T* out) const = 0;          // [rows, dims]
  virtual void entropy(T* out) const = 0;                             // [rows]
  virtual void kl_divergence(const Policy& other, T* out) const = 0;  // [rows] KL(other || this)
  virtual void policy_gradient(const T* actions, const PolicyLoss<T>& loss, std::span<T> gradient) = 0;

  // The critic's [rows] for all that was seen; valid until the next call.
  virtual const T* values() = 0;
  virtual void value_gradient(const T* d_values, std::size_t rows, std::span<T> gradient) = 0;

  // The network of the policy in an ONNX graph, from these nodes to one named `output`.
  virtual void add_to(OnnxGraph& graph, std::span<const float> policy, const OnnxObservation& x,
                      const std::string& output) const = 0;
};

// What a policy has room for.
struct PolicyRoom {
  std::size_t rows = 0;        // that are seen at once
  std::size_t learned = 0;     // of these, the first, that log-probs and gradients are asked for; 0: none are
  bool critic = true;          // whether values are asked for
  std::string device = "cpu";  // of libtorch's networks, as learner.device says
  bool bf16 = false;           // there, in products
  bool tf32 = true;            // the same, where they are not
  // Ranks that learn together. Parameters and gradients then lie where their group exchanges them; a model in place has what it
  // learns with in parts. Must outlive the policy.
  RankGroup* ranks = nullptr;
  bool average = false;  // a learner's: another policy looks at a moving average of its parameters
  bool joined = false;   // an actor's: a model in place may serve it together with others that ask at the same time
};

// Of the kind that the spec asks for.
template <class T>
std::unique_ptr<Policy<T>> make_policy(const ModelSpec& spec, const PolicyRoom& room);

// What that takes of memory, for floats: all that it holds, and what is needed for a moment to make the first weights.
struct PolicyMemory {
  double held = 0, at_first = 0;
};
PolicyMemory policy_memory(const ModelSpec& spec, const PolicyRoom& room);

}  // namespace gipo
