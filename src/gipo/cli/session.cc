#include "gipo/cli/session.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gipo/bench/clock.h"
#include "gipo/cli/commands.h"
#include "gipo/cli/progress.h"
#include "gipo/core/signals.h"
#include "gipo/train/trainer.h"

namespace gipo::cli {
namespace {

SignalRequest request;

// The first signal ends the run with a checkpoint; a second one, later, ends the process at once.
extern "C" void on_signal(int) {
  const SignalRequest::Heard heard = request.hear();
  if (heard == SignalRequest::Heard::kFirst) SignalRequest::say_stopping();
  if (heard == SignalRequest::Heard::kAgain) std::_Exit(kInterrupted);
}

std::string in_words(const ReturnStats& s) {
  if (s.episodes == 0) return "no episode";
  const std::string success =
      s.success_rate ? fmt::format(", success {:.2f}, at the last step {:.2f}", *s.success_rate, *s.success_rate_last)
                     : "";
  return fmt::format("{} +- {} ({} episodes{})", in_digits(s.mean), in_digits(s.std), s.episodes, success);
}

void print_result(const Plan& plan, const RunSummary& s) {
  fmt::print("{}: {} after {} updates, {} env steps, {:.1f} s\n", plan.name, s.ended, s.updates, s.env_steps,
             s.seconds);
  if (!plan.clones()) fmt::print("  training return, last 100 episodes: {}\n", in_words(s.final_return));
  if (ended_well(s.ended)) fmt::print("  greedy evaluation:                  {}\n", in_words(s.eval_return));
  for (const auto& [name, value] : last_means(plan.run_dir + "/metrics.jsonl")) {
    for (const char* shown : {"old_frac", "old_gap_p95", "d95", "dead_frac", "near_zero_frac", "share_old",
                              "ess_old_norm", "learned_log_likelihood", "learned_accuracy", "heldout_log_likelihood",
                              "heldout_accuracy", "heldout_action_error"}) {
      if (name == shown) fmt::print("  {:<35} {:.4g}\n", name + ", last 20%:", value);
    }
  }
  fmt::print("  files in {}\n", plan.run_dir);
}

}  // namespace

void listen_for_signals() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

const std::atomic<bool>& stop_flag() { return request.stop(); }

int run_session(const Plan& plan, RunFolder& folder, const Beginning& beginning, bool json, bool quiet,
                RemoteActors* remote) {
  const double start = steady_time();
  ProgressLine line(plan.name, quiet);
  if (!quiet) fmt::print(stderr, "{}\n", opening(plan));
  TrainerHooks hooks;
  hooks.seconds = [start] { return steady_time() - start; };
  hooks.progress = [&](const Progress& p) { line.show(p); };
  hooks.warn = [&](const std::string& text) {
    line.end();
    fmt::print(stderr, "gipo: warning: {}\n", text);
  };
  hooks.stop = &request.stop();
  hooks.remote = remote;
  hooks.demonstrations = beginning.demonstrations;
  hooks.ranks = beginning.ranks;
  Trainer trainer(plan, folder, hooks, beginning.weights);
  if (beginning.checkpoint) trainer.restore(*beginning.checkpoint);
  const RunSummary result = trainer.run();
  line.end();

  if (json) {
    auto summary = nlohmann::ordered_json::parse(read_file(plan.run_dir + "/summary.json"));
    summary["run_dir"] = plan.run_dir;
    fmt::print("{}\n", summary.dump(2));
  } else {
    print_result(plan, result);
  }
  return ended_well(result.ended) ? kDone : kInterrupted;
}

}  // namespace gipo::cli
