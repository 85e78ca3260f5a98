#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gipo/train/collect.h"
#include "gipo/train/remote_actors.h"

namespace gipo {

struct Plan;
class Stop;

// A learner and actors as programs of their own, on one host or many: docs/cluster.md has the contract. The transport is
// gRPC, which only grpc/ knows; without it grpc_absent.cc takes its place.
inline constexpr const char* kAddGrpc =
    "this program was built without gRPC: scripts/setup.sh --cluster installs it, and a build with -DGIPO_GRPC=ON has "
    "it (cmake --preset cluster && cmake --build --preset cluster)";
bool has_remote();

struct ListenOptions {
  std::string address;                     // HOST:PORT; port 0: any free one
  std::string certificates;                // folder made by make_certificates; empty: loopback alone
  double most_megabytes_per_second = 256;  // of one actor's reports; it is read more slowly beyond
};

class Listener : public RemoteActors {
 public:
  virtual std::string address() const = 0;  // with the port in use
};
// Takes the address; actors are asked to wait until the run begins. Throws Error.
std::unique_ptr<Listener> listen_for_actors(const Plan& plan, const ListenOptions& options);

struct ConnectOptions {
  std::string address, certificates;
  std::string name;                         // empty: that of the certificate, or host and process
  double wait_seconds = 300;                // without a learner, before it gives up
  std::size_t most_kept_bytes = 256 << 20;  // of reports that the learner has not saved
  std::string ledger;                       // file with a line for each report and what became of it; empty: none
  std::function<void(std::uint64_t)>
      acknowledged;  // reports below this number are in the replay; on a thread of its own
  std::function<void(const std::string&)> say = [](const std::string&) {};  // that a learner is waited for, and so on
};

// The learner has said that the run has ended.
class RunEnded : public std::exception {
 public:
  const char* what() const noexcept override { return "the run has ended"; }
};

// Where an actor stands in its run.
struct RemotePlace {
  std::size_t index = 0;
  std::uint64_t incarnation = 0;
  std::vector<std::int64_t> first_episode;
};

// A learner elsewhere, as an actor sees it. All of it on the actor's thread; a lost connection is made again on another.
class RemoteLearner : public WeightSource, public ReportSink, public StepLease {
 public:
  // The config of the run. Waits for a learner; throws RunError when none has answered for long, Error where this actor is
  // refused, RunEnded, Interrupted.
  virtual std::string ask() = 0;
  // plan: what follows from that config here. Waits for a place and the first weights.
  virtual RemotePlace join(const Plan& plan) = 0;
  enum class End {
    kFinished,  // the run has ended
    kReplaced,  // the place is another's, or the learner has another run: ask anew
    kStopped,   // this actor was asked to stop
  };
  // After collect: hands over what is left. failure: why the actor cannot go on. Throws RunError and Error as ask does.
  virtual End leave(const std::string& failure = {}) = 0;
};
std::unique_ptr<RemoteLearner> connect_to_learner(const ConnectOptions& options, const Stop& stop);

// What a listener says of itself, as JSON.
std::string remote_status(const ConnectOptions& options);

// Certificates for a learner that is reached by these names or addresses, and for actors of these names, in a folder. The
// authority is made with the first; later calls add to it. Returns the files that were written. Throws Error.
std::vector<std::string> make_certificates(const std::string& folder, const std::vector<std::string>& hosts,
                                           const std::vector<std::string>& actors, int days);

}  // namespace gipo
