#include "gipo/remote/remote.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gipo/bench/clock.h"
#include "gipo/cli/commands.h"
#include "gipo/cli/ranks.h"
#include "gipo/cli/session.h"
#include "gipo/core/error.h"
#include "gipo/core/stop.h"
#include "gipo/plan/memory.h"
#include "gipo/run/first_weights.h"
#include "gipo/run/resume.h"
#include "gipo/train/actor.h"

namespace gipo::cli {
namespace {

// Options that are each host's own: they change where and how patiently environments run, not what they do.
constexpr const char* kHostOptions[] = {"env.python", "env.workers", "env.step_timeout"};

void apply_host_option(LoadedConfig& loaded, const std::string& assignment) {
  const std::string key = assignment.substr(0, assignment.find('='));
  if (std::ranges::find(kHostOptions, key) == std::end(kHostOptions)) {
    throw Error(fmt::format(
        "--set {} is not accepted by an actor: wanted env.python, env.workers or env.step_timeout; the rest is the "
        "learner's",
        assignment));
  }
  apply_override(loaded, assignment);
}

// Only async runs have actors that come and go.
ChosenConfig load_learning(const LearnArguments& a, const std::optional<RankPlace>& place) {
  ChosenConfig config = load_training(a, place);
  LoadedConfig& loaded = config.loaded;
  if (const auto set = loaded.origins.find("run.mode"); set == loaded.origins.end()) {
    set_option(loaded, "run.mode", std::string("async"), "learn");
  } else if (loaded.config.run.mode == RunMode::kLockstep) {
    throw Error(fmt::format("{}: run.mode = \"lockstep\" is not accepted by learn: wanted async", set->second));
  }
  if (loaded.config.advantage.mode == AdvantageMode::kGroup) {
    throw Error(
        fmt::format("{}: advantage.mode = \"group\" is not accepted by learn: a group waits in its actor until it is "
                    "whole, and one "
                    "that leaves would lose it; wanted vtrace, gae or stored",
                    origin_of(loaded.origins, "advantage.mode")));
  }
  return config;
}

}  // namespace

int learn(const LearnArguments& a) {
  if (!has_remote()) throw Error(kAddGrpc);
  const std::optional<RankPlace> place = rank_place();
  if (place && place->rank > 0) return serve(*place);
  const auto [loaded, chosen] = load_learning(a, place);
  const Plan plan = make_plan(loaded);
  if (plan.config.learner.ranks > 1 && !place) {
    return launch_ranks(plan.config.learner, plan.run_dir, [](Words words) {
      std::erase(words, "--overwrite");
      if (std::ranges::find(words, "--resume") == words.end()) words.emplace_back("--resume");
      return words;
    });
  }
  const ListenOptions options{a.listen, a.certificates, a.megabytes_per_second};
  const auto say = [&](const Listener& listener) {
    if (!a.quiet) fmt::print(stderr, "listening on {}\n", listener.address());
  };
  // Without a checkpoint no actor was answered yet: there is nothing to continue.
  const bool begun = !list_checkpoints(plan.run_dir + "/" + kCheckpointFolder).empty();
  if (a.resume && begun) {
    const ResumePoint point = find_resume_point(plan.run_dir, {});
    for (const std::string& text : point.passed_over) fmt::print(stderr, "gipo: {}\n", text);
    const std::unique_ptr<Listener> listener = listen_for_actors(point.plan, options);
    const std::shared_ptr<RankGroup> ranks = place ? join_ranks(*place) : nullptr;
    listen_for_signals();
    RunFolder folder(point.plan, a.command_line, wall_time, point.positions);
    if (!a.quiet) fmt::print(stderr, "{}: resumed at update {}\n", point.plan.name, point.checkpoint.update);
    say(*listener);
    return run_session(point.plan, folder, {&point.checkpoint, {}, nullptr, ranks}, a.json, a.quiet, listener.get());
  }
  const std::shared_ptr<const Weights> first = first_weights(plan, loaded.origins);
  refuse_what_does_not_fit(plan, loaded.origins);
  const std::unique_ptr<Listener> listener = listen_for_actors(plan, options);
  const std::shared_ptr<RankGroup> ranks = place ? join_ranks(*place) : nullptr;
  listen_for_signals();
  if (a.overwrite || a.resume) remove_run(plan.run_dir);
  RunFolder folder(plan, a.command_line, wall_time);
  tell(chosen, folder, a.quiet);
  say(*listener);
  return run_session(plan, folder, {nullptr, first, nullptr, ranks}, a.json, a.quiet, listener.get());
}

int actor(const ActorArguments& a) {
  ConnectOptions options;
  options.address = a.address;
  options.certificates = a.certificates;
  options.name = a.name;
  options.ledger = a.ledger;
  options.wait_seconds = a.wait;
  options.most_kept_bytes = static_cast<std::size_t>(a.keep) << 20;
  options.say = [&](const std::string& text) {
    if (!a.quiet) fmt::print(stderr, "gipo: {}\n", text);
  };
  LoadedConfig checked;  // before anyone is waited for
  for (const std::string& assignment : a.overrides) apply_host_option(checked, assignment);
  listen_for_signals();
  const Stop stop(&stop_flag());
  const std::unique_ptr<RemoteLearner> learner = connect_to_learner(options, stop);
  try {
    while (true) {
      LoadedConfig loaded = parse_config(learner->ask(), "config of the learner at " + a.address);
      for (const std::string& assignment : a.overrides) apply_host_option(loaded, assignment);
      const Plan plan = make_plan(loaded);
      const RemotePlace place = learner->join(plan);
      if (stop.requested()) return kInterrupted;
      options.say(fmt::format("{}: actor at place {}, incarnation {}, {} environments of {}", plan.name, place.index,
                              place.incarnation, plan.envs_per_actor, plan.env.id));
      ActorSpec spec = actor_spec(plan, place.index, place.incarnation);
      spec.first_episode = place.first_episode;
      RemoteLearner::End end;
      try {
        Actor worker(std::move(spec), &stop);
        collect(worker, *learner, *learner, *learner, stop);
        end = learner->leave();
      } catch (const RunError& e) {
        learner->leave(e.what());
        throw;
      }
      if (end == RemoteLearner::End::kFinished) {
        options.say("the run has ended");
        return kDone;
      }
      if (end == RemoteLearner::End::kStopped) return kInterrupted;
      options.say("the place is another's, or the run is another: beginning anew");
    }
  } catch (const RunEnded& e) {
    options.say(e.what());
    return kDone;
  } catch (const Interrupted&) {
    return kInterrupted;
  }
}

int status(const StatusArguments& a) {
  ConnectOptions options;
  options.address = a.address;
  options.certificates = a.certificates;
  const auto status = nlohmann::ordered_json::parse(remote_status(options));
  if (a.json) {
    fmt::print("{}\n", status.dump(2));
    return kDone;
  }
  fmt::print("{}: update {}, {} env steps, {} places, {} refusals\n", status.at("run").get<std::string>(),
             status.value("update", std::int64_t{0}), status.value("env_steps", std::int64_t{0}),
             status.at("places").get<std::int64_t>(), status.at("refusals").get<std::int64_t>());
  for (const auto& actor : status.at("actors")) {
    fmt::print("  place {} {} ({}), incarnation {}: {} env steps, {}\n", actor.at("place").get<std::int64_t>(),
               actor.at("name").get<std::string>(), actor.at("from").get<std::string>(),
               actor.at("incarnation").get<std::int64_t>(), actor.at("env_steps").get<std::int64_t>(),
               actor.at("connected").get<bool>() ? "connected" : "gone");
  }
  return kDone;
}

int certs(const CertsArguments& a) {
  for (const std::string& file : make_certificates(a.folder, a.hosts, a.actors, a.days)) fmt::print("{}\n", file);
  return kDone;
}

}  // namespace gipo::cli
