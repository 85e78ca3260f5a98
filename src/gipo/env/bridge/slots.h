#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gipo {

// What a worker is asked to do with one environment, and what it answers; python/gipo/worker.py has the same numbers.
enum class Command : std::uint8_t {
  kNone,
  kStep,            // the owner resets where the episode ends
  kStepAndRestart,  // where the step ends the episode, the next one begins
  kStepAndLeave,    // the next one begins whatever the step brought: the program's own time limit
  kReset,
  kSeededReset
};
inline constexpr std::uint8_t kTerminatedBit = 1, kTruncatedBit = 2, kStartedBit = 4;

// The memory that the program and one worker share: one row of each array per environment. The worker writes while it
// works, the program while it does not; the bytes that pass between them order the two.
struct Slots {
  Slots(std::size_t count, std::size_t observation_size, std::size_t action_dims)
      : count(count), observation_size(observation_size), action_dims(action_dims) {
    std::size_t end = 0;
    const auto place = [&](std::size_t& at, std::size_t size) {
      at = end;
      end += (size + 63) / 64 * 64;
    };
    place(command_at, count);
    place(flags_at, count);
    place(success_at, count);
    place(seed_at, count * sizeof(std::int64_t));
    place(action_at, count * action_dims * sizeof(double));
    place(reward_at, count * sizeof(double));
    place(observation_at, count * observation_size * sizeof(float));
    place(start_at, count * observation_size * sizeof(float));
    bytes = end;
  }

  Command* command() const { return at<Command>(command_at); }          // [count]
  std::uint8_t* flags() const { return at<std::uint8_t>(flags_at); }    // [count]
  std::int8_t* success() const { return at<std::int8_t>(success_at); }  // [count] -1: not said
  std::int64_t* seed() const { return at<std::int64_t>(seed_at); }      // [count]
  double* reward() const { return at<double>(reward_at); }              // [count]
  std::span<double> action(std::size_t i) const { return {at<double>(action_at) + i * action_dims, action_dims}; }
  // Of the last step; the true final one where it ended the episode.
  std::span<const float> observation(std::size_t i) const { return row(observation_at, i); }
  // Of the last reset.
  std::span<const float> start(std::size_t i) const { return row(start_at, i); }

  std::size_t count, observation_size, action_dims;
  std::size_t bytes = 0, command_at = 0, flags_at = 0, success_at = 0, seed_at = 0, action_at = 0, reward_at = 0,
              observation_at = 0, start_at = 0;
  std::byte* memory = nullptr;

 private:
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(memory + offset);
  }
  std::span<const float> row(std::size_t offset, std::size_t i) const {
    return {at<float>(offset) + i * observation_size, observation_size};
  }
};

}  // namespace gipo
