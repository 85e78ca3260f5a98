// In place of torch/, where the program is built without libtorch.
#include "gipo/core/error.h"
#include "gipo/learner/rank_memory.h"
#include "gipo/learner/ranks.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {

std::shared_ptr<RankGroup> join_ranks(const RankPlace&) { throw Error(kAddTorch); }
std::unique_ptr<RankHost> host_ranks() { throw Error(kAddTorch); }
std::unique_ptr<RankMemory> make_device_memory(const std::string&, bool) { throw Error(kAddTorch); }

}  // namespace gipo
