#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gipo/stats/bootstrap.h"

namespace gipo::cli {

// Exit codes of the program.
inline constexpr int kDone = 0, kFailed = 1, kUserMistake = 2, kInterrupted = 130;

// Every command: what it is given and the function that runs it and returns the exit code. How the words of the command
// line become these is in arguments.cc alone.

struct TrainArguments {
  std::string config;                  // path; empty: defaults alone
  std::string zoo;                     // task whose preset is taken instead
  std::string env;                     // task; where no config is given, the settings are chosen for it
  std::vector<std::string> overrides;  // --set
  std::optional<std::int64_t> seed, env_steps;
  std::string name;
  bool json = false, dry_run = false, overwrite = false, quiet = false;
  std::string command_line;  // as typed, for summary.json
};
int train(const TrainArguments& arguments);

struct CloneArguments : TrainArguments {
  std::string data;  // of demonstrations
  std::optional<std::int64_t> updates;
};
int clone(const CloneArguments& arguments);

// What is not given is chosen by the Python package.
struct RecordArguments {
  std::string env, file;
  std::optional<std::int64_t> episodes, seed, workers;
  std::optional<double> noise;
  std::vector<std::string> options;  // --set, of the task
};
int record(const RecordArguments& arguments);

struct LearnArguments : TrainArguments {
  std::string listen, certificates;
  double megabytes_per_second = 256;
  bool resume = false;
};
int learn(const LearnArguments& arguments);

struct ActorArguments {
  std::string address, certificates, name, ledger;
  std::vector<std::string> overrides;  // --set, of what is each host's own
  double wait = 300;                   // seconds
  std::int64_t keep = 256;             // megabytes
  bool quiet = false;
};
int actor(const ActorArguments& arguments);

struct StatusArguments {
  std::string address, certificates;
  bool json = false;
};
int status(const StatusArguments& arguments);

struct CertsArguments {
  std::string folder;
  std::vector<std::string> hosts, actors;
  int days = 365;
};
int certs(const CertsArguments& arguments);

// What is not given is chosen by the Python package.
struct ClusterUpArguments : TrainArguments {
  std::optional<std::int64_t> actors;
  std::optional<double> cpus_per_actor, learner_cpus, learner_gpus;
  bool resume = false;
};
int cluster_up(const ClusterUpArguments& arguments);

struct ResumeArguments {
  std::string run;
  std::optional<std::int64_t> updates, env_steps;  // lengthen the run
  bool json = false, quiet = false;
  std::string command_line;
};
int resume(const ResumeArguments& arguments);

// What is drawn of a run's policy. What is not given is chosen by the Python package.
struct SceneArguments {
  std::string run, policy = "last", episode, size;
  std::optional<double> fps;
  std::uint64_t seed = 0;
  bool sampled = false;
};
struct PlayArguments : SceneArguments {};
int play(const PlayArguments& arguments);

struct EvalArguments : SceneArguments {
  std::optional<std::int64_t> episodes;
  std::string video;  // file to draw into; empty: nothing is drawn
  bool json = false;
};
int eval(const EvalArguments& arguments);
int video(const EvalArguments& arguments);

struct DoctorArguments {
  std::string run;
  bool machine = false;
  bool json = false;
};
int doctor(const DoctorArguments& arguments);

struct BenchArguments {
  std::vector<std::string> names;  // empty: all
  bool json = false;
};
int bench(const BenchArguments& arguments);

struct ListArguments {
  std::string what;  // presets, zoo, envs, surrogates or options
  bool json = false, markdown = false;
};
int list(const ListArguments& arguments);

struct AggregateArguments {
  std::string file, normalise = "auto";
  BootstrapOptions bootstrap;
  bool json = false;
};
int aggregate(const AggregateArguments& arguments);

struct GridworldArguments {
  double discount = 0.9;
  std::vector<std::string> behaviours = {"A", "B", "C"};
  std::string ppo = "0.2", sapo = "2:1,1:2", gipo = "0.1,0.3,0.5,1,2", figure;
  std::optional<double> prox;
  double importance_max = 2;
  std::string pull_back = "damped";
  bool optimal = false, json = false, csv = false;
};
int gridworld(const GridworldArguments& arguments);

struct MultipliersArguments {
  std::vector<std::string> surrogates;
  double most = 3;  // of |log rho|
  bool json = false;
};
int multipliers(const MultipliersArguments& arguments);

// What is not given comes from the run, or is the default.
struct CertifyArguments {
  std::string run;
  std::optional<double> sigma, importance_max, kl, kl_behaviour, kl_step, advantage_bound, discount, gain, alpha, bias,
      interval;
  std::optional<std::int64_t> samples;
  bool json = false;
};
int certify(const CertifyArguments& arguments);

struct SuiteArguments {
  std::string file, out;
  std::vector<std::string> tasks, methods, regimes;  // only these; empty: all
  std::vector<std::int64_t> seeds;
  int jobs = 0;  // runs at a time; 0: as many as there are cores
  std::string device = "cpu";
  bool dry_run = false, retry = false, json = false, quiet = false, ray = false;
};
int suite(const SuiteArguments& arguments);

struct TuneArguments {
  std::string file, out;
  std::vector<std::string> methods, regimes;  // only these; empty: all
  int jobs = 0;                               // runs at a time; 0: as many as there are cores
  std::string device = "cpu";
  bool dry_run = false, retry = false, json = false, quiet = false, ray = false, write = false;
};
int tune(const TuneArguments& arguments);

struct ReportArguments {
  std::vector<std::string> folders, tasks;
  std::string out;
  bool json = false;
};
int report(const ReportArguments& arguments);

struct WatchArguments {
  std::string path = "runs";  // of a run, of several, or of a suite
  int port = 6007;
  bool no_browser = false;
};
int watch(const WatchArguments& arguments);

struct ExportArguments {
  std::string run, file, policy = "last";
};
int export_run(const ExportArguments& arguments);

}  // namespace gipo::cli
