#include "gipo/cli/session.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"
#include "gipo/cli/progress.h"
#include "gipo/train/trainer.h"

namespace gipo::cli {
namespace {

std::atomic<bool> stop_requested{false};

// The first signal ends the run after the update under way; the second ends the process at once.
extern "C" void on_signal(int) {
  if (stop_requested.exchange(true)) std::_Exit(kInterrupted);
}

std::string in_words(const ReturnStats& s) {
  if (s.episodes == 0) return "no episode";
  const std::string success =
      s.success_rate ? fmt::format(", success {:.2f}, at the last step {:.2f}", *s.success_rate, *s.success_rate_last)
                     : "";
  return fmt::format("{} +- {} ({} episodes{})", in_digits(s.mean), in_digits(s.std), s.episodes, success);
}

bool ended_well(const RunSummary& s) { return s.ended == "finished" || s.ended == "solved"; }

void print_result(const Plan& plan, const RunSummary& s) {
  fmt::print("{}: {} after {} updates, {} env steps, {:.1f} s\n", plan.name, s.ended, s.updates, s.env_steps,
             s.seconds);
  fmt::print("  training return, last 100 episodes: {}\n", in_words(s.final_return));
  if (ended_well(s)) fmt::print("  greedy evaluation:                  {}\n", in_words(s.eval_return));
  for (const auto& [name, value] : window_means(plan.run_dir + "/metrics.jsonl")) {
    for (const char* shown :
         {"old_frac", "old_gap_p95", "d95", "dead_frac", "near_zero_frac", "share_old", "ess_old_norm"}) {
      if (name == shown) fmt::print("  {:<35} {:.4g}\n", name + ", last 20%:", value);
    }
  }
  fmt::print("  files in {}\n", plan.run_dir);
}

}  // namespace

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

int run_session(const Plan& plan, RunFolder& folder, const Checkpoint* checkpoint, bool json, bool quiet) {
  const auto start = std::chrono::steady_clock::now();
  if (const char* ms = std::getenv("GIPO_TEST_SLOW_DISK_MS")) slow_durable_writes(std::atoi(ms));
  ProgressLine line(plan.name, quiet);
  if (!quiet) fmt::print(stderr, "{}\n", opening(plan));
  TrainerHooks hooks;
  hooks.seconds = [start] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  hooks.progress = [&](const Progress& p) { line.show(p); };
  hooks.warn = [&](const std::string& text) {
    line.end();
    fmt::print(stderr, "gipo: warning: {}\n", text);
  };
  hooks.stop = &stop_requested;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  Trainer trainer(plan, folder, hooks);
  if (checkpoint) trainer.restore(*checkpoint);
  const RunSummary result = trainer.run();
  line.end();

  if (json) {
    auto summary = nlohmann::ordered_json::parse(read_file(plan.run_dir + "/summary.json"));
    summary["run_dir"] = plan.run_dir;
    fmt::print("{}\n", summary.dump(2));
  } else {
    print_result(plan, result);
  }
  return ended_well(result) ? kDone : kInterrupted;
}

}  // namespace gipo::cli
