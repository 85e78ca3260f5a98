#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gipo/doctor/doctor.h"
#include "gipo/run/resume.h"

namespace gipo {

// What a whole checkpoint says of the run; its large files are not kept.
struct State {
  std::int64_t update = 0, dial_updates = 0, log_every = 0;  // done; that the dial was made for; between lines
  std::uint64_t incarnation = 0;
  std::string config;
  LogPositions logs;
};

// The work of examine(), one check after the other: doctor.cc, doctor_checkpoints.cc, doctor_logs.cc.
class Examination {
 public:
  explicit Examination(const std::string& run) : run_(run) {}

  Diagnosis run();

 private:
  struct Fault {
    std::uint64_t offset = 0;  // of its line, in bytes
    std::string text;
  };
  struct Log {  // a file of JSON lines, as it was found
    std::string name, good;
    std::int64_t lines = 0;
    std::vector<Fault> faults;
  };
  using Json = nlohmann::ordered_json;
  // Takes a line's object; returns what is wrong with it, or nothing.
  using LineCheck = std::function<std::string(const Json&)>;

  std::string path(const std::string& name) const { return run_ + "/" + name; }
  void say(Health health, std::string text) { result_.findings.push_back({health, std::move(text)}); }
  static std::string checkpoint_name(std::int64_t update);
  // Nothing was done since the summary was written, and nothing more is asked for.
  bool finished() const;

  void check_checkpoints();
  // Whether `gipo resume` could take up the run from this checkpoint; says so where it could not.
  bool loads(const State& state, const nlohmann::json& fields, const Checkpoint& checkpoint);
  void check_config();
  void check_latest();
  void check_temporaries();
  bool holds_newest(const std::string& name) const;
  void check_summary();
  Log read_lines(const std::string& name, const LineCheck& check) const;
  void read_metrics();
  void read_episodes();
  void read_evaluations();
  bool usual_step(std::int64_t from, std::int64_t to) const;
  void choose_checkpoint();
  bool clean(const State& state) const;
  void tell(const Log& log);
  void check_policy();
  void check_counts();
  void choose_next();
  std::string next_with_checkpoint() const;
  double count_of(const char* name) const;

  const std::string run_;
  Diagnosis result_;
  bool busy_ = false;
  std::optional<Plan> plan_;
  std::vector<State> states_;                 // whole checkpoints, oldest first
  std::set<std::int64_t> damaged_;            // checkpoints that are not whole
  std::set<std::int64_t> refused_by_resume_;  // whole by their checksums, yet resume refuses what they hold
  std::optional<Plan> loading_plan_;          // of the checkpoint that was loaded last, and what it was made from
  std::pair<std::string, std::int64_t> loading_config_;
  std::vector<Log> logs_;
  const State* usable_ = nullptr;      // the newest whole one that the logs reach
  const State* clean_ = nullptr;       // the same, with no fault in the logs before it
  bool lines_lost_ = false;            // a fault before usable_, or in a run that has finished
  std::string refused_;                // why the config does not go with the newest checkpoint
  std::string ended_;                  // from summary.json; empty without it
  std::int64_t summary_updates_ = -1;  // from summary.json
  std::int64_t last_update_ = 0;       // of metrics.jsonl
  std::int64_t last_evaluation_ = 0;   // of evaluations.jsonl; a run that finishes makes one
  std::string not_renamed_;            // a temporary folder that holds a whole checkpoint, the newest
  Json last_metrics_;
};

// Nothing where it is not JSON, or is nested deeper than anything of ours.
nlohmann::ordered_json parse_shallow(std::string_view text);

}  // namespace gipo
