#include "gipo/data/batch.h"

namespace gipo {
namespace {

// Stretches of one step each at the worst. All but the first begin with their segment.
RowCounts rows_of_batch(std::size_t steps, const TransitionSpec& spec) {
  const std::size_t contexts = spec.state_size > 0 ? steps * spec.burn_in + spec.longest : 0;
  return {steps, 2 * steps + contexts, steps};
}

}  // namespace

Batch::Batch(std::size_t steps, const TransitionSpec& spec)
    : Transitions(spec, rows_of_batch(steps, spec), Frames::kAll), size(steps), env_step(steps) {
  stretches.reserve(steps);
}

double Batch::bytes_needed(std::size_t steps, const TransitionSpec& spec) {
  return Table::bytes_needed(columns(spec, Frames::kAll), rows_of_batch(steps, spec)) +
         static_cast<double>(steps) * (sizeof(double) + sizeof(Stretch));
}

}  // namespace gipo
