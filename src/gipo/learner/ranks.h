#pragma once

#include <cstdint>
#include <memory>
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

  // The next two are called by all ranks in the same order, with arrays of the same size, of which each rank has a share.
  // own: this rank's share of the sum over ranks, added up in their order.
  virtual void sum_shares(std::span<const float> all, std::span<float> own) = 0;
  // Each rank's share of the array becomes that of all.
  virtual void spread_shares(std::span<float> all) = 0;
};

// The values [first, second) of an array that are a rank's share.
std::pair<std::size_t, std::size_t> share_of(std::size_t values, int rank, int ranks);

// Throws Error where learner.ranks is above 1, for those who train in one process.
void refuse_ranks(std::int64_t ranks);

// Where a rank finds the others, as torchrun says it in environment variables.
struct RankPlace {
  int rank = 0, ranks = 1;
  std::string host = "127.0.0.1";  // MASTER_ADDR
  int port = 0;                    // MASTER_PORT
  bool hosted = false;             // who started the ranks answers there; otherwise rank 0 does
  std::string attempt;             // another word each time that ranks meet at one place
  std::string interface;           // of the network, by name; empty: the one that the host's name leads to
  double wait_seconds = 120;       // for the others to come
};
// Waits for the others. Throws Error, naming the address, where they do not come.
std::shared_ptr<RankGroup> join_ranks(const RankPlace& place);

// A place on this machine where ranks can meet, while it lives.
class RankHost {
 public:
  virtual ~RankHost() = default;
  virtual int port() const = 0;
};
std::unique_ptr<RankHost> host_ranks();

// What a rank other than the first does: its share of the updates, as rank 0 asks for it, until that ends the run.
void serve_rank(RankGroup& group);

}  // namespace gipo
