#include "gipo/data/batch.h"

namespace gipo {
namespace {

// Stretches of one step each at the worst.
RowCounts rows_of_batch(std::size_t steps) { return {steps, 2 * steps, steps}; }

}  // namespace

Batch::Batch(std::size_t steps, const TransitionSpec& spec)
    : Transitions(spec, rows_of_batch(steps)), size(steps), env_step(steps) {
  stretches.reserve(steps);
}

double Batch::bytes_needed(std::size_t steps, const TransitionSpec& spec) {
  return Table::bytes_needed(columns(spec), rows_of_batch(steps)) +
         static_cast<double>(steps) * (sizeof(double) + sizeof(Stretch));
}

}  // namespace gipo
