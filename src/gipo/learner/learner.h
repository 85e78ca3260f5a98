#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gipo/data/batch.h"
#include "gipo/io/safetensors.h"
#include "gipo/learner/options.h"
#include "gipo/objective/diagnostics.h"
#include "gipo/objective/options.h"
#include "gipo/policy/policy.h"

namespace gipo {

class ByteReader;
class ByteWriter;
class RandomStream;
class RankGroup;
class ThreadPool;

// What a learner needs to know of a run; the rest of the config is not its business.
struct LearnerSetup {
  ModelSpec model;
  LearnerOptions learner;
  SurrogateOptions surrogate;
  AdvantageOptions advantage;
  std::int64_t t_old = 1;  // the dial, for the diagnostics
  double window = 1;
  std::shared_ptr<const Weights> first = {};  // to begin with, and their observation scale; none: new ones
  std::shared_ptr<RankGroup> ranks = {};      // who make the updates together, where learner.ranks is above 1
};

struct UpdateContext {
  std::int64_t env_steps = 0;  // of the whole run, at this update
  bool diagnose = false;       // also compute the diagnostics
};

// Figures of one update, under the names of metrics.jsonl.
struct UpdateStats {
  bool skipped = false;  // a loss or gradient was not finite: the weights did not change
  double policy_loss = 0, value_loss = 0, entropy = 0, proximal_kl = 0, explained_variance = 0;
  double importance_mean = 1, importance_cut_frac = 0;  // of the weights pi_prox / mu; 1 and 0 without a centre
  double policy_grad_norm = 0, value_grad_norm = 0, policy_lr = 0, value_lr = 0;
  double advantage_mean = 0, advantage_std = 0, advantage_abs_max = 0, value_mean = 0, reward_factor = 1;
  std::vector<std::pair<std::string, double>> others = {};  // of one backend alone

  void append_to(std::vector<std::pair<std::string, double>>& figures) const;
};

// A tensor of a learner's state: how it is written, and how it is read from the file that it was written to.
struct LearnerTensor {
  TensorSource source;
  std::function<void(TensorReader&)> read;
  bool held = false;  // it stays as it is while what Learner::hold gave lives
};

// Batch -> forward, advantage, multiplier, backward, clip, AdamW -> new weights. Owns the parameters, the optimizer and
// the scales of observations and rewards. One thread calls it. It may live on a device, which is then waited for where
// figures or weights are asked for and nowhere else:
//
//   stage (copy begins) -> begin_update (work begins) -> ... next stage ... -> figures, when they are logged (waits)
class Learner {
 public:
  virtual ~Learner() = default;

  // The batch of the next update. It must stay as it is until begin_update has returned.
  virtual void stage(const Batch& batch) = 0;
  // One update from it. Whether it is finite is decided where the gradients are: where not, nothing changes.
  virtual void begin_update(const UpdateContext& context) = 0;
  // Of the last update, and of the last that was asked for diagnostics.
  virtual const UpdateStats& figures() = 0;
  virtual Diagnostics& diagnostics() = 0;
  // All three, for those who have nothing to do meanwhile.
  const UpdateStats& update(const Batch& batch, const UpdateContext& context);

  // The gradients of the last update by the names of their tensors, as they were before the clip.
  virtual std::vector<std::pair<std::string, std::vector<double>>> gradients() const = 0;
  // What it has to say when a run ends; empty: nothing.
  virtual std::string remarks() const { return {}; }

  virtual std::int64_t version() const = 0;  // updates done, skipped ones included
  virtual std::int64_t skipped_updates() const = 0;
  virtual void set_observation_scale(const RunningMoments& moments) = 0;
  virtual void set_reward_scale(const RunningMoments& returns) = 0;  // by the discounted ones
  // The weights to publish, into buffers that are reused.
  virtual void copy_weights(Weights& out) const = 0;

  // Its state as a safetensors file, written from where it lies, and read back to there. Backends read each other's, and
  // floats of either size. load throws Error where a tensor is missing, too many or of another shape.
  void save(ByteWriter& out) const;
  void load(ByteReader& in);
  // What save would write now, to be written once by another thread while this one goes on. Empty: it must not go on meanwhile.
  std::function<void(ByteWriter&)> snapshot();

 protected:
  friend class CheckLearner;
  virtual std::vector<LearnerTensor> tensors() = 0;
  // While it lives, tensors that are too large to be copied do not change: who would change them waits. Null: nothing is held.
  virtual std::shared_ptr<void> hold() { return nullptr; }
  // Counts, scales: what is small and no tensor.
  virtual void save_rest(ByteWriter& out) const = 0;
  virtual void load_rest(ByteReader& in) = 0;
};

// The backends in this program: "cpu", in float; "cpu64", in double; "torch", with libtorch's networks, where it was built
// with it; "cuda", on a card of NVIDIA's, likewise; "check", which runs two others.
const std::vector<std::string>& learner_backends();
bool runs_backend(const LearnerOptions& options, const std::string& name);  // it, or one of two
// Throws Error, naming the option, where learner.backend or learner.check names one that is not built.
void check_backend(const LearnerOptions& options);
// The same of learner.device and learner.precision, where there is no such device.
void check_device(const LearnerOptions& options);
// And of learner.ranks, where these options do not go with it.
void check_ranks(const LearnerOptions& options);

// The backend that learner.backend names. The pool, which must outlive it, runs the two networks side by side.
std::unique_ptr<Learner> make_learner(const LearnerSetup& setup, RandomStream random, ThreadPool& pool);

// Whether a moving average of the policy is kept: for the proximal term, as the centre of the surrogate, or to act.
bool keeps_average(const LearnerSetup& setup);
bool looks_at_average(const LearnerSetup& setup);  // for the first two, in every update
// The room of a policy that learns from a batch, and of that average.
PolicyRoom learner_room(const LearnerSetup& setup);
PolicyRoom average_room(const LearnerOptions& options);
// What a learner takes of memory, in bytes.
PolicyMemory learner_memory(const LearnerSetup& setup);

// Factor on the learning rates at an update: warm-up from zero, then constant, linear or cosine down to zero.
double rate_factor(const LearnerOptions& options, std::int64_t update);
double entropy_weight(const LearnerOptions& options, std::int64_t update);  // at an update

}  // namespace gipo
