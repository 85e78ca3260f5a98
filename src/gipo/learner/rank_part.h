#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gipo/learner/rank_memory.h"
#include "gipo/learner/ranks.h"
#include "gipo/policy/policy.h"

namespace gipo {

class ByteReader;

// What rank 0 asks of all ranks, itself included. The message of each has this first.
enum class RankCommand : std::uint8_t {
  kNothing,         // rank 0 lives
  kEnd,             // the run has ended
  kSetUp,           // RankSetup
  kParameters,      // rank 0's, and its average, to all
  kSee,             // a share of the observations
  kSeeAverage,      // the same, by the average
  kForward,         // net, rows
  kLogProb,         // net, actions -> log-probs
  kEntropy,         // -> entropies
  kDivergence,      // -> KL(average || policy)
  kPolicyGradient,  // actions, PolicyLoss -> sum of squares of the share
  kValues,          // -> values
  kValueGradient,   // derivatives by values -> sum of squares of the share
  kStep,            // part, AdamWStep, step of the average
  kReadGradient,    // part -> its share
  kReadMoments,     // part, moment, first and last value -> those of the share
  kWriteMoments,    // part, moment, first and last value, all of these
  // Of a model in place (own_parameters.h), whose parts the ranks exchange themselves.
  kMakeModel,      // a random stream
  kFindGradients,  // -> the norms
  kStepModel,      // OwnStep
  kSaveModel,
  kLoadModel,
};

// Whether rank 0 waits for what others say to it.
bool answers(RankCommand command);

// Arrays that all ranks hold whole, where their group exchanges them.
struct RankArrays {
  std::span<float> policy, critic;                    // parameters
  std::span<float> policy_gradient, critic_gradient;  // of the rank's own samples
  std::span<float> average;                           // of the policy; empty where none is kept
};

// What a rank must know of a run before anything else.
struct RankSetup {
  ModelSpec model;  // flat: the floats of an observation as one field, then those that encoders read, then a mask
  std::size_t batch_size = 0;
  bool keeps_average = false, looks_at_average = false;
  bool on_devices = false, bf16 = false, tf32 = true;  // the last two as in PolicyRoom
};
std::string to_bytes(const RankSetup& setup, const std::string& env_id);
RankSetup rank_setup(ByteReader& in);

// One rank's part of the updates: forward and gradient of its share of each batch, and AdamW for its share of the
// parameters, whose moments no other rank has (ZeRO: optimizer states and summed gradients are sharded).
class RankPart {
 public:
  // All ranks make theirs at once.
  RankPart(RankGroup& group, const RankSetup& setup);
  // Of rank 0: the learner's arrays. On the host they are this part's own; of a device's they are kept up to date.
  void bind(const RankArrays& learners);

  // Does what the message says; what rank 0 is to get, where it is to get anything.
  std::string execute(RankCommand command, ByteReader& in);
  Policy<float>& policy() { return *net_; }

 private:
  static constexpr int kParts = 2;  // policy, critic
  struct Share {
    std::size_t begin = 0, end = 0;            // of the part's parameters
    std::span<float> gradient, first, second;  // [end - begin]
  };

  std::span<float> parameters(int part) { return part == 0 ? arrays_.policy : arrays_.critic; }
  std::span<float> gradient(int part) { return part == 0 ? arrays_.policy_gradient : arrays_.critic_gradient; }
  Policy<float>& net(ByteReader& in);
  std::string read(std::span<const float> there) const;
  std::span<float> moments(ByteReader& in, Share*& share);
  void take_parameters();
  void see(ByteReader& in);
  std::string log_prob(ByteReader& in);
  std::string policy_gradient(ByteReader& in);
  std::string values();
  std::string value_gradient(ByteReader& in);
  std::string sum_gradient(int part);
  void step(ByteReader& in);

  RankGroup& group_;
  std::unique_ptr<RankMemory> memory_;
  RankArrays arrays_, learners_;  // the second where the learner has others
  std::unique_ptr<Policy<float>> net_, average_;
  Share shares_[kParts];

  // Of the batch: this rank's rows. None: a rank that has nothing to do.
  std::size_t steps_ = 0, rows_ = 0;  // that actions were taken at; these and those after stretches
  std::size_t dims_;
  std::vector<std::vector<std::byte>> columns_;
  std::vector<const std::byte*> column_at_;
  std::vector<float> state_, actions_;
  std::vector<Sequence> sequences_;
  ObservationScale scale_;
};

}  // namespace gipo
