#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gipo/learner/options.h"
#include "gipo/learner/ranks.h"

namespace gipo::cli {

// Where this process is among the ranks of a run, from the environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), as
// torchrun and launch_ranks set it. None where it is on its own. Throws Error, naming the variable.
std::optional<RankPlace> rank_place();
// Throws Error where a run is to have another number of ranks than there are.
void refuse_other_ranks(const RankPlace& place, std::int64_t ranks, const std::string& where);

// A rank other than the first, to the end of the run. Returns the exit code.
int serve(const RankPlace& place);

// Starts the ranks of a run on this machine, each as this very program with the same words, and waits for them. Where one
// is lost, all are started again, with the words that `again` makes of them, as long as the run gets on.
using Words = std::vector<std::string>;
int launch_ranks(const LearnerOptions& options, const std::string& run_dir, const std::function<Words(Words)>& again);

}  // namespace gipo::cli
