#include <fmt/format.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <learner.grpc.pb.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/core/sole_holder.h"
#include "gipo/core/stop.h"
#include "gipo/io/bytes.h"
#include "gipo/io/checksum.h"
#include "gipo/io/files.h"
#include "gipo/plan/plan.h"
#include "gipo/remote/agreement.h"
#include "gipo/remote/grpc/clock.h"
#include "gipo/remote/grpc/transport.h"
#include "gipo/remote/kept_reports.h"
#include "gipo/remote/names.h"
#include "gipo/remote/remote.h"
#include "gipo/run/version.h"
#include "gipo/train/report_wire.h"

namespace gipo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{50};                           // at the stop, in waits
constexpr double kShortestPause = 0.05, kLongestPause = 2;  // between attempts, in seconds
constexpr double kCallSeconds = 10;                         // that Open may take
constexpr double kFarewellSeconds = 5;                      // for what is left to be handed over
constexpr double kLongestUnreported = 0.05;

std::string own_name() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  std::string name = fmt::format("{:.48}-{}", host, getpid());
  if (!actor_name_fault(name).empty()) name = fmt::format("actor-{}", getpid());
  return name;
}

std::chrono::system_clock::time_point in_seconds(double seconds) {
  return std::chrono::system_clock::now() + milliseconds(static_cast<std::int64_t>(1000 * seconds));
}

// Whether the learner has said no: it would again.
bool refusal(grpc::StatusCode code) {
  switch (code) {
    case grpc::FAILED_PRECONDITION:
    case grpc::PERMISSION_DENIED:
    case grpc::UNAUTHENTICATED:
    case grpc::INVALID_ARGUMENT:
    case grpc::UNIMPLEMENTED:
      return true;
    default:
      return false;
  }
}

// A line for each report: when it was made, received and saved. For whoever counts what became of each step.
class Ledger {
 public:
  explicit Ledger(const std::string& path) {
    if (path.empty()) return;
    file_.open(path, std::ios::app);
    if (!file_) throw Error(fmt::format("--ledger {}: it cannot be written", path));
  }
  void made(const ActorReport& report) {
    if (!file_.is_open()) return;
    std::string segments;
    for (const Segment& s : report.segments) {
      segments += fmt::format("{}[{},{},{}]", segments.empty() ? "" : ",", s.actor, s.sequence, s.length);
    }
    file_ << fmt::format(R"({{"made":{},"actor":{},"incarnation":{},"steps":{},"segments":[{}]}})", report.sequence,
                         report.actor, report.incarnation, report.steps, segments)
          << std::endl;
    actor_ = report.actor;
    incarnation_ = report.incarnation;
  }
  // Sequences below `next`.
  void reached(const char* what, std::uint64_t next) {
    if (!file_.is_open()) return;
    file_ << fmt::format(R"({{"{}":{},"actor":{},"incarnation":{}}})", what, next, actor_, incarnation_) << std::endl;
  }

 private:
  std::ofstream file_;
  std::uint64_t actor_ = 0, incarnation_ = 0;
};

// The actor's thread calls the public functions, and begins to send what it hands over. gRPC's threads go on with that and
// read what comes; a link thread reconnects, and another reads weights.
class Client final : public RemoteLearner {
 public:
  Client(const ConnectOptions& options, const Stop& stop)
      : options_(options),
        stop_(stop),
        address_(parse_host_port(options.address, "the address")),
        ledger_(options.ledger),
        kept_(options.most_kept_bytes) {
    if (!options.name.empty()) {
      if (const std::string fault = actor_name_fault(options.name); !fault.empty()) {
        throw Error(fmt::format("--name {} is not accepted: {}", options.name, fault));
      }
    }
    request_.set_protocol(kProtocol);
    request_.set_version(version());
    request_.set_name(options.name.empty() && options.certificates.empty() ? own_name() : options.name);
    credentials_ = channel_credentials(options.certificates, address_);
    connect();
  }
  ~Client() override { close(); }

  std::string ask() override {
    wire::OpenRequest request = request_;
    request.clear_agreement();
    forget_place(request);
    return open(request).config();
  }

  RemotePlace join(const Plan& plan) override {
    close();
    request_.set_agreement(agreement_of(plan));
    forget_place(request_);
    set_weights_shape(plan);
    const wire::OpenReply reply = open(request_);
    {
      const std::lock_guard lock(mutex_);
      kept_ = KeptReports(options_.most_kept_bytes);
      take_place(reply);
      credit_ = 0;
      grants_.clear();
      end_.reset();
      error_ = nullptr;
      newest_.reset();
      closing_ = false;
      farewell_.clear();
      report_rounds_ = std::max<std::uint32_t>(reply.report_rounds(), 1);
      reported_at_ = seconds_now();
      rounds_ = 0;
    }
    link_ = std::thread([this] { keep_linked(); });
    std::unique_lock lock(mutex_);
    while (!newest_ && !over()) wait(lock);
    if (error_) std::rethrow_exception(error_);
    return {reply.place(), reply.incarnation(), {reply.first_episode().begin(), reply.first_episode().end()}};
  }

  std::shared_ptr<const Weights> newest() override {
    const std::lock_guard lock(mutex_);
    if (!newest_) throw Interrupted();
    return newest_;
  }

  std::optional<std::int64_t> begin(std::int64_t steps) override {
    std::unique_lock lock(mutex_);
    round_ = steps;
    while (credit_ < steps && !over()) wait(lock);
    if (over()) return std::nullopt;
    credit_ -= steps;
    ++rounds_;
    Grant& grant = grants_.front();
    const std::int64_t before = grant.env_steps;
    grant.env_steps += steps;
    grant.steps -= steps;
    if (grant.steps <= 0) grants_.pop_front();
    return before;
  }
  void end(std::int64_t, std::int64_t) override {}  // the report says it

  bool due() override {
    const std::lock_guard lock(mutex_);
    return rounds_ >= report_rounds_ || credit_ < round_ || seconds_now() - reported_at_ > kLongestUnreported;
  }

  void take(const ActorReport& report) override {
    std::shared_ptr<ByteWriter> message;
    {
      const std::lock_guard lock(mutex_);
      message = kept_.room();
    }
    encode_report(report, *message);
    {
      std::unique_lock lock(mutex_);
      ledger_.made(report);
      while (kept_.full() && !over()) wait(lock);
      kept_.add({report.sequence, report.steps, std::move(message)});
      rounds_ = 0;
      reported_at_ = seconds_now();
    }
    send_next();
  }

  End leave(const std::string& failure) override {
    {
      std::unique_lock lock(mutex_);
      farewell_ = failure;
      const double until = seconds_now() + kFarewellSeconds;
      lock.unlock();
      send_next();
      lock.lock();
      while (!end_ && !error_ && seconds_now() < until && !(kept_.all_received() && farewell_.empty())) {
        changed_.wait_for(lock, kLook);
      }
    }
    close();
    if (error_) std::rethrow_exception(error_);
    return end_.value_or(End::kStopped);
  }

 private:
  struct Grant {
    std::int64_t env_steps = 0, steps = 0;
  };

  // With the lock held.
  bool over() const { return end_.has_value() || error_ || stop_.requested(); }
  void wait(std::unique_lock<std::mutex>& lock) { changed_.wait_for(lock, kLook); }

  static void forget_place(wire::OpenRequest& request) {
    request.clear_run();
    request.clear_place();
    request.clear_incarnation();
    request.clear_kept_steps();
  }
  void take_place(const wire::OpenReply& reply) {
    key_ = reply.key();
    request_.set_run(reply.run());
    request_.set_place(reply.place());
    request_.set_incarnation(reply.incarnation());
    kept_.go_back(reply.received(), reply.saved());
  }

  // A channel of its own for each attempt: gRPC makes a connection only while a call waits for it, so that one that is
  // left alone between attempts never gets through its handshake.
  void connect() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
    arguments.SetMaxReceiveMessageSize(kLongestConfig);
    const auto channel = grpc::CreateCustomChannel(address_.text(), credentials_, arguments);
    stub_ = wire::Learner::NewStub(channel);
    generic_ = std::make_unique<grpc::TemplatedGenericStub<grpc::ByteBuffer, wire::PushReply>>(channel);
  }

  // One attempt.
  grpc::Status try_open(const wire::OpenRequest& request, wire::OpenReply& reply) {
    grpc::ClientContext context;
    context.set_deadline(in_seconds(kCallSeconds));
    grpc::Status status = stub_->Open(&context, request, &reply);
    if (!status.ok()) connect();
    return status;
  }

  // Until it is answered, on the actor's thread.
  wire::OpenReply open(const wire::OpenRequest& request) {
    const double begun = seconds_now();
    double pause = kShortestPause;
    std::string told;
    while (true) {
      throw_if_requested(&stop_);
      wire::OpenReply reply;
      const grpc::Status status = try_open(request, reply);
      if (status.ok()) return reply;
      if (status.error_code() == grpc::OUT_OF_RANGE) throw RunEnded();
      if (refusal(status.error_code())) throw Error(in_words(status));
      const std::string why = in_words(status);
      if (seconds_now() - begun > options_.wait_seconds) {
        throw RunError(fmt::format("{}; given up after {:g} s (--wait)", why, options_.wait_seconds));
      }
      if (why != std::exchange(told, why)) options_.say(fmt::format("{}; trying again", why));
      rest(pause);
    }
  }

  std::string in_words(const grpc::Status& status) const {
    const std::string& text = status.error_message();
    if (status.error_code() == grpc::UNAVAILABLE || status.error_code() == grpc::DEADLINE_EXCEEDED) {
      return fmt::format("learner at {} does not answer: {}", address_.text(), text);
    }
    return fmt::format("learner at {}: {}", address_.text(), text);
  }

  // Twice as long each time, and each actor for another time: they must not all come back at once.
  void rest(double& pause) {
    const double until = seconds_now() + pause * std::uniform_real_distribution(0.5, 1.0)(jitter_);
    pause = std::min(2 * pause, kLongestPause);
    std::unique_lock lock(mutex_);
    while (seconds_now() < until && !stop_.requested() && !closing_) wait(lock);
  }

  // The link thread: streams, until they break, then opens again and goes on.
  void keep_linked() {
    double pause = kShortestPause, lost_at = 0;
    while (true) {
      const double begun = seconds_now();
      const grpc::Status status = stream();
      if (seconds_now() - begun > 5) pause = kShortestPause;
      {
        const std::lock_guard lock(mutex_);
        if (closing_ || end_ || !settle(status)) return;
      }
      lost_at = seconds_now();
      connect();
      options_.say(fmt::format("{}; trying again", in_words(status)));
      while (true) {
        rest(pause);
        wire::OpenRequest request;
        {
          const std::lock_guard lock(mutex_);
          if (closing_) return;
          request_.set_kept_steps(kept_.steps());
          request = request_;
        }
        wire::OpenReply reply;
        const grpc::Status opened = try_open(request, reply);
        const std::lock_guard lock(mutex_);
        if (opened.ok()) {
          take_place(reply);
          ledger_.reached("resumed", reply.received());
          grants_.clear();
          credit_ = 0;
          break;
        }
        if (!settle(opened)) return;
        if (seconds_now() - lost_at > options_.wait_seconds) {
          return fail(std::make_exception_ptr(
              RunError(fmt::format("{}; given up after {:g} s (--wait)", in_words(opened), options_.wait_seconds))));
        }
      }
    }
  }

  // With the lock held. Whether the connection is worth another attempt.
  bool settle(const grpc::Status& status) {
    const grpc::StatusCode code = status.error_code();
    if (code == grpc::OUT_OF_RANGE) {
      end_ = End::kFinished;
    } else if (code == grpc::NOT_FOUND || code == grpc::ABORTED) {
      end_ = End::kReplaced;
    } else if (refusal(code) || status.error_message().find("larger than max") != std::string::npos) {
      fail(std::make_exception_ptr(Error(in_words(status))));
      return false;
    } else {
      return true;
    }
    changed_.notify_all();
    return false;
  }
  void fail(std::exception_ptr error) {
    error_ = std::move(error);
    changed_.notify_all();
  }

  // One call of Push, whose messages of reports are the bytes that are kept.
  class PushCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, wire::PushReply> {
   public:
    explicit PushCall(Client& client) : client_(client) {}
    // Messages are begun by several threads: the call is not over before RemoveHold.
    void begin() {
      AddHold();
      StartRead(&reply_);
      StartCall();
    }
    void write(const grpc::ByteBuffer& message) {
      message_ = message;  // not of its bytes
      StartWrite(&message_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return client_.broke();
      client_.take_reply(reply_);
      StartRead(&reply_);
    }
    void OnWriteDone(bool ok) override { client_.written(ok); }
    void OnDone(const grpc::Status& status) override { client_.ended(status); }

   private:
    Client& client_;
    wire::PushReply reply_;
    grpc::ByteBuffer message_;
  };

  // Until the stream is over; how it ended.
  grpc::Status stream() {
    grpc::ClientContext push_context, weights_context;
    for (grpc::ClientContext* context : {&push_context, &weights_context}) context->AddMetadata(kKeyMetadata, key_);
    PushCall push(*this);
    generic_->PrepareBidiStreamingCall(&push_context, "/gipo.wire.Learner/Push", {}, &push);
    {
      const std::lock_guard lock(mutex_);
      broken_ = writing_ = false;
      ended_.reset();
    }
    push.begin();
    {
      const std::lock_guard lock(mutex_);
      push_ = &push;
    }
    send_next();
    const auto weights = stub_->Weights(&weights_context, wire::WeightsRequest());
    std::thread newer([&] {
      read_weights(*weights);
      // Where only these have ended, an actor must not go on with old ones.
      std::unique_lock lock(mutex_);
      const double until = seconds_now() + 1;
      while (!broken_ && !closing_ && seconds_now() < until) link_changed_.wait_for(lock, kLook);
      if (!broken_ && !closing_) push_context.TryCancel();
    });
    std::unique_lock lock(mutex_);
    while (!broken_ && !done()) link_changed_.wait(lock);
    push_ = nullptr;
    while (starting_ > 0) link_changed_.wait(lock);
    if (!broken_) {
      // The learner ends its half when ours is over.
      lock.unlock();
      push.StartWritesDone();
      lock.lock();
      const double until = seconds_now() + (end_ ? kFarewellSeconds : 1);
      while (!broken_ && seconds_now() < until) link_changed_.wait_for(lock, kLook);
    }
    const bool broken = broken_;
    lock.unlock();
    weights_context.TryCancel();
    if (!broken) push_context.TryCancel();  // else how it ended is on its way
    push.RemoveHold();
    newer.join();
    lock.lock();
    while (!ended_) link_changed_.wait(lock);
    return *std::exchange(ended_, std::nullopt);
  }

  // Whether the learner wants nothing more, or has all that this actor leaves with. With the lock held.
  bool done() const { return !writing_ && (end_ || (closing_ && !kept_.next() && farewell_.empty())); }

  // One message at a time is under way; whoever has made the next one, or seen the last one off, sends on.
  void send_next() {
    grpc::ByteBuffer message;
    PushCall* push = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (!push_ || broken_ || writing_) return;
      if (end_) {
        link_changed_.notify_all();
        return;
      } else if (kept_.next()) {
        if (waits_for_more()) return;
        message = next_reports();
      } else if (!farewell_.empty()) {
        wire::PushRequest request;
        request.set_failure(std::exchange(farewell_, {}));
        const grpc::Slice slice(request.SerializeAsString());
        message = grpc::ByteBuffer(&slice, 1);
      } else {
        if (closing_) link_changed_.notify_all();
        return;
      }
      writing_ = true;
      ++starting_;
      push = push_;
    }
    push->write(message);
    const std::lock_guard lock(mutex_);
    if (--starting_ == 0 && !push_) link_changed_.notify_all();
  }

  // Many small reports in one message cost both sides less than as many messages. With the lock held.
  bool waits_for_more() const {
    return kept_.under_way() >= kUnanswered && kept_.waiting_bytes(kWorthSending) < kWorthSending && !closing_ &&
           farewell_.empty();
  }

  // All that are ready, as far as they fit; the bytes are those that are kept. With the lock held.
  grpc::ByteBuffer next_reports() {
    std::vector<grpc::Slice> slices(1);
    std::size_t bytes = 0;
    for (; const KeptReports::Report* report = kept_.next(); kept_.sent()) {
      const std::string& text = report->message->bytes();
      if (bytes > 0 && (bytes + text.size() > kPushBytes || slices.size() > kPushReports)) break;
      slices.push_back(shared_slice(report->message, text));
      bytes += text.size();
    }
    slices[0] = bytes_field({}, wire::PushRequest::kReportsFieldNumber, bytes);
    return {slices.data(), slices.size()};
  }

  void written(bool ok) {
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      if (!ok) broken_ = true;
      if (broken_) link_changed_.notify_all();
    }
    send_next();
  }

  void take_reply(const wire::PushReply& reply) {
    {
      const std::lock_guard lock(mutex_);
      kept_.received(reply.received());
      kept_.saved(reply.saved());
      if (reply.ended()) end_ = End::kFinished;
      if (options_.acknowledged) options_.acknowledged(reply.received());
      if (reply.received() > 0) ledger_.reached("received", reply.received());
      if (reply.saved() > saved_) ledger_.reached("saved", saved_ = reply.saved());
      if (reply.steps() > 0) {
        grants_.push_back({reply.env_steps(), reply.steps()});
        credit_ += reply.steps();
      }
      changed_.notify_all();
    }
    send_next();
  }

  void broke() {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    link_changed_.notify_all();
  }

  // The last that is heard of a call.
  void ended(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    ended_ = status;
    link_changed_.notify_all();
  }

  void set_weights_shape(const Plan& plan) {
    spare_ = std::make_shared<Weights>(empty_weights(plan.model));
    if (plan.config.advantage.mode != AdvantageMode::kStored) spare_->critic = {};
    weights_bytes_ = 0;
    ByteWriter out([this](std::string_view bytes) { weights_bytes_ += bytes.size(); });
    spare_->save(out);
    out.flush();
  }

  // Into the place where they will be used, as their parts come. Any that do not fit together end the stream.
  void read_weights(grpc::ClientReader<wire::WeightsReply>& weights) {
    wire::WeightsReply reply;
    std::string_view part;
    std::uint64_t read = 0;
    std::uint32_t crc = 0;
    const auto next_part = [&] {
      if (!weights.Read(&reply)) throw Interrupted();
      if (reply.size() != weights_bytes_ || reply.offset() != read || reply.part().size() > reply.size() - read) {
        throw Error("weights that are not those of this run");
      }
      part = reply.part();
      read += part.size();
      crc = crc32c(part, crc);
    };
    const auto take = [&](char* out, std::size_t size) {
      while (size > 0) {
        if (part.empty()) next_part();
        const std::size_t taken = std::min(size, part.size());
        std::memcpy(out, part.data(), taken);
        part.remove_prefix(taken);
        out += taken;
        size -= taken;
      }
    };
    try {
      while (true) {
        read = crc = 0;
        next_part();
        if (!spare_) spare_ = std::make_shared<Weights>(*newest());
        const std::shared_ptr<Weights> next = spare_;
        ByteReader in(weights_bytes_, take);
        next->load(in);
        if (in.left() > 0 || read != weights_bytes_ || reply.crc() != crc) throw Error("weights that are damaged");
        std::shared_ptr<Weights> before;
        {
          const std::lock_guard lock(mutex_);
          before = std::exchange(newest_, next);
          changed_.notify_all();
        }
        // Where the actor still holds those of before, others take their place when they are needed.
        spare_ = before && sole_holder(before) ? std::move(before) : nullptr;
      }
    } catch (const Error&) {
    } catch (const Interrupted&) {
    }
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    link_changed_.notify_all();
    send_next();  // what waited for more
    if (link_.joinable()) link_.join();
  }

  const ConnectOptions options_;
  const Stop& stop_;
  const HostPort address_;
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::unique_ptr<wire::Learner::Stub> stub_;
  std::unique_ptr<grpc::TemplatedGenericStub<grpc::ByteBuffer, wire::PushReply>> generic_;  // of the same channel
  wire::OpenRequest request_;
  std::minstd_rand jitter_{std::random_device{}()};
  std::size_t weights_bytes_ = 0;
  std::shared_ptr<Weights> spare_;  // of their shape, which the next are read into

  std::mutex mutex_;
  std::condition_variable changed_, link_changed_;  // for the actor's thread; for the others
  Ledger ledger_;
  KeptReports kept_;
  std::uint64_t saved_ = 0;
  std::string key_, farewell_;
  std::deque<Grant> grants_;
  std::int64_t credit_ = 0, round_ = 1;
  std::uint32_t rounds_ = 0, report_rounds_ = 1;  // since the last report; in one, at most
  double reported_at_ = 0;
  std::shared_ptr<Weights> newest_;
  std::optional<End> end_;
  std::exception_ptr error_;
  PushCall* push_ = nullptr;  // while messages may be sent
  int starting_ = 0;          // messages that are being begun
  std::optional<grpc::Status> ended_;
  bool closing_ = false, broken_ = false, writing_ = false;
  std::thread link_;
};

}  // namespace

std::unique_ptr<RemoteLearner> connect_to_learner(const ConnectOptions& options, const Stop& stop) {
  return std::make_unique<Client>(options, stop);
}

std::string remote_status(const ConnectOptions& options) {
  const HostPort address = parse_host_port(options.address, "the address");
  const auto stub =
      wire::Learner::NewStub(grpc::CreateChannel(address.text(), channel_credentials(options.certificates, address)));
  grpc::ClientContext context;
  context.set_deadline(in_seconds(kCallSeconds));
  wire::StatusReply reply;
  if (const grpc::Status status = stub->Status(&context, wire::StatusRequest(), &reply); !status.ok()) {
    throw RunError(fmt::format("learner at {}: {}", address.text(), status.error_message()));
  }
  return reply.json();
}

}  // namespace gipo
