#include "gipo/remote/grpc/server.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/core/stop.h"
#include "gipo/io/bytes.h"
#include "gipo/io/checksum.h"
#include "gipo/remote/agreement.h"
#include "gipo/remote/grpc/clock.h"
#include "gipo/remote/grpc/streams.h"
#include "gipo/remote/names.h"
#include "gipo/run/version.h"
#include "gipo/train/intake.h"
#include "gipo/train/pacer.h"
#include "gipo/train/weight_store.h"

namespace gipo {
namespace {

constexpr double kOpenWithoutStream = 10;  // seconds until the place of an actor that opened and never came is free
constexpr double kBetweenOpens = 0.25;     // of one place, in seconds
constexpr std::size_t kMostFaultNames = 32, kLongestFaultName = 64, kLongestText = 1000;
constexpr std::size_t kMostNews = 1000;  // lines that wait for the trainer
constexpr std::int64_t kLeases = 2;      // of an actor at a time: one that it works on, one that waits
// Of a fast one as many as it works on for so long, and no more than so many.
constexpr double kAheadSeconds = 0.02;
constexpr std::int64_t kMostAhead = 256;
// After the end of a run an actor that is away is waited for until so long after it was heard of last. Those that are
// connected have so long to say that they know before the run goes on without them.
constexpr double kAwaySeconds = 60, kKnowSeconds = 5;
constexpr double kAnswerSeconds = 1;  // for an answer to arrive before its connection is closed
constexpr char kEnded[] = "the run has ended";

// "ipv4:10.0.0.5:41234" -> "10.0.0.5"
std::string address_of(const std::string& peer) {
  const std::size_t begin = peer.find(':'), end = peer.rfind(':');
  return begin == peer.npos || end <= begin ? peer : peer.substr(begin + 1, end - begin - 1);
}

std::string printable(std::string text) {
  if (text.size() > kLongestText) text.resize(kLongestText);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return text;
}

grpc::ServerUnaryReactor* finish(grpc::CallbackServerContext* context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace

bool has_remote() { return true; }

std::unique_ptr<Listener> listen_for_actors(const Plan& plan, const ListenOptions& options) {
  return std::make_unique<RemoteServer>(plan, options);
}

std::string RemoteSession::who() const { return fmt::format("actor {} ({}, place {})", name, from, place); }

RemoteServer::RemoteServer(const Plan& plan, const ListenOptions& options)
    : plan_(plan),
      options_(options),
      certified_(!options.certificates.empty()),
      agreement_(agreement_of(plan)),
      config_(config_for_actors(plan)),
      block_(static_cast<std::int64_t>(report_rounds(plan) * plan.envs_per_actor)),
      sessions_(plan.actors) {
  const HostPort address = parse_host_port(options.address, "--listen");
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address.text(), server_credentials(options.certificates, address), &port);
  builder.RegisterService(this);
  const auto most = std::max<std::size_t>(kLongestConfig, most_report_bytes(plan, report_rounds(plan)) + 1024);
  builder.SetMaxReceiveMessageSize(static_cast<int>(std::min<std::size_t>(most, 1 << 30)));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kKeepaliveMs / 2);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  server_ = builder.BuildAndStart();
  if (!server_ || port == 0) {
    throw Error(fmt::format(
        "--listen {}: the address cannot be used: another program listens there, this machine does not have it, or the "
        "certificates are damaged",
        options.address));
  }
  address_ = HostPort{address.host, static_cast<std::uint16_t>(port)}.text();
}

RemoteServer::~RemoteServer() {
  if (!finished_) end(false);
  shut();
}

std::int64_t RemoteServer::lead() const { return kLeases * block_ * static_cast<std::int64_t>(plan_.actors); }

void RemoteServer::begin(const Setup& setup) {
  const Lock lock(mutex_);
  setup_.emplace(setup);
  next_episode_ = setup.next_episode;
  least_incarnation_ = setup.incarnation;
  places_.emplace(plan_.run_dir + "/actors.json", plan_.actors);
}

void RemoteServer::listen() {
  const Lock lock(mutex_);
  listening_ = true;
  listening_since_ = seconds_now();
  leaser_ = std::thread([this] { lease(); });
  news_.push_back(fmt::format("listening on {} for {} actors", address_, plan_.actors));
}

std::uint64_t RemoteServer::incarnation() const {
  const Lock lock(mutex_);
  return std::max(least_incarnation_, places_->greatest());
}

std::vector<std::string> RemoteServer::take_news() {
  const Lock lock(mutex_);
  return std::exchange(news_, {});
}

std::vector<std::string> RemoteServer::take_warnings() {
  const Lock lock(mutex_);
  return std::exchange(warnings_, {});
}

void RemoteServer::saved(const std::vector<HighWater::Mark>& taken) {
  const Lock lock(mutex_);
  for (const SessionPointer& session : sessions_) {
    if (!session) continue;
    const std::uint64_t first_env = session->place * plan_.envs_per_actor;
    for (const HighWater::Mark& mark : taken) {
      if (mark.actor != first_env || mark.incarnation != session->incarnation) continue;
      session->saved = std::max(session->saved, mark.sequence + 1);
      session->news = true;
    }
    send(*session);
  }
}

void RemoteServer::hold() {
  {
    Lock lock(mutex_);
    listening_ = false;
    ending_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return busy_ == 0; });  // what is being taken is the last
  }
  if (leaser_.joinable()) leaser_.join();
}

void RemoteServer::end(bool finished) {
  hold();
  {
    Lock lock(mutex_);
    finished_ = finished;
    if (finished) {
      say_ended();
      changed_.wait_for(lock, std::chrono::duration<double>(kKnowSeconds), [&] { return !connected(); });
    }
    setup_.reset();
  }
  if (!finished) shut();
}

// What was said last is lost where a connection is closed too soon: actors say that they know. With the lock held.
void RemoteServer::say_ended() {
  const double now = seconds_now();
  for (std::size_t i = 0; i < sessions_.size(); ++i) {
    const SessionPointer& session = sessions_[i];
    if (session && session->left) continue;
    // The actor of a place that had one before the learner was started again may be on its way back.
    const std::string& name = session ? session->name : (*places_)[i].name;
    const double heard = !session ? listening_since_ : session->push ? now : session->heard;
    if (name.empty() || now > heard + kAwaySeconds) continue;
    untold_[name] = heard + kAwaySeconds;
    if (!session || !session->push) {
      warnings_.push_back(
          fmt::format("actor {} (place {}) is away: waiting up to {:.0f} s to tell it of the end; Ctrl-C ends the wait",
                      name, i, untold_[name] - now));
      continue;
    }
    session->news = true;
    session->push->discard();
    send(*session);
  }
}

bool RemoteServer::connected() const {
  return std::ranges::any_of(sessions_, [](const SessionPointer& s) { return s && s->push; });
}

void RemoteServer::see_off(const Stop& stop) {
  Lock lock(mutex_);
  while (finished_ && !stop.requested()) {
    const double now = seconds_now();
    const bool awaited = std::ranges::any_of(untold_, [&](const auto& actor) { return now < actor.second; });
    if (!awaited && now > answered_ + kAnswerSeconds) break;
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
  for (const auto& [name, until] : untold_) news_.push_back(fmt::format("actor {} was not told of the end", name));
  untold_.clear();
}

void RemoteServer::shut() {
  {
    const Lock lock(mutex_);
    for (const SessionPointer& session : sessions_) {
      if (!session || !session->push) continue;
      session->push->end(finished_ ? grpc::Status(grpc::OUT_OF_RANGE, kEnded)
                                   : grpc::Status(grpc::UNAVAILABLE, "the learner stops"));
      if (session->weights) session->weights->end(grpc::Status::OK);
    }
  }
  if (server_) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  server_.reset();
}

std::string RemoteServer::certified(const grpc::CallbackServerContext& context) {
  const auto names = context.auth_context()->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  return names.empty() ? std::string() : std::string(names[0].data(), names[0].size());
}

grpc::Status RemoteServer::refused(const std::string& who, grpc::StatusCode code, const std::string& why) {
  const Lock lock(mutex_);
  // Told at 1, 2, 4, 8, ...: a hostile caller must not fill the log.
  if (++refusals_ > refusals_told_ && warnings_.size() < kMostNews) {
    warnings_.push_back(fmt::format("{} was refused: {} ({} refusals so far)", who, printable(why), refusals_));
    refusals_told_ = 2 * refusals_;
  }
  return {code, why};
}

grpc::ServerUnaryReactor* RemoteServer::Open(grpc::CallbackServerContext* context, const wire::OpenRequest* request,
                                             wire::OpenReply* reply) {
  return finish(context, open(*context, *request, *reply));
}

grpc::Status RemoteServer::open(const grpc::CallbackServerContext& context, const wire::OpenRequest& request,
                                wire::OpenReply& reply) {
  const std::string from = address_of(context.peer());
  std::string name = certified(context);
  if (name.empty()) {
    name = request.name();
  } else if (!request.name().empty() && request.name() != name) {
    return refused(fmt::format("{} ({})", name, from), grpc::PERMISSION_DENIED,
                   fmt::format("the certificate is {}'s, not {}'s: leave out --name", name, printable(request.name())));
  }
  if (const std::string fault = actor_name_fault(name); !fault.empty()) {
    return refused(from, grpc::INVALID_ARGUMENT, fmt::format("actor name \"{}\": {}", printable(name), fault));
  }
  if (request.protocol() != kProtocol) {
    return refused(
        fmt::format("{} ({})", name, from), grpc::FAILED_PRECONDITION,
        fmt::format("the learner is gipo {} (protocol {}), the actor gipo {} (protocol {}): install the same "
                    "version on both",
                    version(), kProtocol, printable(request.version()), request.protocol()));
  }
  Lock lock(mutex_);
  if (finished_) {
    if (untold_.erase(name) > 0) answered_ = seconds_now();
    return {grpc::OUT_OF_RANGE, kEnded};
  }
  if (!listening_) return {grpc::UNAVAILABLE, "the learner is about to begin or to end"};
  reply.set_run(places_->run());
  reply.set_name(plan_.name);
  reply.set_config(config_);
  if (request.edge()) {
    try {
      reply.set_edge(edge_description(plan_));
    } catch (const Error& e) {
      return refused(fmt::format("{} ({})", name, from), grpc::FAILED_PRECONDITION, e.what());
    }
  }
  if (request.agreement().empty()) return grpc::Status::OK;
  if (const std::string why = disagreement(agreement_, request.agreement()); !why.empty()) {
    return refused(fmt::format("{} ({})", name, from), grpc::FAILED_PRECONDITION,
                   why + ": packages or versions differ between the two hosts");
  }
  return take_place(request, name, from, reply, lock);
}

bool RemoteServer::in_use(const RemoteSession& session) const {
  return session.push || (!session.gone && seconds_now() - session.opened < kOpenWithoutStream);
}

grpc::Status RemoteServer::take_place(const wire::OpenRequest& request, const std::string& name,
                                      const std::string& from, wire::OpenReply& reply, Lock& lock) {
  const bool goes_on = !request.run().empty();
  std::optional<std::size_t> place;
  std::uint64_t incarnation = request.incarnation();
  if (goes_on) {
    // The same actor as before, after a break of its connection or of the learner.
    const std::size_t i = request.place();
    if (request.run() != places_->run() || i >= places_->size() || (*places_)[i].name != name ||
        (*places_)[i].incarnation != incarnation || incarnation < setup_->intake.oldest()) {
      return {grpc::NOT_FOUND, "its place is another's by now"};
    }
    place = i;
  } else {
    std::vector<bool> taken;
    for (const SessionPointer& s : sessions_) {
      taken.push_back(s && in_use(*s));
      // One name, one actor: where the first is alive it keeps its place.
      if (s && s->name == name && s->push) {
        return {grpc::RESOURCE_EXHAUSTED, fmt::format("{} is connected already, from {}", name, s->from)};
      }
      if (s && s->name == name) taken.back() = false;  // it opened and died
    }
    place = places_->choose(name, taken);
    if (!place) {
      return {grpc::RESOURCE_EXHAUSTED,
              fmt::format("all {} places of the run are taken (staleness.actors)", places_->size())};
    }
  }
  const SessionPointer before = sessions_[*place];
  const double now = seconds_now();
  if (before && now - before->opened < kBetweenOpens) return {grpc::RESOURCE_EXHAUSTED, "opened too often"};
  if (before) end_session(before, "replaced");
  if (before && before->busy) return {grpc::RESOURCE_EXHAUSTED, "a report of before is being taken"};
  try {
    if (!goes_on) {
      incarnation = places_->take(*place, name, std::max<std::uint64_t>(setup_->incarnation, 1));
    }
  } catch (const RunError& e) {
    refused(fmt::format("{} ({})", name, from), grpc::UNAVAILABLE, e.what());
    return {grpc::UNAVAILABLE, "the learner cannot write its run folder; see its log"};
  }
  const auto session = std::make_shared<RemoteSession>(plan_, *place);
  session->name = name;
  session->from = from;
  session->incarnation = incarnation;
  session->opened = session->heard = session->budget_at = session->paced_at = now;
  session->budget = 1e6 * options_.most_megabytes_per_second;
  // What it kept it may report beside what it will be leased. More than it could have kept is not believed.
  const std::int64_t most_kept = std::max<std::int64_t>(lead(), static_cast<std::int64_t>(plan_.capacity));
  session->allowed = goes_on ? std::clamp<std::int64_t>(request.kept_steps(), 0, most_kept) : 0;
  if (before && goes_on) session->saved = before->saved;
  const std::uint64_t first_env = *place * plan_.envs_per_actor;
  // From here on nothing is taken of the session before. Without our lock: the trainer asks things here while it holds
  // the intake.
  sessions_[*place] = session;
  ++busy_;
  lock.unlock();
  {
    const auto held = setup_->intake.hold();
    for (const HighWater::Mark& mark : setup_->intake.taken().marks()) {
      if (mark.actor == first_env && mark.incarnation == incarnation) session->received = mark.sequence + 1;
    }
  }
  lock.lock();
  --busy_;
  changed_.notify_all();
  if (!before && goes_on) session->saved = session->received;  // the learner was started again: all it has is saved
  session->key = random_key();                                 // its streams may come
  reply.set_key(session->key);
  reply.set_place(*place);
  reply.set_incarnation(incarnation);
  for (std::size_t e = 0; e < plan_.envs_per_actor; ++e) reply.add_first_episode(next_episode_[first_env + e]);
  reply.set_received(session->received);
  reply.set_saved(session->saved);
  reply.set_report_rounds(static_cast<std::uint32_t>(report_rounds(plan_)));
  return grpc::Status::OK;
}

// With the lock held.
void RemoteServer::end_session(const SessionPointer& session, const std::string& why) {
  if (session->push) session->push->end({grpc::ABORTED, why});
  if (session->weights) session->weights->end({grpc::ABORTED, why});
}

grpc::Status RemoteServer::find_session(const grpc::CallbackServerContext& context, SessionPointer& session) {
  const auto& metadata = context.client_metadata();
  const auto key = metadata.find(kKeyMetadata);
  const std::string name = certified(context);
  const Lock lock(mutex_);
  if (!listening_) return {grpc::UNAVAILABLE, "the learner is about to begin or to end"};
  for (const SessionPointer& s : sessions_) {
    if (!s || s->key.empty() || key == metadata.end() ||
        std::string_view(key->second.data(), key->second.size()) != s->key)
      continue;
    if (s->name != name && certified_) break;  // another's key
    session = s;
    return grpc::Status::OK;
  }
  return refused(fmt::format("{} ({})", name.empty() ? "a caller" : name, address_of(context.peer())),
                 grpc::UNAUTHENTICATED, "no such session: call Open first");
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* RemoteServer::Push(grpc::CallbackServerContext* context) {
  SessionPointer session;
  const Lock lock(mutex_);
  if (const grpc::Status status = find_session(*context, session); !status.ok()) return new PushStream(status);
  if (session->push) return new PushStream(grpc::Status(grpc::ALREADY_EXISTS, "this session has a stream"));
  auto* stream = new PushStream(*this, session);
  attach(session, stream);
  return stream;
}

void RemoteServer::attach(const SessionPointer& session, PushStream* stream) {
  session->push = stream;
  session->news = true;
  news_.push_back(fmt::format("{} came, incarnation {}", session->who(), session->incarnation));
  send(*session);
  changed_.notify_all();
}

// An actor that is gone has its lease ended for it, so that others may take those steps.
void RemoteServer::detach(const SessionPointer& session, PushStream* stream, bool lost) {
  const Lock lock(mutex_);
  if (session->push != stream) return;
  session->push = nullptr;
  session->gone = true;  // its place is free
  session->left = !lost;
  session->heard = seconds_now();
  if (!lost && sessions_[session->place] == session) untold_.erase(session->name);
  session->grants.clear();
  if (setup_ && !ending_) setup_->pacer.end(session->outstanding, 0);
  session->outstanding = 0;
  if (news_.size() < kMostNews) {
    news_.push_back(fmt::format("{} went after {} steps", session->who(), session->steps));
  }
  changed_.notify_all();
}

grpc::Status RemoteServer::take(const SessionPointer& session, grpc::ByteBuffer& request, double& pause) {
  {
    const Lock lock(mutex_);
    if (ending_) {
      pause = finished_ ? 0 : kNever;
      return grpc::Status::OK;
    }
    if (sessions_[session->place] != session) return {grpc::ABORTED, "replaced"};
    ++busy_;
    session->busy = true;
  }
  const std::size_t bytes = request.Length();
  grpc::Status status = grpc::Status::OK;
  try {
    read(session, request);
  } catch (const Error& e) {
    status = refused(session->who(), grpc::INVALID_ARGUMENT, e.what());
  } catch (const RunError& e) {
    status = refused(session->who(), grpc::INVALID_ARGUMENT, e.what());
  }
  const Lock lock(mutex_);
  pause = pause_for(*session, bytes);
  --busy_;
  session->busy = false;
  if (ending_) changed_.notify_all();
  return status;
}

// A PushRequest, whose reports are read out of gRPC's buffers.
void RemoteServer::read(const SessionPointer& session, grpc::ByteBuffer& request) {
  using google::protobuf::internal::WireFormatLite;
  constexpr auto kText = WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
  const auto need = [](bool ok) {
    if (!ok) throw Error("a message that is cut short or no message of an actor");
  };
  grpc::ProtoBufferReader buffers(&request);
  google::protobuf::io::CodedInputStream in(&buffers);
  while (const std::uint32_t tag = in.ReadTag()) {
    std::uint32_t size = 0;
    if (tag == WireFormatLite::MakeTag(wire::PushRequest::kReportsFieldNumber, kText)) {
      need(in.ReadVarint32(&size));
      take_reports(session, size, [&](char* out, std::size_t n) { need(in.ReadRaw(out, static_cast<int>(n))); });
    } else if (tag == WireFormatLite::MakeTag(wire::PushRequest::kFailureFieldNumber, kText)) {
      std::string failure;
      need(in.ReadVarint32(&size) && in.ReadString(&failure, static_cast<int>(size)));
      const Lock lock(mutex_);
      session->failed = true;
      if (warnings_.size() < kMostNews) {
        warnings_.push_back(fmt::format("{} failed: {}", session->who(), printable(failure)));
      }
    } else {
      need(WireFormatLite::SkipField(&in, tag));
    }
  }
  need(in.ConsumedEntireMessage());
}

void RemoteServer::take_reports(const SessionPointer& session, std::size_t bytes, const ByteReader::Source& next) {
  std::size_t before = 0;
  const ByteReader::Source counted = [&](char* out, std::size_t size) {
    next(out, size);
    bytes -= size;
  };
  while ((before = bytes) > 0) {
    ActorReport& report = session->decoder.decode(bytes, counted);
    const std::int64_t newest = setup_->store.get()->version;
    {
      const Lock lock(mutex_);
      check(*session, report);
      for (Episode& e : report.episodes) {
        e.version = std::min(e.version, newest);
        if (report.sequence >= session->received) e.number = next_episode_[e.env]++;
      }
    }
    // Chosen by weights that were lost with the learner: as if by those it was started again with.
    for (Segment& s : report.segments) {
      for (std::int64_t& v : s.version().subspan(0, s.length)) v = std::min(v, newest);
    }
    if (!report.rejections.last.empty()) {
      report.rejections.last = fmt::format("{}: {}", session->who(), printable(report.rejections.last));
    }
    count(session, report, before - bytes, setup_->intake.take_new(report));
  }
  const Lock lock(mutex_);
  // With the acknowledgement, where nobody has to wait for it.
  Leased leased = Leased::kOne;
  while (leased == Leased::kOne) leased = lease_at_once();
  if (leased == Leased::kMustWait) changed_.notify_all();
  lease_ahead(*session);
  send(*session);
}

// A place bounds what its actor may send: its own environments, its own incarnation, no more steps than were leased.
void RemoteServer::check(const RemoteSession& session, const ActorReport& report) const {
  const std::uint64_t first = session.place * plan_.envs_per_actor, end = first + plan_.envs_per_actor;
  if (report.actor != first || report.incarnation != session.incarnation) {
    throw Error(fmt::format("a report of place {}, incarnation {}, by the actor of place {}, incarnation {}",
                            report.actor / std::max<std::size_t>(plan_.envs_per_actor, 1), report.incarnation,
                            session.place, session.incarnation));
  }
  const auto own = [&](std::uint64_t env, const char* what) {
    if (env < first || env >= end) throw Error(fmt::format("{} of environment {}, which is another's", what, env));
  };
  for (const Segment& s : report.segments) own(s.actor, "a segment");
  for (const Episode& e : report.episodes) own(e.env, "an episode");
  if (report.steps > 2 * block_) {
    throw Error(fmt::format("a report of {} steps; {} are the most", report.steps, 2 * block_));
  }
  if (report.sequence >= session.received && report.steps > session.allowed - session.steps) {
    throw Error(fmt::format("{} steps, of which {} were not leased", report.steps,
                            report.steps - (session.allowed - session.steps)));
  }
  if (report.rejections.by_name.size() > kMostFaultNames) throw Error("too many kinds of fault");
  for (const auto& [name, n] : report.rejections.by_name) {
    if (name.size() > kLongestFaultName || printable(name) != name) throw Error("the name of a fault is no name");
    if (session.faults.size() >= kMostFaultNames && !session.faults.contains(name)) {
      throw Error("too many kinds of fault");
    }
  }
}

void RemoteServer::count(const SessionPointer& session, const ActorReport& report, std::size_t bytes, bool is_new) {
  const Lock lock(mutex_);
  ++session->reports;
  session->bytes += bytes;
  session->received = std::max(session->received, report.sequence + 1);
  session->news = true;
  if (is_new) {
    const std::int64_t leased = std::min(session->outstanding, report.steps);
    session->outstanding -= leased;
    session->steps += report.steps;
    for (const auto& [name, n] : report.rejections.by_name) session->faults[name] = true;
    session->paced += report.steps;
    setup_->pacer.end(leased, report.steps);
  } else {
    ++session->repeated;
  }
}

double RemoteServer::pause_for(RemoteSession& session, std::size_t bytes) {
  const double rate = 1e6 * options_.most_megabytes_per_second, now = seconds_now();
  session.budget = std::min(rate, session.budget + rate * (now - session.budget_at)) - static_cast<double>(bytes);
  session.budget_at = now;
  return session.budget < 0 ? -session.budget / rate : 0;
}

// With the lock held.
void RemoteServer::send(RemoteSession& session) {
  PushStream* stream = session.push;
  if (!stream || !stream->free() || (!session.news && session.grants.empty())) return;
  wire::PushReply reply;
  reply.set_received(session.received);
  reply.set_saved(session.saved);
  reply.set_ended(finished_);
  session.news = false;
  if (!session.grants.empty()) {
    reply.set_env_steps(session.grants.front().env_steps);
    reply.set_steps(session.grants.front().steps);
    session.grants.pop_front();
  }
  stream->write(reply);
}

// Sessions in turn, each with up to kLeases blocks under way.
RemoteServer::SessionPointer RemoteServer::next_to_lease() {
  for (std::size_t i = 0; i < sessions_.size(); ++i) {
    const SessionPointer& s = sessions_[(turn_ + i) % sessions_.size()];
    if (!s || !s->push || s->failed || s->outstanding > (kLeases - 1) * block_) continue;
    turn_ = (turn_ + i + 1) % sessions_.size();
    return s;
  }
  return nullptr;
}

void RemoteServer::lease() {
  while (true) {
    {
      Lock lock(mutex_);
      changed_.wait(lock, [&] {
        const std::size_t turn = turn_;
        const bool someone = next_to_lease() != nullptr;
        turn_ = turn;
        return ending_ || someone;
      });
      if (ending_) return;
    }
    // Whoever is next once the pacer agrees.
    const std::optional<std::int64_t> before = setup_->pacer.begin(block_);
    if (!before) return;
    const std::shared_ptr<const EncodedWeights> weights = newest_weights();
    const Lock lock(mutex_);
    const SessionPointer session = ending_ ? nullptr : next_to_lease();
    if (!session) {
      setup_->pacer.end(block_, 0);
      continue;
    }
    give(*session, *before, block_);
    if (session->weights) session->weights->offer(weights);
    send(*session);
  }
}

// With the lock held.
void RemoteServer::give(RemoteSession& session, std::int64_t env_steps, std::int64_t steps) {
  session.outstanding += steps;
  session.allowed += steps;
  if (!session.grants.empty() && session.grants.back().env_steps + session.grants.back().steps == env_steps) {
    session.grants.back().steps += steps;
  } else {
    session.grants.push_back({env_steps, steps});
  }
}

// Whoever is next, if anyone is. With the lock held.
RemoteServer::Leased RemoteServer::lease_at_once() {
  if (ending_) return Leased::kNobodyWaits;
  const std::size_t turn = turn_;
  const SessionPointer session = next_to_lease();
  if (!session) return Leased::kNobodyWaits;
  const std::shared_ptr<const EncodedWeights> weights = weights_at_once();
  const std::optional<std::int64_t> before = weights ? setup_->pacer.try_begin(block_) : std::nullopt;
  if (!before) {
    turn_ = turn;
    return Leased::kMustWait;
  }
  give(*session, *before, block_);
  if (session->weights) session->weights->offer(weights);
  send(*session);
  return Leased::kOne;
}

// An actor that makes more than its leases while an acknowledgement is on its way gets more of them, of what the pacer
// has beside those of all other places. With the lock held.
void RemoteServer::lease_ahead(RemoteSession& session) {
  const double now = seconds_now(), since = now - session.paced_at;
  if (since >= kAheadSeconds) {
    session.window = static_cast<std::int64_t>(kAheadSeconds * static_cast<double>(session.paced) / since);
    session.paced = 0;
    session.paced_at = now;
  }
  const std::int64_t blocks = (std::min(session.window, kMostAhead * block_) - session.outstanding) / block_;
  if (ending_ || !session.push || session.failed || session.window <= kLeases * block_ || blocks <= 0) return;
  const std::shared_ptr<const EncodedWeights> weights = weights_at_once();
  if (!weights) return;
  std::int64_t reserve = lead();
  for (const SessionPointer& s : sessions_) {
    if (s) reserve -= std::min(s->outstanding, kLeases * block_);
  }
  const Pacer::Ahead ahead = setup_->pacer.try_begin_ahead(block_, blocks, reserve);
  if (ahead.blocks == 0) return;
  give(session, ahead.env_steps, ahead.blocks * block_);
  if (session.weights) session.weights->offer(weights);
}

// None where they would have to be encoded first, which is left to the leasing thread.
std::shared_ptr<const EncodedWeights> RemoteServer::weights_at_once() {
  const std::unique_lock lock(weights_mutex_, std::try_to_lock);
  return lock && weights_ && weights_->version == setup_->store.get()->version ? weights_ : nullptr;
}

// Encoded once for all actors.
std::shared_ptr<const EncodedWeights> RemoteServer::newest_weights() {
  const std::shared_ptr<const gipo::Weights> newest = setup_->store.get();
  const std::lock_guard lock(weights_mutex_);
  if (weights_ && weights_->version == newest->version) return weights_;
  const auto next = std::make_shared<EncodedWeights>();
  next->version = newest->version;
  const bool with_critic = plan_.config.advantage.mode == AdvantageMode::kStored;
  next->bytes = bytes_of([&](ByteWriter& out) { newest->save(out, with_critic); });
  next->crc = crc32c(next->bytes);
  return weights_ = next;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* RemoteServer::Weights(grpc::CallbackServerContext* context,
                                                                  const grpc::ByteBuffer*) {
  SessionPointer session;
  Lock lock(mutex_);
  if (const grpc::Status status = find_session(*context, session); !status.ok()) return new WeightStream(status);
  ++busy_;
  lock.unlock();
  const std::shared_ptr<const EncodedWeights> weights = newest_weights();
  lock.lock();
  --busy_;
  changed_.notify_all();
  if (session->weights) return new WeightStream(grpc::Status(grpc::ALREADY_EXISTS, "this session has a stream"));
  session->weights = new WeightStream(*this, session);
  session->weights->offer(weights);
  return session->weights;
}

grpc::ServerUnaryReactor* RemoteServer::Status(grpc::CallbackServerContext* context, const wire::StatusRequest*,
                                               wire::StatusReply* reply) {
  reply->set_json(status_text());
  return finish(context, grpc::Status::OK);
}

std::string RemoteServer::status_text() {
  const Lock lock(mutex_);
  nlohmann::ordered_json out = {
      {"run", plan_.name}, {"version", version()}, {"protocol", kProtocol}, {"places", plan_.actors}};
  if (listening_) {
    out["update"] = setup_->store.get()->version;
    out["env_steps"] = setup_->pacer.env_steps();
  }
  out["refusals"] = refusals_;
  out["actors"] = nlohmann::ordered_json::array();
  for (const SessionPointer& s : sessions_) {
    if (!s) continue;
    out["actors"].push_back({{"name", s->name},
                             {"from", s->from},
                             {"place", s->place},
                             {"incarnation", s->incarnation},
                             {"connected", s->push != nullptr},
                             {"env_steps", s->steps},
                             {"reports", s->reports},
                             {"bytes", s->bytes},
                             {"repeated", s->repeated}});
  }
  return out.dump();
}

}  // namespace gipo
