#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gipo/plan/plan.h"
#include "gipo/population/card_run.h"
#include "gipo/train/faults.h"

namespace gipo::population {

// Where a population computes: a card, or its host twin. It holds the runs that it was given from their first state to
// their last. One thread calls it:
//
//   begin(runs) -> launch(updates) -> wait -> launch(updates) -> ... what was reported is read ... -> wait -> ...
class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::string name() const = 0;
  // How many of these runs it can hold at once, from the first on. Throws Error, with the arithmetic, where that is none.
  virtual std::size_t fits(std::span<const RunSpec> specs) const = 0;
  // In place of what it held. plans[i] has become specs[i].
  virtual void begin(std::span<const Plan* const> plans, std::span<const RunSpec> specs) = 0;
  // Up to `updates` more updates of every run. Returns at once where a card computes.
  virtual void launch(std::int64_t updates) = 0;
  // Until those are done; from then on head and report are those of after them, until the next wait.
  virtual void wait() = 0;
  virtual const char* head(std::size_t run) const = 0;
  virtual const char* report(std::size_t run) const = 0;
  // Segments of a run that has ended which a hosted task made worthless.
  virtual Rejections rejections(std::size_t run) const = 0;
};

// In one thread of the processor, hosted tasks in so many: slow; for tests. shared: bytes of what is a block's shared memory
// on a card.
std::unique_ptr<Engine> make_host_engine(std::size_t threads = 1, std::size_t shared = std::size_t{1} << 30);
// Throws Error where the program has no CUDA, there is no card, or its driver is too old.
std::unique_ptr<Engine> make_cuda_engine();

}  // namespace gipo::population
