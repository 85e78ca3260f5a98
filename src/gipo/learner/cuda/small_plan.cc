#include <algorithm>

#include "gipo/learner/cuda/memory.h"
#include "gipo/learner/cuda/small_update.h"
#include "gipo/policy/mlp_policy.h"

namespace gipo::cuda {
namespace {

constexpr int kMostRows = 2048;  // every block looks at the whole batch
constexpr std::size_t kMostShared = 227 << 10;

constexpr int kFewChoices = 8;
constexpr int kArraysOfRows = 9, kArraysOfSteps = 6;  // as small_update.cu has them

int pieces_of(int size, int piece) { return (size + piece - 1) / piece; }

}  // namespace

std::optional<SmallPlan> small_plan(const LearnerSetup& setup) {
  const MlpShapes shapes = mlp_shapes(setup.model);
  const auto n = static_cast<int>(setup.learner.batch_size);
  if (shapes.shared > 0 || n > kMostRows || !can_be_small(shapes.policy) || !can_be_small(shapes.critic)) return {};
  int card = 0, at_once = 0;
  check(cudaGetDevice(&card), "the card");
  check(cudaDeviceGetAttribute(&at_once, cudaDevAttrMultiProcessorCount, card), "the card");
  at_once = std::min(at_once, kSmallThreads);  // a thread for each block's sums
  SmallPlan plan{};
  plan.short_rows = std::ranges::all_of(setup.model.distribution.choices, [](auto n) { return n <= kFewChoices; });
  for (int rows = 16; rows <= 128; rows *= 2) {
    plan.policy = small_network(shapes.policy, rows);
    plan.critic = small_network(shapes.critic, rows);
    plan.rows_per_block = rows;
    plan.policy_blocks = plan.learning_critic_blocks = pieces_of(n, rows);
    plan.critic_blocks = pieces_of(rows_of(setup), rows);
    plan.observation_size = static_cast<int>(setup.model.observation_size);
    const auto extras = static_cast<int>(setup.model.distribution.extra_parameters());
    const int outputs = looks_at_average(setup) ? small_stride(static_cast<int>(shapes.policy.output)) : 0;
    plan.steps = static_cast<int>(small_update_common_bytes() / sizeof(float));
    const auto dims = static_cast<int>(setup.model.distribution.dims());
    plan.rows = plan.steps + pieces_of(std::max(kArraysOfSteps * n, rows * extras), 4) * 4;
    plan.heads = plan.rows + kArraysOfRows * rows * dims;
    plan.average_outputs = plan.heads + 4 * dims;  // a Head is four numbers
    plan.network = plan.average_outputs + rows * outputs;
    plan.shared =
        sizeof(float) * static_cast<std::size_t>(plan.network + std::max(plan.policy.floats, plan.critic.floats));
    if (plan.shared > kMostShared) return {};
    if (plan.policy_blocks + plan.critic_blocks <= at_once) return plan;
  }
  return {};
}

}  // namespace gipo::cuda
