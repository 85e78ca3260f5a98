#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gipo/clone/demonstrations.h"
#include "gipo/policy/policy.h"

namespace gipo {

// How near a policy is to some steps of demonstrations: means over these.
struct Likelihood {
  double log_likelihood = 0;  // of a whole action
  // Of the choices among its parts: how many the most likely action has right; and the share of steps where all are.
  double accuracy = 0, exact = 0;
  double error = 0;  // of its numbers: how far the most likely one is off, where a bounded range is -1 to 1
};

// Measures weights on the same steps each time. One thread calls it.
class LikelihoodMeter {
 public:
  // room: device and precision.
  LikelihoodMeter(const Demonstrations& demonstrations, const DemonstrationUse& use, const PolicyRoom& room);
  ~LikelihoodMeter();

  // Under the names of metrics.jsonl, of what is learned from and of what is held out.
  void append_to(std::vector<std::pair<std::string, double>>& figures, const Weights& weights);

 private:
  Likelihood measure(std::span<const std::size_t> steps, const Weights& weights);

  const Demonstrations& demonstrations_;
  ModelSpec model_;
  std::size_t parts_of_choice_ = 0;
  std::vector<std::size_t> learned_, held_out_;
  Batch batch_;
  std::unique_ptr<Policy<float>> policy_;
};

}  // namespace gipo
