#include "gipo/learner/device_memory.h"

#include <fmt/format.h>

#include "gipo/core/error.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {

double torch_device_bytes(const LearnerSetup& setup) {
  double bytes = torch_policy_memory(setup.model, learner_room(setup)).held;
  if (looks_at_average(setup)) bytes += torch_policy_memory(setup.model, average_room(setup.learner)).held;
  return bytes;
}

void refuse_what_the_device_lacks(const LearnerSetup& setup, const std::string& place,
                                  const std::function<double(const LearnerSetup&)>& bytes, double free, double total) {
  const double needed = bytes(setup);
  if (needed <= free) return;
  LearnerSetup other = setup;
  std::int64_t fits = 0;
  for (std::int64_t step = setup.learner.batch_size; step > 0; step /= 2) {
    other.learner.batch_size = fits + step;
    if (bytes(other) <= free) fits += step;
  }
  throw Error(fmt::format(
      "{}: learner.batch_size = {} with these networks takes {:.1f} GB of the device's memory, and {:.1f} of {:.1f} GB "
      "are free: {}",
      place, setup.learner.batch_size, needed / 1e9, free / 1e9, total / 1e9,
      fits > 0 ? fmt::format("a batch of {} fits", fits) : "no batch fits: lower policy.hidden"));
}

}  // namespace gipo
