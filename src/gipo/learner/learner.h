#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gipo/data/batch.h"
#include "gipo/learner/options.h"
#include "gipo/objective/diagnostics.h"
#include "gipo/objective/options.h"
#include "gipo/policy/model.h"

namespace gipo {

class ByteReader;
class ByteWriter;
class RandomStream;
class ThreadPool;

// What a learner needs to know of a run; the rest of the config is not its business.
struct LearnerSetup {
  ModelSpec model;
  LearnerOptions learner;
  SurrogateOptions surrogate;
  AdvantageOptions advantage;
  std::int64_t t_old = 1;  // the dial, for the diagnostics
  double window = 1;
};

struct UpdateContext {
  std::int64_t env_steps = 0;  // of the whole run, at this update
  bool diagnose = false;       // also compute the diagnostics
};

// Figures of one update, under the names of metrics.jsonl.
struct UpdateStats {
  bool skipped = false;  // a loss or gradient was not finite: the weights did not change
  double policy_loss = 0, value_loss = 0, entropy = 0, proximal_kl = 0, explained_variance = 0;
  double policy_grad_norm = 0, value_grad_norm = 0, policy_lr = 0, value_lr = 0;
  double advantage_mean = 0, advantage_std = 0, advantage_abs_max = 0, value_mean = 0, reward_factor = 1;

  void append_to(std::vector<std::pair<std::string, double>>& figures) const;
};

// Batch -> forward, advantage, multiplier, backward, clip, AdamW -> new weights. Owns the parameters, the optimizer and
// the scales of observations and rewards. One thread calls it.
class Learner {
 public:
  virtual ~Learner() = default;

  virtual const UpdateStats& update(const Batch& batch, const UpdateContext& context) = 0;
  // Of the last update that was asked for them.
  virtual Diagnostics& diagnostics() = 0;

  virtual std::int64_t version() const = 0;  // updates done, skipped ones included
  virtual std::int64_t skipped_updates() const = 0;
  virtual void set_observation_scale(const RunningMoments& moments) = 0;
  virtual void set_reward_scale(const RunningMoments& returns) = 0;  // by the discounted ones
  // The current weights, into buffers that are reused.
  virtual void copy_weights(Weights& out) const = 0;

  virtual void save(ByteWriter& out) const = 0;
  virtual void load(ByteReader& in) = 0;
};

// The backend that learner.backend names. The pool, which must outlive it, runs the two networks side by side.
std::unique_ptr<Learner> make_learner(const LearnerSetup& setup, RandomStream random, ThreadPool& pool);

// What it takes of memory, in bytes: all that it holds, and what is needed for a moment to make the first weights.
struct LearnerMemory {
  double held = 0, at_first = 0;
};
LearnerMemory learner_memory(const LearnerSetup& setup);
double saved_learner_bytes(const LearnerSetup& setup);  // of Learner::save

// Factor on the learning rates at an update: warm-up from zero, then constant, linear or cosine down to zero.
double schedule_factor(const LearnerOptions& options, std::int64_t update);

}  // namespace gipo
