#pragma once

#include <learner.grpc.pb.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gipo/plan/plan.h"
#include "gipo/remote/grpc/transport.h"
#include "gipo/remote/places.h"
#include "gipo/remote/remote.h"
#include "gipo/train/report_wire.h"

namespace gipo {

class PushStream;
class WeightStream;

// What the learner knows of one actor: from Open until its place is another's.
struct RemoteSession {
  RemoteSession(const Plan& plan, std::size_t place)
      : place(place), decoder(plan.segment_length, plan.transition(), plan.config.env.normalise_observations) {}

  const std::size_t place;
  std::string name, from, key;  // who, from which address; what its streams show
  std::uint64_t incarnation = 0;
  double opened = 0;  // when
  PushStream* push = nullptr;
  WeightStream* weights = nullptr;
  ReportDecoder decoder;  // of its push stream, one message at a time

  // How fast it is: steps it has reported since, and those that it may be ahead by.
  double paced_at = 0;
  std::int64_t paced = 0, window = 0;
  // Steps that are leased and not yet reported; that it may report in all; that it has.
  std::int64_t outstanding = 0, allowed = 0, steps = 0;
  std::uint64_t received = 0, saved = 0;  // sequences below
  struct Grant {
    std::int64_t env_steps = 0, steps = 0;
  };
  std::deque<Grant> grants;  // to be sent
  bool news = false;         // beside them
  bool failed = false;       // as it said itself
  bool gone = false;         // its stream has ended
  bool left = false;         // and not because the connection was lost: it does not come back
  double heard = 0;          // when it last was, where it has no stream
  bool busy = false;         // a report of it is being taken
  std::uint64_t reports = 0, bytes = 0, repeated = 0;
  std::map<std::string, bool> faults;  // names it has used: a bounded number
  double budget = 0, budget_at = 0;    // bytes that may be read, and when that was so

  std::string who() const;
};

struct EncodedWeights {
  std::int64_t version = -1;
  std::string bytes;
  std::uint32_t crc = 0;
};

// Weights are messages of bytes, which lie once in memory for all actors; so are reports, which are read to where they
// belong.
using RemoteService = wire::Learner::WithCallbackMethod_Open<wire::Learner::WithRawCallbackMethod_Push<
    wire::Learner::WithRawCallbackMethod_Weights<wire::Learner::WithCallbackMethod_Status<wire::Learner::Service>>>>;

// actors -> Push -> Intake; Pacer -> one thread that leases in turn -> actors; WeightStore -> Weights -> actors.
// gRPC's threads call the service. One lock around the sessions; reports are decoded and taken outside of it, and the
// intake is never waited for with it held: the trainer calls here with the intake held.
class RemoteServer final : public Listener, public RemoteService {
 public:
  RemoteServer(const Plan& plan, const ListenOptions& options);
  ~RemoteServer() override;

  std::string address() const override { return address_; }
  std::int64_t lead() const override;
  void begin(const Setup& setup) override;
  void listen() override;
  void saved(const std::vector<HighWater::Mark>& taken) override;
  std::uint64_t incarnation() const override;
  std::vector<std::string> take_news() override;
  std::vector<std::string> take_warnings() override;
  void hold() override;
  void end(bool finished) override;
  void see_off(const Stop& stop) override;

  grpc::ServerUnaryReactor* Open(grpc::CallbackServerContext*, const wire::OpenRequest*, wire::OpenReply*) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Push(grpc::CallbackServerContext*) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Weights(grpc::CallbackServerContext*, const grpc::ByteBuffer*) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext*, const wire::StatusRequest*,
                                   wire::StatusReply*) override;

 private:
  friend class PushStream;
  friend class WeightStream;
  static constexpr double kNever = -1;
  using Lock = std::unique_lock<std::recursive_mutex>;
  using SessionPointer = std::shared_ptr<RemoteSession>;

  // The identity of a caller: the name of its certificate; empty where there are none.
  static std::string certified(const grpc::CallbackServerContext& context);
  grpc::Status open(const grpc::CallbackServerContext& context, const wire::OpenRequest& request,
                    wire::OpenReply& reply);
  grpc::Status take_place(const wire::OpenRequest& request, const std::string& name, const std::string& from,
                          wire::OpenReply& reply, Lock& lock);
  grpc::Status find_session(const grpc::CallbackServerContext& context, SessionPointer& session);
  bool in_use(const RemoteSession& session) const;
  void end_session(const SessionPointer& session, const std::string& why);
  // A message of a push stream. Seconds to wait before the next is read: kNever once the run is being ended.
  grpc::Status take(const SessionPointer& session, grpc::ByteBuffer& request, double& pause);
  void read(const SessionPointer& session, grpc::ByteBuffer& request);
  void check(const RemoteSession& session, const ActorReport& report) const;
  void take_reports(const SessionPointer& session, std::size_t bytes, const ByteReader::Source& next);
  void count(const SessionPointer& session, const ActorReport& report, std::size_t bytes, bool is_new);
  double pause_for(RemoteSession& session, std::size_t bytes);
  void attach(const SessionPointer& session, PushStream* stream);
  void detach(const SessionPointer& session, PushStream* stream, bool lost);
  bool connected() const;  // any of them
  void say_ended();
  void shut();
  void send(RemoteSession& session);  // what there is to say, where a stream is free
  grpc::Status refused(const std::string& who, grpc::StatusCode code, const std::string& why);
  void lease();
  enum class Leased { kOne, kNobodyWaits, kMustWait };
  Leased lease_at_once();
  void lease_ahead(RemoteSession& session);
  void give(RemoteSession& session, std::int64_t env_steps, std::int64_t steps);
  SessionPointer next_to_lease();
  std::shared_ptr<const EncodedWeights> newest_weights();
  std::shared_ptr<const EncodedWeights> weights_at_once();
  std::string status_text();

  const Plan& plan_;
  const ListenOptions options_;
  const bool certified_;
  const std::string agreement_, config_;
  const std::int64_t block_;  // steps of a lease
  std::string address_;

  // Recursive: gRPC may run a reaction inside the call that starts an operation.
  mutable std::recursive_mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<Setup> setup_;
  std::uint64_t least_incarnation_ = 0;
  std::optional<Places> places_;
  std::vector<SessionPointer> sessions_;  // [places]
  std::vector<std::int64_t> next_episode_;
  bool listening_ = false, ending_ = false, finished_ = false;
  int busy_ = 0;  // calls and messages that use the setup
  double listening_since_ = 0, answered_ = 0;
  std::map<std::string, double> untold_;  // who is to hear that the run has ended, and until when it is waited for
  std::size_t turn_ = 0;
  std::uint64_t refusals_ = 0, refusals_told_ = 0;
  std::vector<std::string> news_, warnings_;

  std::mutex weights_mutex_;
  std::shared_ptr<const EncodedWeights> weights_;

  std::unique_ptr<grpc::Server> server_;
  std::thread leaser_;
};

}  // namespace gipo
