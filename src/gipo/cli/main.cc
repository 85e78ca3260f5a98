#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "gipo/cli/commands.h"
#include "gipo/cli/study_commands.h"
#include "gipo/core/error.h"
#include "gipo/env/mujoco/library.h"
#include "gipo/train/version.h"

namespace {

using namespace gipo::cli;

// Quotes what a shell would take apart, so that the saved command can be pasted.
std::string command_line(int argc, char** argv) {
  std::string line = "gipo";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+") ==
                                            std::string::npos;
    std::string quoted;
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += plain ? " " + word : " '" + quoted + "'";
  }
  return line;
}

int run(int argc, char** argv) {
  CLI::App app{"gipo: reinforcement learning from replay of any age"};
  app.set_version_flag("--version", [] {
    return "gipo " + gipo::version() + " (" + gipo::commit() + ")\nMuJoCo " + gipo::mujoco_in_use();
  });
  app.require_subcommand(1);
  app.footer("Options of a run: gipo list options. Documentation: docs/quickstart.md.");

  TrainArguments t;
  CLI::App* train_command = app.add_subcommand("train", "Train a policy; writes a run folder");
  train_command->add_option("config", t.config, "TOML file with options; without one, the defaults");
  train_command->add_option("--set", t.overrides, "Set an option: group.name=value; may be repeated")
      ->allow_extra_args(false);
  train_command->add_option("--seed", t.seed, "Root seed, the same as --set run.seed=N");
  train_command->add_option("--name", t.name, "Name of the run folder, the same as --set run.name=NAME");
  train_command->add_flag("--dry-run", t.dry_run,
                          "Print the resolved config, the dial and an estimate; create nothing");
  train_command->add_flag("--overwrite", t.overwrite, "Remove an earlier run folder of the same name first");
  train_command->add_flag("--json", t.json, "Print the summary as one JSON object on stdout");
  train_command->add_flag("--quiet", t.quiet, "No progress on stderr");

  ResumeArguments r;
  CLI::App* resume_command = app.add_subcommand("resume", "Go on with a run from its newest whole checkpoint");
  resume_command->add_option("run", r.run, "Run folder")->required();
  resume_command->add_option("--updates", r.updates, "Lengthen the run to this many updates");
  resume_command->add_flag("--json", r.json, "Print the summary as one JSON object on stdout");
  resume_command->add_flag("--quiet", r.quiet, "No progress on stderr");

  EvalArguments e;
  CLI::App* eval_command = app.add_subcommand("eval", "Play episodes with the policy of a run");
  eval_command->add_option("run", e.run, "Run folder")->required();
  eval_command->add_option("--episodes", e.episodes, "Episodes to play")->check(CLI::Range(1, 1000000));
  eval_command->add_option("--seed", e.seed, "Seed of the episodes");
  eval_command->add_flag("--sampled", e.sampled, "Sample actions instead of taking the most likely");
  eval_command->add_flag("--json", e.json, "Print one JSON object on stdout");

  DoctorArguments d;
  CLI::App* doctor_command = app.add_subcommand("doctor", "Check a run folder: what is whole, what is not, what to do");
  doctor_command->add_option("run", d.run, "Run folder")->required();
  doctor_command->add_flag("--json", d.json, "Print one JSON object on stdout");

  BenchArguments b;
  CLI::App* bench_command = app.add_subcommand("bench", "Measure this machine: each figure beside a reference");
  bench_command->add_option("names", b.names, "learner, inference, replay, env, train, scaling; without any, all");
  bench_command->add_flag("--json", b.json, "Print a JSON array on stdout");

  ListArguments l;
  CLI::App* list_command = app.add_subcommand("list", "Show what there is: envs, surrogates or options");
  list_command->add_option("what", l.what, "envs, surrogates or options")
      ->required()
      ->check(CLI::IsMember({"envs", "surrogates", "options"}));
  list_command->add_flag("--json", l.json, "Print a JSON array on stdout");
  list_command->add_flag("--markdown", l.markdown, "options, envs: print the page docs/options.md or docs/tasks.md");

  std::function<int()> chosen;
  add_aggregate(app, chosen);
  add_study(app, chosen);
  add_certify(app, chosen);
  add_suite(app, chosen);
  add_report(app, chosen);
  add_export(app, chosen);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kDone : kUserMistake;
  }
  if (chosen) return chosen();
  t.command_line = r.command_line = command_line(argc, argv);
  if (*train_command) return train(t);
  if (*resume_command) return resume(r);
  if (*eval_command) return eval(e);
  if (*doctor_command) return doctor(d);
  if (*bench_command) return bench(b);
  return list(l);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const gipo::Error& e) {
    std::fprintf(stderr, "gipo: %s\n", e.what());
    return kUserMistake;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gipo: %s\n", e.what());
    return kFailed;
  }
}
