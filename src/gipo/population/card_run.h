// One run as a card sees it: plain numbers, and where its arrays lie. Compiles for host and device.
//
// One run is one block of threads. What an update reads again and again lies in the block's shared memory (Workspace); what
// outlives a launch lies in the card's memory (RunMemory):
//
//   shared   weights of policy, critic and average, the gradient of one network; a chunk of samples and what each layer
//            makes of it; numbers of each sample of the batch; the environments
//   memory   the replay: a ring of rows and a ring of segments; open segments; moments of AdamW; what is to be logged
//
// A batch goes through the networks in chunks of 32 or 64 samples. The values and log-probs of all samples come first, since
// advantages need whole stretches; then each chunk goes forward again and back. Layers before are thus computed twice, but
// no activations of a whole batch are kept: several runs fit one multiprocessor, and hide each other's waiting.
//
// A task that cannot step on a card is hosted: the run acts, and ends its launch; the host steps the environments and tells
// what came of it; the next launch takes that in, updates and acts again. Observations of such tasks are wide: what does not
// fit a block's share of shared memory stays in the card's memory (Shared).
//
// A layer's matrix lies as [inputs + 1, outputs]: its last row is the bias, and every row of samples ends with a one.
// Threads take tiles of 4 samples x 4 outputs: 64 products for 8 reads of 16 bytes. Strides are odd multiples of 16 bytes,
// so that neighbouring rows lie in different banks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gipo/core/device.h"
#include "gipo/kernels/dense.h"
#include "gipo/learner/schedule.h"
#include "gipo/objective/surrogate_choice.h"
#include "gipo/population/stream.h"

namespace gipo::population {

enum class Task { kCartPole, kAcrobot, kPendulum, kMountainCar, kMountainCarContinuous, kHosted };
enum class Advantages { kVtrace, kGae, kStored };

inline constexpr int kMostLayers = 6, kMostState = 4, kMostOutputs = 64;
inline constexpr int kMostThreads = 256;  // of a block
inline constexpr int kGapPoolUpdates = 32;

GIPO_HD constexpr int fours(int n) { return (n + 3) / 4 * 4; }
// At least n floats, as an odd number of fours.
GIPO_HD constexpr int odd_fours(int n) { return fours(n) / 4 % 2 == 1 ? fours(n) : fours(n) + 4; }

struct Layer {
  int in = 0, out = 0;
  int rows = 0;       // fours(in + 1): of the matrix
  int stride = 0;     // odd_fours(out): of the matrix
  int in_stride = 0;  // odd_fours(in + 1): of the samples that it reads
  int offset = 0;     // of the matrix among the parameters
};

struct Net {
  Layer layers[kMostLayers];
  int count = 0;
  int extra = 0;       // log standard deviations, behind the matrices
  int extra_at = 0;    // where they are
  int parameters = 0;  // floats in all, padding included
};

// Which arrays of a run lie in shared memory, beside those that always do.
struct Shared {
  bool critic = true, policy = true, outputs = true, average = true, gradient = true;
};

// Fixed for a run.
struct RunSpec {
  Task task = Task::kCartPole;
  int observation = 0, envs = 0, time_limit = 0, most_faults = 0;
  int choices = 0;                             // of the distribution; 0: Gaussians
  int dims = 1;                                // of an action
  int bins = 0;                                // choices that are bins of a range
  double low = 0, high = 0, reward_scale = 1;  // the bounds: of a task that steps on the card
  double noise_correlation = 0;                // of Gaussians, from step to step
  bool normalise_observations = false, normalise_rewards = false;

  Net policy, critic;
  Activation activation = Activation::kTanh;
  bool keeps_average = false, looks_at_average = false, publishes_average = false;

  SurrogateChoice surrogate;
  bool centred = false;
  double importance_max = 1;
  Advantages advantages = Advantages::kVtrace;
  double gamma = 0, lambda = 0, rho_bar = 0, c_bar = 0;
  bool normalise_advantages = false;

  int batch = 0, chunk = 0, segment_length = 0;
  bool single_steps = false;  // sampled one by one
  int rollout_updates = 0;    // above 0: the replay is a rollout, from which so many updates learn in shuffled passes
  std::int64_t updates = 0, warmup = 0, log_every = 1, policy_every = 1, warmup_updates = 0, max_bad_updates = 1;
  double env_steps_per_update = 0;
  double policy_lr = 0, value_lr = 0, weight_decay = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  Schedule schedule = Schedule::kConstant, entropy_schedule = Schedule::kConstant;
  double value_coef = 0, entropy_coef = 0, kl_coef = 0, proximal_coef = 0, proximal_updates = 0, max_grad_norm = 0;

  int capacity = 0;       // transitions
  int rows = 0;           // of the ring: transitions and final observations
  int most_segments = 0;  // of the ring of segments
  int gap_pool = 0;       // gaps of recent updates that are kept
  int gap_stride = 1;     // every how manieth sample of a batch is
  int most_episodes = 0;  // that one launch can report
  int most_logs = 0;      // updates that one launch can log
  Shared shared;
};

struct Moments {
  double count = 0, mean = 0, square = 0;
};

// What a step of an environment came to.
struct Stepped {
  double reward = 0;
  int terminated = 0, truncated = 0;
  int fault = 0;       // not 0: it means nothing, and a new episode has begun
  int bad_starts = 0;  // episodes that were given up before their first step
};

// One environment and its open segment.
struct Slot {
  double state[kMostState] = {};
  Stream env, action;
  double episode_return = 0, discounted = 0, first_env_step = 0;
  std::int64_t episode = 0;           // its number
  int steps = 0;                      // of the episode
  int length = 0;                     // of the open segment
  int terminated = 0, truncated = 0;  // the open segment has ended so
  int faults = 0, unused = 0;         // in a row, without a whole segment between them
};

// One segment in the replay.
struct Held {
  int row = 0;     // of its first step
  int length = 0;  // negative: its last step ended the task
};

struct Episode {
  double episode_return = 0;
  std::int64_t number = 0, env_steps = 0, version = 0;
  int env = 0, length = 0, terminated = 0, unused = 0;
};

// Figures of one update, as UpdateStats has them.
struct LoggedUpdate {
  std::int64_t update = 0, env_steps = 0, replay_size = 0, skipped_updates = 0, rejected = 0;
  double policy_loss = 0, value_loss = 0, entropy = 0, proximal_kl = 0, explained_variance = 0;
  double importance_mean = 1, importance_cut_frac = 0;
  double policy_grad_norm = 0, value_grad_norm = 0, policy_lr = 0, value_lr = 0;
  double advantage_mean = 0, advantage_std = 0, advantage_abs_max = 0, value_mean = 0, reward_factor = 1;
  std::int64_t pooled = 0;    // gaps in the pool
  std::int64_t episodes = 0;  // reported by this launch before it
};

// What a run is, between two launches.
struct RunState {
  std::int64_t version = 0, env_steps = 0, skipped = 0, skipped_in_a_row = 0;
  std::int64_t policy_steps = 0, critic_steps = 0, evicted = 0, rejected = 0;
  std::int64_t until = 0;     // updates that this launch is to reach
  std::int64_t ordered = -1;  // env steps when the pass was begun
  Stream replay;
  int first_segment = 0, segments = 0;  // of the ring
  int next_row = 0, rows_used = 0;      // of the ring
  int size = 0;                         // transitions held
  int gap_count = 0, gap_at = 0;        // of the pool
  int order_size = 0, order_at = 0;     // of a pass over a rollout, and what of it was sampled
  int episodes = 0, logs = 0;           // reported by this launch
  int begun = 0;                        // its environments have
  int not_finite = 0;                   // an environment or a policy gave what no learner may see
  int acting = 0;                       // actions are chosen, and what comes of them is not taken in
  double observed = 0;                  // observations that the moments are of
  Moments returns;
  Moments published_returns;  // as they were at the last update
  float limit = 0;            // of normalised observations
  float reward_factor = 1, reward_limit = 0;
  LoggedUpdate last;  // the last update's figures
};

// Where a run's arrays lie in the card's memory.
struct RunMemory {
  RunState* state;
  Slot* slots;                              // [envs]
  double *observed_mean, *observed_square;  // [D] moments of observations
  float *mean, *inverse_std;                // [D] what networks see of them
  // Parameters as Layer has them.
  float *policy, *critic, *average;                                    // [parameters]
  float *policy_first, *policy_second, *critic_first, *critic_second;  // moments of AdamW
  float* critic_gradient;                                              // [parameters] until the policy's is known too
  // The replay. D: observation, A: dims.
  Held* segments;                      // [most_segments]
  float* observation;                  // [rows, D]
  float* action;                       // [rows, A]
  float *log_prob, *reward;            // [rows]
  float *advantage, *target;           // [rows] stored advantages alone
  std::int32_t *collected, *env_step;  // [rows] the version that chose the action; steps of the run before it
  std::int32_t* gaps;                  // [gap_pool]
  std::int32_t *order, *drawn;         // [capacity] rows of a pass over a rollout; what shuffles them
  // Open segments. L: segment_length.
  float* open_observation;                               // [envs, L + 1, D]
  float* open_action;                                    // [envs, L, A]
  float *open_log_prob, *open_reward, *open_discounted;  // [envs, L]
  std::int32_t* open_version;                            // [envs, L]
  float* noise;                                          // [envs, A] of the last action, where it lasts
  Stepped* stepped;                                      // [envs] the last step; of a hosted task what the host told
  // A hosted task: what is asked of the host, and what it tells.
  std::int32_t* acting;  // [1] whether the environments are to step
  float* chosen;         // [envs, A]
  float* seen;           // [envs, D] what the steps led to
  float* first;          // [envs, D] what new episodes begin with
  // What has no room in shared memory (Shared).
  float *spare_action, *spare_outputs, *spare_average_outputs, *spare_gradient;
  // What is reported.
  Episode* episodes;       // [most_episodes]
  LoggedUpdate* logs;      // [most_logs]
  float* log_samples;      // [most_logs, 4, batch] log ratio, advantage, multiplier, trust
  std::int32_t* log_ages;  // [most_logs, 2 * batch + gap_pool] gap, env step; the pool of gaps
};

// Where they lie in shared memory. N: batch, C: chunk.
struct Workspace {
  RunState* state;
  Slot* slots;
  float *mean, *inverse_std;               // [D]
  float *policy, *critic, *average;        // [parameters]
  float* gradient;                         // [parameters] of one network
  float* samples[kMostLayers + 1];         // [C, in_stride] what each layer reads; the last: outputs, then derivatives
  float* parts;                            // [kMostThreads * 16] of gradients
  int* rows;                               // [N] of the ring; the last of a stretch knows what follows it
  int *stretch_begin, *stretch_length;     // [N] a length below zero: the task ended there
  float* action;                           // [N, A]
  float *reward, *value, *after;           // [N] after: values of what follows each stretch
  float *joint, *trust, *importance;       // [N]
  float *advantage, *target, *multiplier;  // [N]
  float *outputs, *average_outputs;        // [N, outputs]
  float* deviation;                        // [C, extra] derivatives by the log deviations
  double* deviation_sums;                  // [extra]
  int* counts;                             // [4] numbers that one thread works out for all
};

}  // namespace gipo::population
