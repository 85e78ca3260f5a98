#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gipo/core/error.h"

// The library for programs in C++: train, resume, read what a run came to, and act with a trained policy. This header
// and core/error.h are what `cmake --install` installs; nothing else of the library is public. docs/cpp.md has a tour.
//
// Mistakes in what was asked for throw gipo::Error, a run that cannot go on gipo::RunError.
namespace gipo {

// Where a run stands while it trains.
struct TrainingStatus {
  std::int64_t update = 0, updates = 0;             // done, of how many
  std::int64_t env_steps = 0, total_env_steps = 0;  // done, of how many
  std::int64_t episodes = 0;
  double recent_return = 0;  // mean of the last 100 episodes; NaN before the first has ended
  double seconds = 0;
};

// What a run calls while it trains, from the thread that called train or resume. Each may be left empty.
struct TrainingHooks {
  std::function<void(const TrainingStatus&)> progress;  // after every logged update
  std::function<void(const std::string&)> warn;         // something went wrong that training survives
  const std::atomic<bool>* stop = nullptr;              // once true, the run ends soon, with a checkpoint
};

// What a run came to: the main figures of its summary.json.
struct TrainingResult {
  std::string run_dir;
  std::string ended;  // "finished", "solved" or "interrupted"; of a run that threw, "failed: why"
  std::int64_t updates = 0, env_steps = 0, episodes = 0;
  double seconds = 0;
  double final_return = 0;  // mean of the last 100 training episodes; NaN where none ended
  double eval_return = 0;   // mean of the greedy evaluation at the end; NaN where there was none
};

// Trains a new run to its end. config: a TOML file, or empty for the defaults. settings: "learner.updates=2000" and the
// like, over the file; docs/options.md lists them. The run folder must not exist, unless overwrite removes it first.
[[gnu::visibility("default")]] TrainingResult train(const std::string& config,
                                                    const std::vector<std::string>& settings = {},
                                                    const TrainingHooks& hooks = {}, bool overwrite = false);

// Continues a run from its newest checkpoint, to its end or to another number of updates.
[[gnu::visibility("default")]] TrainingResult resume(const std::string& run_dir,
                                                     std::optional<std::int64_t> updates = {},
                                                     const TrainingHooks& hooks = {});

// Reads what a run that has ended came to.
[[gnu::visibility("default")]] TrainingResult read_result(const std::string& run_dir);

// A trained policy, from a run folder or a policy.safetensors. One object serves one thread at a time.
class [[gnu::visibility("default")]] TrainedPolicy {
 public:
  explicit TrainedPolicy(const std::string& run_or_file);
  ~TrainedPolicy();
  TrainedPolicy(TrainedPolicy &&) noexcept;
  TrainedPolicy& operator=(TrainedPolicy&&) noexcept;

  std::string env_id() const;
  std::int64_t version() const;          // optimizer updates behind it
  std::size_t observation_size() const;  // numbers of an observation, flattened
  std::size_t action_size() const;       // numbers of an action
  std::size_t mask_size() const;         // numbers of a mask of valid choices; 0 where it was trained without one

  // The most likely action [action_size] for an observation [observation_size]: choices count from 0, numbers are in the
  // task's range. mask [mask_size]: zero where a choice is not valid.
  std::vector<double> act(std::span<const float> observation, std::span<const std::uint8_t> mask = {});
  // One drawn from the policy's distribution, with the policy's own random stream, which `seed` starts anew.
  std::vector<double> sample(std::span<const float> observation, std::span<const std::uint8_t> mask = {});
  void seed(std::uint64_t seed);
  // A policy with memory remembers the observations that act and sample were given since this was called; a new one has
  // seen none. value does not change what it remembers.
  void begin_episode();
  // What the critic expects from here on, in units of the scaled reward.
  double value(std::span<const float> observation);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace gipo
