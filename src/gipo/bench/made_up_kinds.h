// Learners for tests: every kind of actions and distributions.
#pragma once

#include <string>
#include <vector>

#include "gipo/bench/made_up.h"

namespace gipo {

inline constexpr std::size_t kTestRows = 128;

struct ActionKind {
  std::string name;
  ActionSpace action;
  DistributionChoice distribution = DistributionChoice::kAuto;
  bool masked = false;
};

inline std::vector<ActionKind> action_kinds() {
  const ActionSpace box = ActionSpace::box({-1, -2, 0}, {1, 2, 3});
  // A choice of three, a bounded number, a choice of four.
  const ActionSpace composed{ActionSpace::Kind::kComposed, {3, 0, 4}, {0, -2, 0}, {0, 2, 0}};
  return {{"categorical", ActionSpace::discrete(5)},
          {"multi_categorical", {ActionSpace::Kind::kMultiDiscrete, {3, 40, 2}, {}, {}}},
          {"gaussian", box},
          {"binned", box, DistributionChoice::kBinned},
          {"composed", composed},
          {"composed, binned", composed, DistributionChoice::kBinned},
          {"masked categorical", ActionSpace::discrete(5), DistributionChoice::kAuto, true},
          {"masked composed", composed, DistributionChoice::kAuto, true}};
}
inline ActionKind action_kind(const std::string& name) {
  for (const ActionKind& kind : action_kinds()) {
    if (kind.name == name) return kind;
  }
  return {};
}

inline LearnerSetup setup_for(const ActionKind& kind, PolicyOptions policy = {.hidden = {32, 32}},
                              std::size_t rows = kTestRows) {
  policy.distribution = kind.distribution;
  LearnerSetup setup = made_up_setup(7, kind.action, policy, rows);
  if (kind.masked) add_mask(setup.model);
  return setup;
}

}  // namespace gipo
