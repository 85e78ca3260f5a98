#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gipo/data/transition.h"

namespace gipo {

// A run of adjacent steps of one segment inside a batch.
struct Stretch {
  std::size_t begin = 0, length = 0;  // steps [begin, begin + length) of the batch
  bool terminated = false;            // its last step ended the task: do not bootstrap
  std::size_t offset = 0;             // of its first step in the segment
  // Observations [context_begin, context_begin + context) are those between the state that the segment keeps and its
  // first step: of a recurrent policy alone.
  std::size_t context_begin = 0, context = 0;
};

// What one update learns from: structure of arrays, made once. Row i of every array is the same step.
//   observation [N + stretches + contexts]: the steps', then the one after the end of each stretch, then what stands
//   before stretches; action [N, dims]; log_prob [N, dims] of the behaviour policy; reward [N]; advantage, target [N] as stored at collection; version [N] of the
//   behaviour policy; state [stretches] at the start of the segment that each stretch is of
struct Batch : Transitions {
  Batch(std::size_t steps, const TransitionSpec& spec);
  static double bytes_needed(std::size_t steps, const TransitionSpec& spec);

  std::size_t size;                // N, steps
  std::vector<double> env_step;    // [N] environment steps of the run when the step was taken
  std::vector<Stretch> stretches;  // tile [0, N); single steps have none when advantages are stored
  std::size_t rows() const { return size + stretches.size(); }
};

}  // namespace gipo
