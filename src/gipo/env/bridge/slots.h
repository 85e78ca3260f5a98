#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gipo/data/spec.h"

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
  Slots(std::size_t count, const Fields& fields, std::size_t action_dims) : count(count), action_dims(action_dims) {
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
    for (const Field& f : fields) {
      row_bytes.push_back(f.bytes());
      place(observation_at.emplace_back(), count * f.bytes());
      place(start_at.emplace_back(), count * f.bytes());
    }
    bytes = end;
  }

  Command* command() const { return at<Command>(command_at); }          // [count]
  std::uint8_t* flags() const { return at<std::uint8_t>(flags_at); }    // [count]
  std::int8_t* success() const { return at<std::int8_t>(success_at); }  // [count] -1: not said
  std::int64_t* seed() const { return at<std::int64_t>(seed_at); }      // [count]
  double* reward() const { return at<double>(reward_at); }              // [count]
  std::span<double> action(std::size_t i) const { return {at<double>(action_at) + i * action_dims, action_dims}; }
  // A field of the last step's; the true final one where it ended the episode.
  const std::byte* observation(std::size_t field, std::size_t i) const { return row(observation_at, field, i); }
  // Of the last reset.
  const std::byte* start(std::size_t field, std::size_t i) const { return row(start_at, field, i); }

  std::size_t count, action_dims;
  std::size_t bytes = 0, command_at = 0, flags_at = 0, success_at = 0, seed_at = 0, action_at = 0, reward_at = 0;
  std::vector<std::size_t> row_bytes, observation_at, start_at;  // of each field
  std::byte* memory = nullptr;

 private:
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(memory + offset);
  }
  const std::byte* row(const std::vector<std::size_t>& offsets, std::size_t field, std::size_t i) const {
    return memory + offsets[field] + i * row_bytes[field];
  }
};

}  // namespace gipo
