#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gipo::cli {

// Exit codes of the program.
inline constexpr int kDone = 0, kFailed = 1, kUserMistake = 2, kInterrupted = 130;

struct TrainArguments {
  std::string config;                  // path; empty: defaults alone
  std::vector<std::string> overrides;  // --set
  std::optional<std::int64_t> seed;
  std::string name;
  bool json = false, dry_run = false, overwrite = false, quiet = false;
  std::string command_line;  // as typed, for summary.json
};
int train(const TrainArguments& arguments);

struct ResumeArguments {
  std::string run;
  std::optional<std::int64_t> updates;  // lengthens the run
  bool json = false, quiet = false;
  std::string command_line;
};
int resume(const ResumeArguments& arguments);

struct EvalArguments {
  std::string run;
  std::int64_t episodes = 100;
  std::uint64_t seed = 0;
  bool json = false, sampled = false;
};
int eval(const EvalArguments& arguments);

struct DoctorArguments {
  std::string run;
  bool json = false;
};
int doctor(const DoctorArguments& arguments);

struct BenchArguments {
  std::vector<std::string> names;  // empty: all
  bool json = false;
};
int bench(const BenchArguments& arguments);

struct ListArguments {
  std::string what;  // envs, surrogates or options
  bool json = false, markdown = false;
};
int list(const ListArguments& arguments);

}  // namespace gipo::cli
