#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "gipo/learner/ranks.h"
#include "gipo/plan/automatic.h"
#include "gipo/plan/plan.h"
#include "gipo/run/checkpoint.h"
#include "gipo/run/run_folder.h"

namespace gipo {
class Demonstrations;
class RemoteActors;
}  // namespace gipo

namespace gipo::cli {

// From here on SIGINT and SIGTERM end the run that is to come, with a checkpoint. Before anything of it is created.
void listen_for_signals();

// What a run begins with: a checkpoint of its own, the weights of another, or nothing; what it learns from, where that is
// not collected; and the ranks that it has.
struct Beginning {
  const Checkpoint* checkpoint = nullptr;
  std::shared_ptr<const Weights> weights = {};
  const Demonstrations* demonstrations = nullptr;
  std::shared_ptr<RankGroup> ranks = {};
};

// Trains to the end or to a signal, shows progress, prints the result. Returns the exit code.
// remote: the actors, where they are other programs.
int run_session(const Plan& plan, RunFolder& folder, const Beginning& beginning, bool json, bool quiet,
                RemoteActors* remote = nullptr);

// Set by a signal since listen_for_signals.
const std::atomic<bool>& stop_flag();

// The config that the arguments of `train` or `learn` say.
struct TrainArguments;
ChosenConfig load_training(const TrainArguments& arguments, const std::optional<RankPlace>& place = {});
// Says what was chosen for a task without a config, and writes it to the log of its run.
void tell(const std::vector<std::string>& chosen, RunFolder& folder, bool quiet);

// The demonstrations of a run that has begun, or that is to begin: in its folder, where `gipo clone` has made them of
// another format, else where clone.data says.
std::string demonstrations_of(const Plan& plan);

// Seconds for the whole run, from a few updates on made-up data of the run's own shapes.
double estimate_seconds(const Plan& plan);

}  // namespace gipo::cli
