// In place of grpc/, where the program is built without it.
#include "gipo/core/error.h"
#include "gipo/remote/remote.h"

namespace gipo {

bool has_remote() { return false; }
std::unique_ptr<Listener> listen_for_actors(const Plan&, const ListenOptions&) { throw Error(kAddGrpc); }
std::unique_ptr<RemoteLearner> connect_to_learner(const ConnectOptions&, const Stop&) { throw Error(kAddGrpc); }
std::string remote_status(const ConnectOptions&) { throw Error(kAddGrpc); }
std::vector<std::string> make_certificates(const std::string&, const std::vector<std::string>&,
                                           const std::vector<std::string>&, int) {
  throw Error(kAddGrpc);
}

}  // namespace gipo
