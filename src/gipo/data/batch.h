#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gipo {

// A run of adjacent steps of one segment inside a batch.
struct Stretch {
  std::size_t begin = 0, length = 0;  // steps [begin, begin + length) of the batch
  bool terminated = false;            // its last step ended the task: do not bootstrap
};

// What one update learns from: structure of arrays, made once. Row i of every array is the same step.
struct Batch {
  Batch(std::size_t steps, std::size_t observation_size, std::size_t action_dims);
  static double bytes_needed(std::size_t steps, std::size_t observation_size, std::size_t action_dims);

  std::size_t size;  // N, steps
  std::size_t observation_size, action_dims;
  // [N + stretches, observation_size]: the steps' observations, then the one after the end of each stretch.
  std::vector<float> observation;
  std::vector<float> action;          // [N, action_dims]
  std::vector<float> log_prob;        // [N, action_dims] of the behaviour policy
  std::vector<float> reward;          // [N]
  std::vector<float> advantage;       // [N] as stored at collection
  std::vector<float> target;          // [N] as stored at collection
  std::vector<std::int64_t> version;  // [N] of the behaviour policy
  std::vector<double> env_step;       // [N] environment steps of the run when the step was taken
  std::vector<Stretch> stretches;     // tile [0, N); single steps have none when advantages are stored
  std::size_t rows() const { return size + stretches.size(); }
};

}  // namespace gipo
