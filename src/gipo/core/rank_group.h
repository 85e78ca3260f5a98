#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "gipo/core/error.h"

namespace gipo {

// Another rank has ended, or cannot be reached: the run cannot go on, and what the ranks hold is in parts. The newest
// checkpoint is what there is to go on with.
class RanksLost : public RunError {
 public:
  using RunError::RunError;
};

// Numbers that ranks exchange, in the memory that their group works with.
struct RankArray {
  void* data = nullptr;
  std::size_t size = 0;
  bool bf16 = false;  // else float
};

// Processes that make the updates of one run together. Each has one; one thread at a time calls it. Every function throws
// RanksLost where another rank is gone, and from then on always.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // A message from one rank to another; each is received by exactly one call.
  virtual void send(int to, std::string_view message) = 0;
  virtual std::string receive(int from) = 0;

  // All that follow are called by all ranks in the same order.
  // Arrays lie on a CUDA device of this rank's own from now on. Throws Error, naming the rank, where one has none.
  virtual void use_devices() = 0;
  virtual const std::string& device() const = 0;  // where arrays lie: "cpu", or that one

  virtual void sum(std::span<double> values) = 0;  // over ranks, added up in their order; these lie on the host
  // With arrays of the same size, of which each rank has a share. own: this rank's share of the sum over ranks; on the host it
  // is added up in their order. It may be that share of `all`, whose other shares then hold nothing of use.
  virtual void sum_shares(const RankArray& all, void* own) = 0;
  virtual void spread_shares(const RankArray& all) = 0;  // each rank's share of the array becomes that of all
  virtual void spread_first(const RankArray& all) = 0;   // rank 0's array becomes that of all
};

// The values [first, second) of an array that are a rank's share. It begins where a vector of eight does.
inline std::pair<std::size_t, std::size_t> share_of(std::size_t values, int rank, int ranks) {
  constexpr std::size_t kVector = 8;
  const auto at = [&](int r) {
    return r == ranks ? values
                      : values / kVector * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks) * kVector;
  };
  return {at(rank), at(rank + 1)};
}

}  // namespace gipo
