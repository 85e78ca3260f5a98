#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gipo/clone/options.h"
#include "gipo/data/batch.h"
#include "gipo/io/safetensors.h"
#include "gipo/policy/model.h"
#include "gipo/stats/moments.h"

namespace gipo {

// What demonstrations are learned from for.
struct DemonstrationUse {
  ModelSpec model;
  TransitionSpec transition;  // of the batches
  CloneOptions options;
  double discount = 1, reward_scale = 1;
  std::uint64_t seed = 0;  // of the run
};

// Episodes that somebody played, from a file of tensors that stays on disk (docs/cloning.md describes it). A task whose
// action is several actions of the file, a chunk, learns from each step with the actions that followed it; after the end
// of an episode its last one is repeated. Constant once it is made: any thread may call it.
class Demonstrations {
 public:
  // Throws Error, beginning with the path: what is missing, of another shape, or no observation or action of the task.
  Demonstrations(const std::string& path, const DemonstrationUse& use);

  std::size_t steps() const { return steps_; }
  std::size_t episodes() const { return ends_.size(); }
  std::size_t chunk() const { return chunk_; }
  // Steps that are learned from, and those of the episodes that are held out.
  std::span<const std::size_t> learned() const { return learned_; }
  std::span<const std::size_t> held_out() const { return held_out_; }
  std::size_t episodes_held_out() const { return held_out_episodes_; }
  std::uint32_t fingerprint() const { return fingerprint_; }  // of all tensors

  // Steps for an update, each of those that are learned from equally likely at every place.
  void sample(std::int64_t update, Batch& batch) const;
  // The first rows of a batch: observations, actions in the policy's units, the discounted returns that followed as
  // targets, advantages of one.
  void fill(std::span<const std::size_t> steps, std::int64_t version, Batch& batch) const;
  // Of the observations that are learned from, as networks read them.
  RunningMoments moments() const;

 private:
  // A tensor with a row for each step, as the batch wants it.
  struct Rows {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;            // of a row
    std::vector<std::byte> own = {};  // where the file has another type
  };

  [[noreturn]] void refuse(const std::string& why) const;
  const SafeTensors::Entry& find(const std::string& name) const;
  void read_episodes();
  void read_actions();
  void read_rewards();
  void read_fields();
  Rows read_field(const Field& field, const std::string& name) const;
  void hold_out();
  std::size_t last_step(std::size_t step) const { return ends_[episode_[step]] - 1; }
  std::size_t first_step(std::size_t step) const { return episode_[step] == 0 ? 0 : ends_[episode_[step] - 1]; }

  DemonstrationUse use_;
  std::unique_ptr<MappedTensors> file_;
  std::size_t steps_ = 0, action_size_ = 0, chunk_ = 1, held_out_episodes_ = 0;
  std::vector<std::size_t> ends_;     // [episodes] the step after the last
  std::vector<std::size_t> episode_;  // [steps]
  std::vector<float> action_;         // [steps, chunk places of dims] in the policy's units, for each place in a chunk
  std::vector<float> target_;         // [steps]
  std::vector<Rows> fields_;
  std::vector<std::size_t> learned_, held_out_;
  std::uint32_t fingerprint_ = 0;
};

}  // namespace gipo
