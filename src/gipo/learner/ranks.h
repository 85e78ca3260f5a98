#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gipo/core/rank_group.h"

namespace gipo {

// Throws Error where learner.ranks is above 1, for those who train in one process.
void refuse_ranks(std::int64_t ranks);

// Throws Error where so many ranks of this machine do not each have one of its CUDA devices, unless the environment says that
// they share them (GIPO_RANKS_SHARE_DEVICES).
void refuse_missing_devices(std::int64_t ranks, std::size_t devices);

// Where a rank finds the others, as torchrun says it in environment variables.
struct RankPlace {
  int rank = 0, ranks = 1;
  int local_rank = 0;              // among those of this machine: the CUDA device that it has there
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
