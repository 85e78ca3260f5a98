#include "gipo/env/classic/classic_env.h"

namespace gipo::recall {
namespace {

constexpr double kCorridor = 10;  // steps between the sign and the fork

EnvSpec recall_spec() {
  return {.id = "Recall-v0",
          .summary = "a sign at the start of a corridor of 10 steps says where to turn at its end: needs memory",
          .observation_size = 2,
          .action = ActionSpace::discrete(2),
          .time_limit = 20};
}

// State: steps from the start, and the side that is right: 0 or 1. Any action goes on along the corridor; the one at the
// fork turns to its side, and ends the episode with a reward of 1 where that is the right one.
class Recall final : public ClassicEnv<2> {
 public:
  Recall() : ClassicEnv(recall_spec()) {}

  // The sign, -1 or 1, where it can be seen; whether this is the fork.
  void observe(std::span<double> observation) const override {
    const auto [at, side] = state_;
    observation[0] = at == 0 ? 2 * side - 1 : 0;
    observation[1] = at > kCorridor ? 1 : 0;
  }

 private:
  void start_episode(RandomStream& random) override { state_ = {0, static_cast<double>(random.below(2))}; }

  Outcome advance(std::span<const double> action) override {
    auto& [at, side] = state_;
    const bool fork = at > kCorridor;
    at += 1;
    return {fork && action[0] == side ? 1.0 : 0.0, fork};
  }
};

const RegisterEnv kRegistered{recall_spec(), [] { return std::make_unique<Recall>(); }};

}  // namespace
}  // namespace gipo::recall
