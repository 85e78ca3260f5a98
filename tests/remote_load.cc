// Loads that no real run makes, for tests/test_cluster_load.py and bench/cluster.py. Prints a line of JSON each.
//
//   remote_load actors ADDRESS CERTS COUNT DELAY_MS    as many actors in one process, each of which waits before each round
//   remote_load serve LISTEN CERTS CONFIG [--set ...]  a learner's service that takes everything and learns nothing
//   remote_load send ADDRESS CERTS COUNT SECONDS       segments to it by as many actors, as fast as it takes them
//   remote_load join ADDRESS CERTS COUNT               as many actors that wait for the first weights
//   remote_load bare-serve LISTEN CERTS                bare gRPC streams, of the same messages
//   remote_load bare-send ADDRESS CERTS COUNT SECONDS BYTES
//   remote_load bare-join ADDRESS CERTS COUNT BYTES
//
// CERTS: a folder, or - for none. The services end with their input.

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <learner.grpc.pb.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <deque>
#include <functional>
#include <latch>
#include <mutex>
#include <thread>

#include "gipo/core/error.h"
#include "gipo/core/stop.h"
#include "gipo/io/files.h"
#include "gipo/plan/automatic.h"
#include "gipo/plan/plan.h"
#include "gipo/policy/weights.h"
#include "gipo/remote/agreement.h"
#include "gipo/remote/grpc/clock.h"
#include "gipo/remote/grpc/transport.h"
#include "gipo/remote/names.h"
#include "gipo/remote/remote.h"
#include "gipo/replay/replay_buffer.h"
#include "gipo/train/actor.h"
#include "gipo/train/intake.h"
#include "gipo/train/pacer.h"
#include "gipo/train/weight_store.h"

namespace gipo {
namespace {

std::string folder_of(const std::string& certs) { return certs == "-" ? "" : certs; }

void in_threads(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (std::thread& t : threads) t.join();
}

ConnectOptions connect_options(const std::string& address, const std::string& certs, std::size_t i) {
  ConnectOptions options;
  options.address = address;
  options.certificates = folder_of(certs);
  // With certificates a name each; without, the names say who is who.
  if (certs == "-") {
    options.name = fmt::format("a{}", i);
  } else {
    options.certificates += fmt::format("/a{}", i);
  }
  options.wait_seconds = 120;
  return options;
}

Plan plan_of(RemoteLearner& learner) { return make_plan(parse_config(learner.ask(), "config of the learner")); }

// A simulator or robot that takes its time, as the lease of each round shows it.
class SlowLease : public StepLease {
 public:
  SlowLease(StepLease& lease, std::chrono::milliseconds delay) : lease_(lease), delay_(delay) {}
  std::optional<std::int64_t> begin(std::int64_t steps) override {
    std::this_thread::sleep_for(delay_);
    return lease_.begin(steps);
  }
  void end(std::int64_t leased, std::int64_t taken) override { lease_.end(leased, taken); }

 private:
  StepLease& lease_;
  const std::chrono::milliseconds delay_;
};

// When each report was made, and how long until the learner had it.
class Timed : public ReportSink {
 public:
  explicit Timed(ReportSink& sink) : sink_(sink) {}
  void take(const ActorReport& report) override {
    steps += report.steps;
    {
      const std::lock_guard lock(mutex_);
      made_.push_back({report.sequence, seconds_now()});
    }
    sink_.take(report);
  }
  bool due() override { return sink_.due(); }
  void received(std::uint64_t next) {
    const std::lock_guard lock(mutex_);
    while (!made_.empty() && made_.front().first < next) {
      seconds.push_back(seconds_now() - made_.front().second);
      made_.pop_front();
    }
  }

  std::int64_t steps = 0;
  std::vector<double> seconds;  // once all is over

 private:
  ReportSink& sink_;
  std::mutex mutex_;
  std::deque<std::pair<std::uint64_t, double>> made_;
};

double quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

int actors(const std::string& address, const std::string& certs, std::size_t count, int delay_ms) {
  const Stop stop;
  const Plan plan = plan_of(*connect_to_learner(connect_options(address, certs, 0), stop));
  std::mutex mutex;
  std::vector<double> seconds, steps;
  int rejoined = 0;
  in_threads(count, [&](std::size_t i) {
    ConnectOptions options = connect_options(address, certs, i);
    std::atomic<Timed*> timed{nullptr};
    options.acknowledged = [&](std::uint64_t next) {
      if (Timed* const t = timed.load()) t->received(next);
    };
    const std::unique_ptr<RemoteLearner> learner = connect_to_learner(options, stop);
    while (true) {
      const RemotePlace place = learner->join(plan);
      ActorSpec spec = actor_spec(plan, place.index, place.incarnation);
      spec.first_episode = place.first_episode;
      Actor actor(std::move(spec), &stop);
      Timed sink(*learner);
      timed = &sink;
      SlowLease lease(*learner, std::chrono::milliseconds(delay_ms));
      collect(actor, *learner, sink, lease, stop);
      const RemoteLearner::End end = learner->leave();
      timed = nullptr;
      const std::lock_guard lock(mutex);
      seconds.insert(seconds.end(), sink.seconds.begin(), sink.seconds.end());
      steps.push_back(static_cast<double>(sink.steps));
      if (end != RemoteLearner::End::kReplaced) break;
      ++rejoined;
    }
  });
  fmt::print(
      "{{\"actors\": {}, \"rejoined\": {}, \"acknowledgements\": {}, \"p50_ms\": {:.1f}, \"p99_ms\": {:.1f}, "
      "\"most_ms\": "
      "{:.1f}, \"steps_least\": {}, \"steps_median\": {}, \"steps_most\": {}}}\n",
      count, rejoined, seconds.size(), 1e3 * quantile(seconds, 0.5), 1e3 * quantile(seconds, 0.99),
      1e3 * quantile(seconds, 1), quantile(steps, 0), quantile(steps, 0.5), quantile(steps, 1));
  return 0;
}

void wait_for_the_end_of_input() {
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

int serve(const std::string& listen, const std::string& certs, const std::string& config,
          const std::vector<std::string>& overrides) {
  const Plan plan = make_plan(choose_config(config, [&](LoadedConfig& loaded) {
                                for (const std::string& o : overrides) apply_override(loaded, o);
                                apply_override(loaded, "run.mode=async");
                              }).loaded);
  make_folder(plan.run_dir);  // for who has which place
  const std::unique_ptr<Listener> listener = listen_for_actors(plan, {listen, folder_of(certs), 1e6});
  ReplayBuffer replay(plan.replay_shape(), RandomStream::derive(1, "replay"));
  Intake intake(replay, plan.envs());
  WeightStore store;
  store.publish(initial_weights(plan.model, RandomStream::derive(1, "weights")));
  Pacer pacer([](std::int64_t) { return std::int64_t{0}; }, 0, true);
  listener->begin({intake, store, pacer, std::vector<std::int64_t>(plan.envs()), 1});
  listener->listen();
  fmt::print("{}\n", listener->address());
  std::fflush(stdout);
  // As if a checkpoint were written now and then: actors need not keep what it has.
  const std::jthread saves([&](const std::stop_token& ended) {
    while (!ended.stop_requested()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
      std::vector<HighWater::Mark> marks;
      {
        const auto held = intake.hold();
        marks = intake.taken().marks();
      }
      listener->saved(marks);
    }
  });
  wait_for_the_end_of_input();
  pacer.stop();
  listener->end(true);
  return 0;
}

struct Sent {
  std::uint64_t messages = 0;
  std::size_t bytes = 0;  // of one
  double rate = 0;        // bytes per second
};

Sent send_one(const std::string& address, const std::string& certs, std::size_t number, double seconds,
              std::latch& all_here) {
  const Stop stop;
  const std::unique_ptr<RemoteLearner> learner = connect_to_learner(connect_options(address, certs, number), stop);
  const Plan plan = plan_of(*learner);
  const RemotePlace place = learner->join(plan);
  ActorReport report;
  report.actor = place.index * plan.envs_per_actor;
  report.incarnation = place.incarnation;
  report.segments.emplace_back(plan.segment_length, plan.transition());
  Segment& s = report.segments[0];
  s.incarnation = place.incarnation;
  s.length = plan.segment_length;
  const auto rounds = static_cast<std::int64_t>(report_rounds(plan)),
             round = static_cast<std::int64_t>(plan.envs_per_actor);
  std::size_t bytes = 0;
  for (std::size_t c = 0; c < s.layout().columns.size(); ++c) bytes += s.filled(c).size();
  std::uint64_t sent = 0;
  all_here.arrive_and_wait();  // what the others need to join would be counted otherwise
  const double begun = seconds_now();
  for (; seconds_now() - begun < seconds; ++sent) {
    // Of all environments together a segment's worth of steps has one segment.
    report.steps = 0;
    while (report.steps < rounds * round && learner->begin(round)) report.steps += round;
    report.sequence = sent;
    s.actor = report.actor + sent % plan.envs_per_actor;
    s.sequence = sent / plan.envs_per_actor;
    learner->take(report);
  }
  learner->leave();
  return {sent, bytes, static_cast<double>(sent * bytes) / (seconds_now() - begun)};
}

// As many at the same time.
int in_parallel(std::size_t count, const std::function<Sent(std::size_t)>& one) {
  std::vector<Sent> all(count);
  in_threads(count, [&](std::size_t i) { all[i] = one(i); });
  std::uint64_t messages = 0;
  double rate = 0;
  for (const Sent& s : all) messages += s.messages, rate += s.rate;
  fmt::print("{{\"actors\": {}, \"messages\": {}, \"bytes\": {}, \"megabytes_per_second\": {:.1f}}}\n", count, messages,
             all[0].bytes, 1e-6 * rate);
  return 0;
}

int join(const std::string& address, const std::string& certs, std::size_t count) {
  const Stop stop;
  const Plan plan = plan_of(*connect_to_learner(connect_options(address, certs, 0), stop));
  const double begun = seconds_now();
  std::vector<std::unique_ptr<RemoteLearner>> all(count);
  in_threads(count, [&](std::size_t i) {
    all[i] = connect_to_learner(connect_options(address, certs, i), stop);
    all[i]->join(plan);
  });
  const double taken = seconds_now() - begun;
  const double bytes = 4.0 * static_cast<double>(parameter_count(plan.model, Part::kPolicy));
  fmt::print("{{\"actors\": {}, \"bytes\": {:.0f}, \"seconds\": {:.3f}}}\n", count, bytes, taken);
  return 0;
}

// What gRPC itself makes of the same messages.
class BareService final : public wire::Learner::Service {
  grpc::Status Push(grpc::ServerContext*,
                    grpc::ServerReaderWriter<wire::PushReply, wire::PushRequest>* stream) override {
    wire::PushRequest request;
    wire::PushReply reply;
    for (std::uint64_t n = 1; stream->Read(&request); ++n) {
      reply.set_received(n);
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }
  grpc::Status Weights(grpc::ServerContext* context, const wire::WeightsRequest*,
                       grpc::ServerWriter<wire::WeightsReply>* stream) override {
    const auto size = context->client_metadata().find("bytes")->second;
    std::size_t left = std::stoull(std::string(size.data(), size.size()));
    wire::WeightsReply reply;
    for (; left > 0; left -= std::min(left, kWeightsPart)) {
      reply.set_part(std::string(std::min(left, kWeightsPart), 'x'));
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }
};

int bare_serve(const std::string& listen, const std::string& certs) {
  BareService service;
  grpc::ServerBuilder builder;
  int port = 0;
  const HostPort address = parse_host_port(listen, "LISTEN");
  builder.AddListeningPort(address.text(), server_credentials(folder_of(certs), address), &port);
  builder.RegisterService(&service);
  builder.SetMaxReceiveMessageSize(1 << 30);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  fmt::print("{}\n", HostPort{address.host, static_cast<std::uint16_t>(port)}.text());
  std::fflush(stdout);
  wait_for_the_end_of_input();
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

std::unique_ptr<wire::Learner::Stub> bare_stub(const std::string& address, const std::string& certs) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const std::string folder = certs == "-" ? "" : certs + "/a0";
  return wire::Learner::NewStub(
      grpc::CreateCustomChannel(address, channel_credentials(folder, parse_host_port(address, "ADDRESS")), arguments));
}

Sent bare_send(const std::string& address, const std::string& certs, double seconds, std::size_t bytes) {
  const auto stub = bare_stub(address, certs);
  grpc::ClientContext context;
  const auto stream = stub->Push(&context);
  wire::PushRequest request;
  request.set_reports(std::string(bytes, 'x'));
  std::uint64_t sent = 0;
  const double begun = seconds_now();
  std::thread replies([&] {
    wire::PushReply reply;
    while (stream->Read(&reply)) {
    }
  });
  for (; seconds_now() - begun < seconds; ++sent) stream->Write(request);
  stream->WritesDone();
  replies.join();
  stream->Finish();
  return {sent, bytes, static_cast<double>(sent * bytes) / (seconds_now() - begun)};
}

int bare_join(const std::string& address, const std::string& certs, std::size_t count, const std::string& bytes) {
  const double begun = seconds_now();
  in_threads(count, [&](std::size_t) {
    const auto stub = bare_stub(address, certs);
    grpc::ClientContext context;
    context.AddMetadata("bytes", bytes);
    const auto stream = stub->Weights(&context, {});
    wire::WeightsReply reply;
    while (stream->Read(&reply)) {
    }
    stream->Finish();
  });
  fmt::print("{{\"actors\": {}, \"bytes\": {}, \"seconds\": {:.3f}}}\n", count, bytes, seconds_now() - begun);
  return 0;
}

int run(const std::vector<std::string>& words) {
  const auto word = [&](std::size_t i) { return i < words.size() ? words[i] : throw Error("a word is missing"); };
  const std::string mode = word(0), address = word(1), certs = word(2);
  if (mode == "actors") return actors(address, certs, std::stoull(word(3)), std::stoi(word(4)));
  if (mode == "serve") return serve(address, certs, word(3), {words.begin() + 4, words.end()});
  if (mode == "send") {
    std::latch all_here(std::stol(word(3)));
    return in_parallel(std::stoull(word(3)),
                       [&](std::size_t i) { return send_one(address, certs, i, std::stod(word(4)), all_here); });
  }
  if (mode == "join") return join(address, certs, std::stoull(word(3)));
  if (mode == "bare-serve") return bare_serve(address, certs);
  if (mode == "bare-send") {
    return in_parallel(std::stoull(word(3)), [&](std::size_t) {
      return bare_send(address, certs, std::stod(word(4)), std::stoull(word(5)));
    });
  }
  if (mode == "bare-join") return bare_join(address, certs, std::stoull(word(3)), word(4));
  throw Error("unknown mode " + mode);
}

}  // namespace
}  // namespace gipo

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    return gipo::run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    fmt::print(stderr, "remote_load: {}\n", e.what());
    return 1;
  }
}
