#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gipo/replay/high_water.h"

namespace gipo {

class Intake;
class Pacer;
class Stop;
class WeightStore;

// Actors in other processes or on other hosts, as the trainer sees them. They stand in the place of its own: their
// reports go to the intake, their weights come from the store, their steps are leased from the pacer. The trainer's
// thread calls all but saved.
class RemoteActors {
 public:
  struct Setup {
    Intake& intake;
    WeightStore& store;
    Pacer& pacer;
    std::vector<std::int64_t> next_episode;  // [envs]
    std::uint64_t incarnation;               // what the process's own actors would have; none here is below it
  };

  virtual ~RemoteActors() = default;
  // Environment steps that may be under way in actors and messages.
  virtual std::int64_t lead() const = 0;
  virtual void begin(const Setup& setup) = 0;
  // From here on actors may come, on threads of their own.
  virtual void listen() = 0;
  // A checkpoint is on disk with these reports. Any thread may call it.
  virtual void saved(const std::vector<HighWater::Mark>& taken) = 0;
  // No incarnation in use is greater.
  virtual std::uint64_t incarnation() const = 0;
  // Who came and went, for the log; what went wrong that training survives.
  virtual std::vector<std::string> take_news() = 0;
  virtual std::vector<std::string> take_warnings() = 0;
  // Nothing more is taken or leased, and the pacer is not used after it. Actors that are connected stay so.
  virtual void hold() = 0;
  // After hold; nothing of the setup is used after it. finished: actors need not wait for this run to be resumed.
  virtual void end(bool finished) = 0;
  // After end(true): until those that were away then have been told too, or were waited for long enough.
  virtual void see_off(const Stop& stop) = 0;
};

}  // namespace gipo
