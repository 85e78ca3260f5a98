// Whether a checkpoint that is whole by its checksums can also be resumed from: it is loaded as `gipo resume` loads it.
#include <fmt/format.h>

#include <filesystem>

#include "gipo/core/error.h"
#include "gipo/doctor/examination.h"
#include "gipo/io/temporary_folder.h"
#include "gipo/train/trainer.h"

namespace gipo {
namespace {

// A trainer in a folder of its own: the run's is only read.
class Scratch {
 public:
  explicit Scratch(Plan plan) : plan_(std::move(plan)) {
    plan_.run_dir = folder_ / "run";
    plan_.config.log.tensorboard = false;
    run_folder_.emplace(plan_, "gipo doctor", [] { return 0.0; });
    TrainerHooks hooks;
    hooks.seconds = [] { return 0.0; };
    trainer_.emplace(plan_, *run_folder_, hooks);
  }
  Trainer& trainer() { return *trainer_; }

 private:
  const TemporaryFolder folder_;
  Plan plan_;
  std::optional<RunFolder> run_folder_;
  std::optional<Trainer> trainer_;
};

}  // namespace

// The task may not be there, the memory or the disk may not suffice: nothing of that is wrong with the checkpoint.
bool Examination::loads(const State& state, const nlohmann::json& fields, const Checkpoint& checkpoint) {
  if (busy_) return true;  // the process at work may need the memory
  const std::string name = checkpoint_name(state.update);
  std::optional<Scratch> scratch;
  bool reading = false;  // what is in the checkpoint
  try {
    const std::pair made_from(state.config, state.dial_updates);
    if (!loading_plan_ || loading_config_ != made_from) {
      loading_plan_ = plan_with_dial_of(parse_config(state.config, "its config"), state.dial_updates);
      loading_config_ = made_from;
    }
    Plan plan = *loading_plan_;
    reading = true;
    take_dial(fields, plan);
    reading = false;
    scratch.emplace(std::move(plan));
    reading = true;
    scratch->trainer().restore(checkpoint);
  } catch (const std::exception& e) {
    if (!reading || dynamic_cast<const RunError*>(&e) || dynamic_cast<const std::bad_alloc*>(&e)) {
      say(Health::kNote, fmt::format("{}: not loaded: {}", name, e.what()));
      return true;
    }
    damaged_.insert(state.update);
    refused_by_resume_.insert(state.update);
    say(Health::kDamaged, fmt::format("{}: no resume from there: {}", name, e.what()));
    return false;
  }
  return true;
}

}  // namespace gipo
