// An actor driven by its four interfaces alone: here, on threads, and in another process.
#include "gipo/train/collect.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/core/stop.h"
#include "gipo/io/bytes.h"
#include "gipo/plan/plan.h"
#include "gipo/replay/replay_buffer.h"
#include "gipo/train/actor.h"
#include "gipo/train/intake.h"
#include "gipo/train/pacer.h"
#include "gipo/train/report_wire.h"
#include "gipo/train/weight_store.h"

namespace gipo {
namespace {

Plan small_plan() {
  LoadedConfig loaded;
  Config& c = loaded.config;
  c.env.count = 2;
  c.env.normalise_rewards = true;
  c.policy.hidden = {8};
  c.replay.segment_length = 8;
  c.replay.capacity = 400;
  c.staleness.actors = 3;
  return make_plan(loaded);
}

// Other ones for every round, the same for every actor.
Weights weights_of_round(const ModelSpec& model, std::int64_t round) {
  Weights w = initial_weights(model, RandomStream(static_cast<std::uint64_t>(round)));
  w.version = w.policy_version = round;
  return w;
}

struct RoundWeights : WeightSource {
  explicit RoundWeights(const ModelSpec& model, std::int64_t first = 0) : model(model), round(first) {}
  std::shared_ptr<const Weights> newest() override {
    return std::make_shared<Weights>(weights_of_round(model, round++));
  }
  const ModelSpec& model;
  std::int64_t round;
};

struct Rounds : StepLease {  // so many, then none
  explicit Rounds(std::int64_t n) : left(n) {}
  std::optional<std::int64_t> begin(std::int64_t steps) override {
    if (left-- == 0) return std::nullopt;
    leased += steps;
    return 3 * (leased - steps);
  }
  void end(std::int64_t was, std::int64_t n) override {
    ended += was;
    taken += n;
  }
  std::int64_t left, leased = 0, ended = 0, taken = 0;
};

struct Messages : ReportSink {
  void take(const ActorReport& report) override {
    encode_report(report, writer);
    all.push_back(writer.bytes());
  }
  ByteWriter writer;
  std::vector<std::string> all;
};

struct Trunk {  // what a learner's side is made of
  explicit Trunk(const Plan& plan)
      : replay(plan.replay_shape(), RandomStream(1)),
        intake(replay, plan.envs()),
        decoder(plan.segment_length, plan.transition()) {}
  ReplayBuffer replay;
  Intake intake;
  ReportDecoder decoder;
};

TEST(Collect, MessagesThatComeTwiceAndInAnyOrderOfActorsGiveTheReplayOfDirectInserts) {
  const Plan plan = small_plan();
  constexpr std::int64_t kRounds = 80;
  std::vector<Messages> sent(plan.actors);
  for (std::size_t i = 0; i < plan.actors; ++i) {
    Actor actor(actor_spec(plan, i));
    RoundWeights weights(plan.model);
    Rounds lease(kRounds);
    const Stop stop;
    collect(actor, weights, sent[i], lease, stop);
    EXPECT_EQ(lease.taken, kRounds * 2);
    EXPECT_EQ(lease.ended, lease.leased);
    ASSERT_EQ(sent[i].all.size(), static_cast<std::size_t>(kRounds));
  }

  // Each message up to three times, the second and third at any time after the first.
  Trunk far(plan);
  RandomStream random(7);
  std::vector<std::size_t> order, arrived(plan.actors);
  std::uint64_t repeats = 0;
  while (order.size() < plan.actors * kRounds) {
    const std::size_t i = random.below(plan.actors);
    if (arrived[i] < kRounds) {
      far.intake.take(far.decoder.decode(sent[i].all[arrived[i]++]));
      order.push_back(i);
    }
    for (std::uint64_t again = random.below(3); again > 0 && arrived[i] > 0; --again) {
      far.intake.take(far.decoder.decode(sent[i].all[random.below(arrived[i])]));
      ++repeats;
    }
  }

  ReplayBuffer direct(plan.replay_shape(), RandomStream(1));
  std::vector<std::unique_ptr<Actor>> actors;
  std::vector<std::int64_t> rounds(plan.actors);
  for (std::size_t i = 0; i < plan.actors; ++i) actors.push_back(std::make_unique<Actor>(actor_spec(plan, i)));
  std::size_t episodes = 0;
  for (const std::size_t i : order) {
    actors[i]->step(weights_of_round(plan.model, rounds[i]), 3 * 2 * rounds[i]);
    ++rounds[i];
    const ActorReport& report = actors[i]->report();
    for (const Segment& s : report.segments) EXPECT_TRUE(direct.insert(s));
    episodes += report.episodes.size();
  }
  EXPECT_GT(episodes, 10u);
  EXPECT_GT(direct.evicted(), 0u);
  EXPECT_EQ(far.replay.fingerprint(), direct.fingerprint());
  EXPECT_EQ(far.intake.arrived().episodes.size(), episodes);
  EXPECT_EQ(far.intake.passed_over(), repeats);
  EXPECT_EQ(far.replay.duplicates(), 0u) << "a repeated report is passed over before its segments are looked at";
}

TEST(Collect, StopsBetweenTwoRounds) {
  const Plan plan = small_plan();
  Actor actor(actor_spec(plan, 0));
  RoundWeights weights(plan.model);
  Rounds lease(1000);
  Stop stop;
  struct StopAfter : ReportSink {
    explicit StopAfter(Stop& stop) : stop(stop) {}
    void take(const ActorReport& report) override {
      EXPECT_EQ(report.sequence, reports);
      if (++reports == 5) stop.request();
    }
    Stop& stop;
    std::uint64_t reports = 0;
  } sink(stop);
  collect(actor, weights, sink, lease, stop);
  EXPECT_EQ(sink.reports, 5u);
  EXPECT_EQ(lease.taken, 5 * 2);
}

TEST(Collect, AnInterruptionEndsTheLeaseWithTheStepsThatThereWere) {
  const Plan plan = small_plan();
  Actor actor(actor_spec(plan, 0));
  struct NoMore : RoundWeights {
    using RoundWeights::RoundWeights;
    std::shared_ptr<const Weights> newest() override {
      return round == 3 ? throw Interrupted() : RoundWeights::newest();
    }
  } weights(plan.model);
  Rounds lease(1000);
  Messages sink;
  collect(actor, weights, sink, lease, Stop());
  EXPECT_EQ(sink.all.size(), 4u);
  EXPECT_EQ(lease.leased, 4 * 2);
  EXPECT_EQ(lease.ended, 4 * 2);
  EXPECT_EQ(lease.taken, 3 * 2);
}

TEST(AsyncCollect, ActorsOnThreadsShareSourceSinkAndLease) {
  const Plan plan = small_plan();
  Trunk here(plan);
  WeightStore store;
  store.publish(weights_of_round(plan.model, 0));
  Pacer pacer([](std::int64_t u) { return 60 + 12 * u; }, 24, false);
  Stop stop;
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < plan.actors; ++i) {
    threads.emplace_back([&, i] {
      Actor actor(actor_spec(plan, i));
      collect(actor, store, here.intake, pacer, stop);
    });
  }
  std::size_t episodes = 0;
  for (std::int64_t u = 0; u < 100 && pacer.wait_to_update(u); ++u) {
    {
      const auto held = here.intake.hold();
      episodes += here.intake.arrived().episodes.size();
      here.intake.arrived().episodes.clear();
    }
    store.publish(weights_of_round(plan.model, u + 1));
    pacer.updated(u + 1);
  }
  stop.request();
  pacer.stop();
  threads.clear();  // joins
  const auto steps = static_cast<std::uint64_t>(pacer.env_steps());
  EXPECT_GE(steps, 60u + 12u * 99u);
  EXPECT_LE(here.replay.inserted(), steps);
  EXPECT_GE(here.replay.inserted() + plan.envs() * (plan.segment_length - 1), steps) << "all but open segments";
  EXPECT_GT(episodes + here.intake.arrived().episodes.size(), 10u);
  EXPECT_EQ(here.intake.passed_over(), 0u);
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n <= 0) throw RunError("write failed");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

// Fewer where they end before.
std::string read_some(int fd, std::size_t size) {
  std::string bytes(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    const ssize_t n = read(fd, bytes.data() + have, size - have);
    if (n <= 0) break;
    have += static_cast<std::size_t>(n);
  }
  bytes.resize(have);
  return bytes;
}

// An actor in a process of its own, with a pipe each way.
class OtherProcess {
 public:
  // Of message `half` only a part is written, after which nothing more happens there.
  OtherProcess(const ActorSpec& spec, std::size_t half) {
    if (pipe(weights_) != 0 || pipe(reports_) != 0) throw RunError("no pipe");
    pid_ = fork();
    if (pid_ > 0) {
      close(std::exchange(weights_[0], -1));
      close(std::exchange(reports_[1], -1));
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(weights_[1]);
    close(reports_[0]);
    try {
      live(spec, half);
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  ~OtherProcess() {
    for (const int fd : {weights_[0], weights_[1], reports_[0], reports_[1]}) {
      if (fd >= 0) close(fd);
    }
    if (pid_ > 0) kill_and_wait();
  }
  void kill_and_wait() {
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  void send(const Weights& weights) {
    ByteWriter out;
    weights.save(out);
    const std::uint64_t size = out.bytes().size();
    write_all(weights_[1], {reinterpret_cast<const char*>(&size), sizeof size});
    write_all(weights_[1], out.bytes());
  }
  // What there is of the next message. begun: called when its beginning is there.
  std::string receive(const std::function<void()>& begun = [] {}) {
    std::string message = read_some(reports_[0], kReportHeadBytes);
    begun();
    return message + read_some(reports_[0], report_bytes(message) - kReportHeadBytes);
  }

 private:
  void live(const ActorSpec& spec, std::size_t half) {
    struct PipeWeights : WeightSource {
      std::shared_ptr<const Weights> newest() override {
        std::uint64_t size = 0;
        const std::string head = read_some(fd, sizeof size);
        if (head.size() < sizeof size) throw Interrupted();  // the other end is gone
        std::memcpy(&size, head.data(), sizeof size);
        const std::string bytes = read_some(fd, size);
        ByteReader in(bytes);
        auto weights = std::make_shared<Weights>(initial_weights(*model, RandomStream(99)));
        weights->load(in);
        return weights;
      }
      int fd = -1;
      const ModelSpec* model = nullptr;
    } weights;
    weights.fd = weights_[0];
    weights.model = &spec.model;
    struct PipeReports : ReportSink {
      void take(const ActorReport& report) override {
        encode_report(report, writer);
        const std::string_view message = writer.bytes();
        if (count++ != half) return write_all(fd, message);
        write_all(fd, message.substr(0, message.size() - 7));
        while (true) pause();
      }
      int fd = -1;
      std::size_t half = 0, count = 0;
      ByteWriter writer;
    } reports;
    reports.fd = reports_[1];
    reports.half = half;
    Rounds lease(-1);
    Actor actor(spec);
    collect(actor, weights, reports, lease, Stop());
  }

  int weights_[2] = {-1, -1}, reports_[2] = {-1, -1};  // read, write
  pid_t pid_ = -1;
};

TEST(Collect, AnActorInAnotherProcessThatIsKilledInTheMiddleOfAMessageLosesThatMessageAlone) {
  const Plan plan = small_plan();
  Trunk far(plan), near(plan);
  std::string late;
  const ActorSpec first = actor_spec(plan, 1, 0);
  {
    constexpr std::int64_t kWhole = 61;
    OtherProcess process(first, kWhole);
    for (std::int64_t r = 0; r < kWhole; ++r) {
      process.send(weights_of_round(plan.model, r));
      late = process.receive();
      far.intake.take(far.decoder.decode(late));
    }
    Actor actor(first);
    RoundWeights weights(plan.model);
    Rounds lease(kWhole);
    collect(actor, weights, near.intake, lease, Stop());
    EXPECT_GT(near.replay.segments(), 10u);
    EXPECT_EQ(far.replay.fingerprint(), near.replay.fingerprint());
    EXPECT_EQ(far.intake.arrived().episodes.size(), near.intake.arrived().episodes.size());

    process.send(weights_of_round(plan.model, kWhole));
    const std::string part = process.receive([&] { process.kill_and_wait(); });
    EXPECT_EQ(part.size() + 7, report_bytes(part));
    try {
      far.intake.take(far.decoder.decode(part));
      ADD_FAILURE() << "a message that is cut short was taken";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("cut short"), std::string::npos) << e.what();
    }
    EXPECT_EQ(far.replay.fingerprint(), near.replay.fingerprint()) << "nothing of it is there";
  }

  // Another takes its place, with the number of the episode that was under way.
  ActorSpec second = actor_spec(plan, 1, 1);
  second.first_episode.assign(second.envs, 0);
  for (const Episode& e : far.intake.arrived().episodes) second.first_episode[e.env - second.first_env] = e.number + 1;
  OtherProcess process(second, 1000);
  for (std::int64_t r = 0; r < 40; ++r) {
    process.send(weights_of_round(plan.model, r));
    far.intake.take(far.decoder.decode(process.receive()));
  }
  Actor actor(second);
  RoundWeights weights(plan.model);
  Rounds lease(40);
  const std::size_t before = near.intake.arrived().episodes.size();
  collect(actor, weights, near.intake, lease, Stop());
  EXPECT_EQ(far.replay.fingerprint(), near.replay.fingerprint());
  ASSERT_GT(near.intake.arrived().episodes.size(), before);
  const Episode& next = far.intake.arrived().episodes[before];
  EXPECT_EQ(next.number, second.first_episode[next.env - second.first_env]);

  far.intake.take(far.decoder.decode(late));
  EXPECT_EQ(far.intake.passed_over(), 1u) << "what an earlier incarnation sent arrives no more";
  EXPECT_EQ(far.replay.fingerprint(), near.replay.fingerprint());
}

}  // namespace
}  // namespace gipo
