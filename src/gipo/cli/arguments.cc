#include "gipo/cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gipo/cli/commands.h"
#include "gipo/cli/completion.h"
#include "gipo/config/path_text.h"
#include "gipo/env/mujoco/library.h"
#include "gipo/io/number_text.h"
#include "gipo/plan/option_table.h"
#include "gipo/run/version.h"

// All of the command line, because each file that includes its parser takes many seconds to compile.
namespace gipo::cli {
namespace {

using Chosen = std::function<int()>;  // the command that was named, with what it was given

// What `command` fills while it is parsed and `run` is then called with. It lives as long as the command.
template <class Arguments>
Arguments& arguments_of(CLI::App* command, int (*run)(const Arguments&), Chosen& chosen) {
  const auto arguments = std::make_shared<Arguments>();
  command->callback([=, &chosen] { chosen = [=] { return run(*arguments); }; });
  return *arguments;
}

// A number from low to high. Unlike CLI::Range it refuses NaN.
CLI::Validator number_in(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) {
        const std::optional<double> value = decimal_number(text);
        if (value && *value >= low && *value <= high) return std::string();
        return fmt::format("{} is not accepted: wanted a number from {} to {}", text, low, high);
      },
      fmt::format("[{} - {}]", low, high));
}

constexpr char kPath[] = "PATH";

// A path that a file system takes, whether or not anything is there.
CLI::Validator path_text() {
  return CLI::Validator(
      [](const std::string& text) {
        const std::string fault = path_fault(text);
        return fault.empty() ? fault : fmt::format("{} is not accepted: {}", shown_text(text), fault);
      },
      kPath);
}

// Help says PATH where the parser would say TEXT:PATH.
void name_paths(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_type_name() != fmt::format("TEXT:{}", kPath)) continue;
    option->get_validator(0)->description("");
    option->type_name(kPath);
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) name_paths(*command);
}

// Numbers of every command, whole ones too: the parser would read 0x10 as 16 and 010 as 8.
void refuse_other_bases(CLI::App& app) {
  const CLI::Validator decimal(
      [](const std::string& text) {
        const std::size_t first = text.find_first_not_of("+-");
        const bool octal =
            first != text.npos && first + 1 < text.size() && text[first] == '0' && std::isdigit(text[first + 1]) != 0;
        if (!octal && decimal_number(text)) return std::string();
        return fmt::format("{} is not accepted: wanted a decimal number", shown_text(text));
      },
      "");
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.find("INT") != type.npos || type.find("FLOAT") != type.npos) option->check(decimal);
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) refuse_other_bases(*command);
}

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

void in_group(const char* name, const std::vector<CLI::Option*>& options) {
  for (CLI::Option* option : options) option->group(name);
}

// What `train` and `learn` share.
void add_training(CLI::App* c, const std::string& typed, TrainArguments& a) {
  a.command_line = typed;
  c->add_option("config", a.config,
                "Preset such as classic/stale (gipo list presets), or TOML file with options; with --set "
                "alone: the default options")
      ->check(path_text());
  in_group(
      "What to train",
      {c->add_option("--zoo", a.zoo,
                     "Task of the zoo, with the settings that solve it (gipo list zoo); in place of a config")
           ->excludes("config"),
       c->add_option("--env", a.env,
                     "Task; the same as --set env.id=ID. Without a config, the settings are chosen for the task"),
       c->add_option("--set", a.overrides, "Set an option: group.name=value; may be repeated")->allow_extra_args(false),
       c->add_option("--seed", a.seed, "Root seed; the same as --set run.seed=N"),
       c->add_option("--env-steps", a.env_steps,
                     "Length of the run in environment steps; the same as --set learner.env_steps=N")});
  in_group("Where it goes",
           {c->add_option("--name", a.name, "Name of the run folder; the same as --set run.name=NAME"),
            c->add_flag("--overwrite", a.overwrite, "If a run folder of this name exists, remove it first")});
  in_group("What it prints", {c->add_flag("--json", a.json, "Print the summary as one JSON object on stdout"),
                              c->add_flag("--quiet", a.quiet, "Print no progress on stderr")});
}

void add_train(CLI::App& app, const std::string& typed, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("train", "Train a policy and write a run folder");
  TrainArguments& a = arguments_of(c, train, chosen);
  add_training(c, typed, a);
  in_group("Try it first",
           {c->add_flag("--dry-run", a.dry_run,
                        "Print the resolved config, the dial and the estimated time and memory; create nothing")});
}

void add_record(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("record", "Record demonstrations of Meta-World's scripts before a camera");
  RecordArguments& a = arguments_of(c, record, chosen);
  c->add_option("env", a.env, "metaworld-pixels:TASK, or several: metaworld-pixels:TASK+TASK")->required();
  c->add_option("file", a.file, "HDF5 file to write")->required()->check(path_text());
  c->add_option("--episodes", a.episodes, "Successful episodes of each task; default 50")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  c->add_option("--noise", a.noise, "Standard deviation of noise on the actions; the file keeps them without it")
      ->check(number_in(0, 10));
  c->add_option("--seed", a.seed, "Seed of the first episode; default 0")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  c->add_option("--workers", a.workers, "Number of processes; default: one for each core")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1024}));
  c->add_option("--set", a.options, "Option of the task: env.options.size=84; may be repeated")
      ->allow_extra_args(false);
}

void add_clone(CLI::App& app, const std::string& typed, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("clone", "Train a policy to imitate demonstrations and write a run folder");
  CloneArguments& a = arguments_of(c, clone, chosen);
  c->add_option("data", a.data,
                "Demonstrations: an HDF5 file as robomimic and LIBERO write it, the folder of a LeRobot dataset, or "
                ".safetensors")
      ->required()
      ->check(path_text());
  add_training(c, typed, a);
  c->remove_option(c->get_option("config"));
  c->remove_option(c->get_option("--env-steps"));
  in_group("What to train",
           {c->add_option("--config", a.config, "Preset or TOML file: the task, the networks and the learner")
                ->check(path_text())
                ->excludes("--zoo"),
            c->add_option("--updates", a.updates, "Length of the run; the same as --set learner.updates=N")});
}

CLI::Option* add_certificates(CLI::App* c, std::string& folder, const char* whose) {
  return c
      ->add_option("--certs", folder,
                   fmt::format("Folder with {} certificate, made by gipo certs; without it this machine alone", whose))
      ->check(path_text());
}

void add_learn(CLI::App& app, const std::string& typed, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("learn", "Train with actors that are other programs, here or on other hosts");
  LearnArguments& a = arguments_of(c, learn, chosen);
  add_training(c, typed, a);
  c->get_option("config")->required();
  in_group("Where actors come from",
           {c->add_option("--listen", a.listen, "HOST:PORT to take actors at; port 0: any free one")->required(),
            add_certificates(c, a.certificates, "the learner's"),
            c->add_option("--rate", a.megabytes_per_second, "Megabytes per second that one actor may send; default 256")
                ->check(number_in(0.001, 1e6))});
  in_group("Where it goes",
           {c->add_flag("--resume", a.resume, "If a run folder of this name exists, continue it from its checkpoint")
                ->excludes("--overwrite")});
}

void add_actor(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("actor", "Collect experience for a learner that listens");
  ActorArguments& a = arguments_of(c, actor, chosen);
  c->add_option("address", a.address, "HOST:PORT of the learner")->required();
  add_certificates(c, a.certificates, "this actor's");
  c->add_option("--name", a.name, "Name of this actor; default: that of its certificate, or host and process");
  c->add_option("--set", a.overrides, "Set what is this host's own: env.python, env.workers, env.step_timeout")
      ->allow_extra_args(false);
  c->add_option("--wait", a.wait, "Seconds without a learner after which it gives up; default 300")
      ->check(number_in(0, 1e9));
  c->add_option("--keep", a.keep, "Megabytes of experience to keep that the learner has not saved; default 256")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  c->add_option("--ledger", a.ledger, "File to write a line to for each report and what became of it")
      ->check(path_text());
  c->add_flag("--quiet", a.quiet, "Print nothing on stderr but errors");
}

void add_status(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("status", "Show the actors of a learner that listens");
  StatusArguments& a = arguments_of(c, status, chosen);
  c->add_option("address", a.address, "HOST:PORT of the learner")->required();
  add_certificates(c, a.certificates, "an actor's");
  c->add_flag("--json", a.json, "Print one JSON object on stdout");
}

void add_certs(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("certs", "Make certificates for a learner and its actors");
  CertsArguments& a = arguments_of(c, certs, chosen);
  c->add_option("folder", a.folder, "Folder for them; with an authority from before, they are added")
      ->required()
      ->check(path_text());
  c->add_option("--host", a.hosts, "Name or address by which actors reach the learner; may be repeated")
      ->allow_extra_args(false);
  c->add_option("--actor", a.actors, "Name of an actor; may be repeated")->allow_extra_args(false);
  c->add_option("--days", a.days, "Days until they expire; default 365")->check(CLI::Range(1, 3650));
}

void add_cluster(CLI::App& app, const std::string& typed, Chosen& chosen) {
  CLI::App* cluster = app.add_subcommand("cluster", "Train on a Ray cluster");
  cluster->require_subcommand(1);
  CLI::App* c = cluster->add_subcommand("up", "Place a learner and its actors on the cluster, and watch over them");
  ClusterUpArguments& a = arguments_of(c, cluster_up, chosen);
  add_training(c, typed, a);
  in_group(
      "What Ray sets aside",
      {c->add_option("--actors", a.actors, "Number of actors; the same as --set staleness.actors=N")
           ->check(CLI::Range(1, 4096)),
       c->add_option("--cpus-per-actor", a.cpus_per_actor, "CPUs for each actor; default 1")->check(number_in(0, 1e6)),
       c->add_option("--learner-cpus", a.learner_cpus, "CPUs for the learner; default 1")->check(number_in(0, 1e6)),
       c->add_option("--learner-gpus", a.learner_gpus, "GPUs for the learner; default 0")->check(number_in(0, 1e6))});
  in_group("Where it goes",
           {c->add_flag("--resume", a.resume, "If a run folder of this name exists, continue it from its checkpoint")
                ->excludes("--overwrite")});
}

void add_resume(CLI::App& app, const std::string& typed, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("resume", "Continue a run, also after a crash");
  ResumeArguments& a = arguments_of(c, resume, chosen);
  a.command_line = typed;
  c->add_option("run", a.run, "Run folder")->required()->check(path_text());
  c->add_option("--updates", a.updates, "Lengthen the run to this many updates");
  c->add_option("--env-steps", a.env_steps, "Lengthen the run to this many environment steps");
  c->add_flag("--json", a.json, "Print the summary as one JSON object on stdout");
  c->add_flag("--quiet", a.quiet, "Print no progress on stderr");
}

CLI::Option* add_policy(CLI::App* c, std::string& policy) {
  return c->add_option("--policy", policy,
                       "Which policy of the run: last, best (of its evaluations), or the number of a checkpoint");
}

// What `eval` and `play` share.
constexpr char kPlayed[] = "What to play", kDrawn[] = "What to draw";
void add_scene(CLI::App* c, SceneArguments& a) {
  c->add_option("run", a.run, "Run folder")->required()->check(path_text());
  in_group(kPlayed, {add_policy(c, a.policy), c->add_option("--seed", a.seed, "Seed of the episodes"),
                     c->add_flag("--sampled", a.sampled, "Sample actions instead of taking the most likely ones")});
  in_group(kDrawn, {c->add_option("--size", a.size, "Size of the picture, WIDTHxHEIGHT; default: the task's own"),
                    c->add_option("--fps", a.fps, "Steps per second; each step is drawn; default: real time")
                        ->check(number_in(0.1, 1000))});
}

void add_eval(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("eval", "Play episodes with the policy of a run");
  EvalArguments& a = arguments_of(c, eval, chosen);
  add_scene(c, a);
  in_group(kPlayed, {c->add_option("--episodes", a.episodes, "Episodes to play; default 100, with --video 10")
                         ->check(CLI::Range(1, 1000000))});
  c->add_flag("--json", a.json, "Print one JSON object on stdout");
  CLI::Option* video =
      c->add_option("--video", a.video, "Also record an episode to this file, NAME.mp4; see docs/video.md")
          ->check(path_text());
  CLI::Option* episode =
      c->add_option("--episode", a.episode, "Which episode to record: a number from 0, best, worst or all; default 0");
  for (CLI::Option* option : {episode, c->get_option("--size"), c->get_option("--fps")}) option->needs(video);
  in_group(kDrawn, {video, episode});
}

void add_play(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("play", "Watch the policy of a run in a window");
  PlayArguments& a = arguments_of(c, play, chosen);
  add_scene(c, a);
  in_group(kPlayed, {c->add_option("--episode", a.episode, "Number of the first episode; default 0")});
}

void add_doctor(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("doctor", "Check a run folder and say how to repair it");
  DoctorArguments& a = arguments_of(c, doctor, chosen);
  CLI::Option* run = c->add_option("run", a.run, "Run folder")->check(path_text());
  c->add_flag("--machine", a.machine, "Say instead which backends and devices this program has on this machine")
      ->excludes(run);
  c->add_flag("--json", a.json, "Print one JSON object on stdout");
}

void add_bench(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("bench", "Measure the speed of gipo on this machine, beside references");
  BenchArguments& a = arguments_of(c, bench, chosen);
  c->add_option("names", a.names,
                "learner, inference, replay, env, train, scaling, images; default: these. cuda: on an NVIDIA card");
  c->add_flag("--json", a.json, "Print a JSON array on stdout");
}

void add_list(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("list", "List presets, the zoo, envs, surrogates or options");
  ListArguments& a = arguments_of(c, list, chosen);
  c->add_option("what", a.what, "What to list")
      ->required()
      ->check(CLI::IsMember({"presets", "zoo", "envs", "surrogates", "options"}));
  c->add_flag("--json", a.json, "Print a JSON array on stdout");
  c->add_flag("--markdown", a.markdown,
              "For options, envs and the zoo: print the page docs/options.md, docs/tasks.md or docs/zoo.md");
}

void add_aggregate(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("aggregate", "Compute IQM, intervals, profiles and ranks from a table of scores");
  AggregateArguments& a = arguments_of(c, aggregate, chosen);
  BootstrapOptions& b = a.bootstrap;
  c->add_option("file", a.file, "Scores as JSON or CSV; see docs/report.md")->required()->check(path_text());
  c->add_option("--normalise", a.normalise,
                "How scores are normalised: by the file's random and reference scores, by min and max, or not")
      ->check(CLI::IsMember({"auto", "reference", "min_max", "none"}));
  c->add_option("--repetitions", b.repetitions, "Repetitions of the bootstrap")->check(CLI::Range(1, 10'000'000));
  c->add_option("--profile-repetitions", b.profile_repetitions, "Repetitions of the bootstrap of the profiles")
      ->check(CLI::Range(1, 1'000'000));
  c->add_option("--confidence", b.confidence, "Confidence of the intervals")->check(number_in(0.5, 0.9999));
  c->add_option("--target", b.target, "The optimality gap is zero for scores from this one on")
      ->check(number_in(-1e12, 1e12));
  c->add_option("--seed", b.seed, "Seed of the bootstrap");
  c->add_option("--taus", b.taus, "Scores at which profiles are taken, separated by commas")
      ->delimiter(',')
      ->check(number_in(-1e12, 1e12));
  c->add_flag("--json", a.json, "Print one JSON object on stdout");
}

void add_gridworld(CLI::App& study, Chosen& chosen) {
  CLI::App* c =
      study.add_subcommand("gridworld", "Compute bias and variance of every surrogate on the paper's 2x2 grid");
  GridworldArguments& a = arguments_of(c, gridworld, chosen);
  c->add_option("--discount", a.discount, "Discount: 0.9 as in the paper's figure (default), 0.99 as in its training")
      ->check(number_in(0, 1));
  c->add_option("--behaviour", a.behaviours, "A, B, C or a mixture like rand:0.4,right:0.3,down:0.3; may be repeated")
      ->allow_extra_args(false);
  c->add_option("--ppo", a.ppo, "List of epsilon");
  c->add_option("--sapo", a.sapo, "List of tau_pos:tau_neg");
  c->add_option("--gipo", a.gipo, "List of sigma or sigma_pos:sigma_neg");
  CLI::Option* prox = c->add_option("--prox", a.prox,
                                    "Centre every surrogate on mu^(1-T) pi^T, as surrogate.centre = proximal does: T, "
                                    "from 0 (mu) to 1 (pi)")
                          ->check(number_in(0, 1));
  c->add_option("--importance-max", a.importance_max, "With --prox: largest importance weight")
      ->check(number_in(1, 1e9))
      ->needs(prox);
  c->add_option("--pull-back", a.pull_back, "Value of surrogate.pull_back for gipo")
      ->check(CLI::IsMember({"damped", "positive", "both"}));
  c->add_flag("--optimal", a.optimal, "Find the sigma, epsilon and temperatures with the lowest mse for each behaviour")
      ->excludes(prox);
  c->add_option("--figure", a.figure, "Draw bias against variance to this file (.png, .svg or .pdf)")
      ->check(path_text());
  CLI::Option* json = c->add_flag("--json", a.json, "Print one JSON object on stdout");
  c->add_flag("--csv", a.csv, "Print every row as CSV on stdout")->excludes(json);
}

void add_multipliers(CLI::App& study, Chosen& chosen) {
  CLI::App* c = study.add_subcommand("multipliers", "Print the factor m of m A grad log pi against the ratio, as CSV");
  MultipliersArguments& a = arguments_of(c, multipliers, chosen);
  c->add_option("surrogate", a.surrogates, "A name and its options, such as gipo,sigma=0.5; may be repeated")
      ->required();
  c->add_option("--range", a.most, "Largest |log rho|; default 3")->check(number_in(1e-3, 20));
  c->add_flag("--json", a.json, "Print one JSON object on stdout");
}

void add_study(CLI::App& app, Chosen& chosen) {
  CLI::App* study = app.add_subcommand("study", "Compute exact studies of small problems, without sampling");
  study->require_subcommand(1);
  add_gridworld(*study, chosen);
  add_multipliers(*study, chosen);
}

void add_certify(CLI::App& app, Chosen& chosen) {
  constexpr double kMost = 1e12;
  CLI::App* c =
      app.add_subcommand("certify", "Compute the paper's bounds as numbers, for given values or for a run of GIPO");
  CertifyArguments& a = arguments_of(c, certify, chosen);
  c->add_option("run", a.run, "Run folder to take the values from; options that are given replace them")
      ->check(path_text());
  c->add_option("--sigma", a.sigma, "Width of the trust weight")->check(number_in(1e-3, 1e3));
  c->add_option("--importance-max", a.importance_max, "c, the largest importance weight, if the centre is pi_prox")
      ->check(number_in(1, 1e9));
  c->add_option("--kl", a.kl, "delta = max KL(mu, pi'); default 0")->check(number_in(0, kMost));
  c->add_option("--kl-behaviour", a.kl_behaviour, "max KL(mu, pi); default: the value of --kl")
      ->check(number_in(0, kMost));
  c->add_option("--kl-step", a.kl_step, "max KL(pi, pi'); default 0")->check(number_in(0, kMost));
  c->add_option("--advantage-bound", a.advantage_bound, "eps, the bound on |A|; default 1")
      ->check(number_in(1e-12, kMost));
  c->add_option("--discount", a.discount, "Discount gamma; default 0.99")->check(number_in(0, 0.9999999));
  c->add_option("--gain", a.gain, "Surrogate gain L~(pi') - J(pi); default 0")->check(number_in(-kMost, kMost));
  c->add_option("--samples", a.samples, "Number of samples N; default 256")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 50));
  c->add_option("--alpha", a.alpha, "The interval holds with probability 1 - alpha; default 0.05")
      ->check(number_in(1e-12, 0.999));
  c->add_option("--bias", a.bias, "Find the smallest sigma whose bound on E[1 - w] is at most this")
      ->check(number_in(1e-12, kMost));
  c->add_option("--interval", a.interval, "Find the largest sigma whose interval is at most this")
      ->check(number_in(1e-12, kMost));
  c->add_flag("--json", a.json, "Print one JSON object on stdout");
}

// What suites and tunings share.
template <class Arguments>
void add_methods_and_regimes(CLI::App* c, Arguments& a) {
  c->add_option("--method", a.methods, "Use only this method; may be repeated")->allow_extra_args(false);
  c->add_option("--regime", a.regimes, "Use only this regime; may be repeated")->allow_extra_args(false);
}
template <class Arguments>
void add_runner_options(CLI::App* c, Arguments& a) {
  c->add_option("--jobs", a.jobs,
                "Number of runs at the same time; default: the number of cores, with --ray those of the cluster")
      ->check(CLI::Range(1, 1024));
  c->add_flag("--ray", a.ray, "Run them on the Ray cluster that RAY_ADDRESS names; see docs/cluster.md");
  c->add_option("--device", a.device,
                "Where runs are trained. cpu: each as a process. cuda: all together on an NVIDIA "
                "card; see docs/cuda.md")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->excludes("--ray");
  c->add_flag("--retry", a.retry, "Try runs again that failed in an earlier session");
  c->add_flag("--json", a.json, "Print one JSON object on stdout");
  c->add_flag("--quiet", a.quiet, "Print no progress on stderr");
}

void add_suite(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand(
      "suite", "Run tasks x methods x regimes x seeds from one file; can be interrupted and continued");
  SuiteArguments& a = arguments_of(c, suite, chosen);
  c->add_option("file", a.file, "Suite as a TOML file; see docs/suites.md")->required()->check(path_text());
  c->add_option("--out", a.out, "Folder of the suite; default results/NAME")->check(path_text());
  c->add_option("--task", a.tasks, "Run only this task; may be repeated")->allow_extra_args(false);
  add_methods_and_regimes(c, a);
  c->add_option("--seed", a.seeds, "Run only this seed; may be repeated")->allow_extra_args(false);
  add_runner_options(c, a);
  c->add_flag("--dry-run", a.dry_run, "Print the runs, their state and the estimated time; create nothing");
}

void add_tune(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand(
      "tune", "Choose options for every method of a suite, on separate seeds; can be interrupted and continued");
  TuneArguments& a = arguments_of(c, tune, chosen);
  c->add_option("file", a.file, "Suite with a part [tune]; see docs/suites.md")->required()->check(path_text());
  c->add_option("--out", a.out, "Folder for runs and results; default results/NAME-tune")->check(path_text());
  add_methods_and_regimes(c, a);
  add_runner_options(c, a);
  c->add_flag("--write", a.write, "Also write the chosen options to the file that [suite].tuned names");
  c->add_flag("--dry-run", a.dry_run, "Print candidates, rounds and the estimated time; create nothing");
}

void add_report(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("report", "Make an HTML page with figures and tables from a suite");
  ReportArguments& a = arguments_of(c, report, chosen);
  c->add_option("folder", a.folders, "Folder of a suite, results/NAME; several are shown side by side, by regime")
      ->required()
      ->check(path_text());
  c->add_option("--task", a.tasks, "Only this task; may be repeated")->allow_extra_args(false);
  c->add_option("--out", a.out, "Folder for the report; default: report/ in the first folder, with --task report-TASK/")
      ->check(path_text());
  c->add_flag("--json", a.json, "Print the tables as one JSON object on stdout");
}

void add_watch(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("watch", "Show runs live on a page in the browser");
  WatchArguments& a = arguments_of(c, watch, chosen);
  c->add_option("path", a.path, "Run folder, folder of runs, or folder of a suite; default runs")->check(path_text());
  c->add_option("--port", a.port, "Port on this machine; default 6007; 0: any free port")->check(CLI::Range(0, 65535));
  c->add_flag("--no-browser", a.no_browser, "Only print the address; open no browser");
}

void add_export(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("export", "Write the policy of a run to one file, for other programs");
  ExportArguments& a = arguments_of(c, export_run, chosen);
  c->add_option("run", a.run, "Run folder, or its policy.safetensors")->required()->check(path_text());
  c->add_option("file", a.file, "NAME.onnx, or NAME.safetensors for the weights")->required()->check(path_text());
  add_policy(c, a.policy);
}

// What shells complete of a command, and of those below it.
void collect(const CLI::App& app, const std::string& path, std::vector<CompletedCommand>& commands) {
  const auto value_of = [](const CLI::Option& option) -> CompletedValue {
    using Kind = CompletedValue::Kind;
    const std::string type = option.get_type_name();
    if (option.get_items_expected_max() == 0) return {Kind::kNone};
    if (type == kPath) return {Kind::kPath};
    if (option.check_lname("set")) {
      CompletedValue keys{Kind::kChoice};
      for (const OptionGroup<Config>& group : option_table()) {
        for (const OptionInfo& o : group.options) keys.choices.push_back(o.key + "=");
      }
      return keys;
    }
    const std::size_t begin = type.find('{'), end = type.find('}');  // as CLI::IsMember describes itself
    if (begin == type.npos || end == type.npos) return {Kind::kText};
    return {Kind::kChoice, CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',')};
  };
  CompletedCommand command{path, app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() && command.place.kind == CompletedValue::Kind::kNone)
      command.place = value_of(*option);
    for (const std::string& name : option->get_lnames()) {
      command.options.push_back({"--" + name, option->get_description(), value_of(*option)});
    }
  }
  commands.push_back(std::move(command));
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) {
    collect(*below, path + (path.empty() ? "" : " ") + below->get_name(), commands);
  }
}

void add_completion(CLI::App& app, Chosen& chosen) {
  CLI::App* c = app.add_subcommand("completion", "Print the script with which a shell completes these commands");
  const auto shell = std::make_shared<std::string>();
  c->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  c->callback([&app, &chosen, shell] {
    std::vector<CompletedCommand> commands;
    collect(app, "", commands);
    chosen = [script = completion_script(*shell, commands)] {
      fmt::print("{}", script);
      return kDone;
    };
  });
}

// The commands in `gipo --help`, by what one wants to do.
void group_commands(CLI::App& app) {
  const std::pair<const char*, std::vector<const char*>> groups[] = {
      {"Train a policy", {"train", "record", "clone", "resume"}},
      {"Train on several hosts", {"learn", "actor", "status", "certs", "cluster"}},
      {"Look at a run", {"watch", "eval", "play", "doctor", "export"}},
      {"Compare methods over many runs", {"suite", "tune", "report", "aggregate"}},
      {"Numbers without training", {"study", "certify"}},
      {"This program and machine", {"list", "bench", "completion"}}};
  for (const auto& [group, names] : groups) {
    for (const char* name : names) app.get_subcommand(name)->group(group);
  }
}

}  // namespace

int run_command_line(int argc, char** argv) {
  CLI::App app{"gipo: reinforcement learning from replay of any age"};
  app.set_version_flag("--version",
                       [] { return "gipo " + version() + " (" + commit() + ")\nMuJoCo " + mujoco_in_use(); });
  app.require_subcommand(1);
  app.footer("Options of a run: gipo list options. Documentation: docs/quickstart.md.");

  Chosen chosen;
  const std::string typed = command_line(argc, argv);
  add_train(app, typed, chosen);
  add_record(app, chosen);
  add_clone(app, typed, chosen);
  add_resume(app, typed, chosen);
  add_learn(app, typed, chosen);
  add_actor(app, chosen);
  add_status(app, chosen);
  add_certs(app, chosen);
  add_cluster(app, typed, chosen);
  add_eval(app, chosen);
  add_play(app, chosen);
  add_doctor(app, chosen);
  add_export(app, chosen);
  add_suite(app, chosen);
  add_tune(app, chosen);
  add_report(app, chosen);
  add_watch(app, chosen);
  add_aggregate(app, chosen);
  add_study(app, chosen);
  add_certify(app, chosen);
  add_list(app, chosen);
  add_bench(app, chosen);
  add_completion(app, chosen);
  group_commands(app);
  name_paths(app);
  refuse_other_bases(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUserMistake;
  }
  return chosen();
}

}  // namespace gipo::cli
