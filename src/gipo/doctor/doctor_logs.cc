// The logs of a run folder: no line twice, none missing, and what resume will mend.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "gipo/doctor/examination.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostTold = 3;  // faults of one log

}  // namespace

// Reads a file of JSON lines; `check` sees every one that is an object.
Examination::Log Examination::read_lines(const std::string& name, const LineCheck& check) const {
  Log log;
  log.name = name;
  std::ifstream in(path(name), std::ios::binary);
  std::uint64_t offset = 0;
  for (std::string line; std::getline(in, line); offset += line.size() + 1) {
    // Logs are written in blocks, so the last line of a run under way may lack its end.
    if (in.eof() && busy_) break;
    ++log.lines;
    std::string why = in.eof() ? "has no end" : "";
    try {
      const Json object = parse_shallow(line);
      if (why.empty()) why = object.is_object() ? check(object) : "is not a JSON object";
    } catch (const nlohmann::json::exception&) {
      why = "lacks a field, or has one of another type";
    }
    if (!why.empty()) log.faults.push_back({offset, fmt::format("line {} {}", log.lines, why)});
  }
  return log;
}

// Whether no line is missing between two: none is due at a multiple of log.every_updates between them. The checkpoints
// know other values that the option has had.
bool Examination::usual_step(std::int64_t from, std::int64_t to) const {
  std::int64_t most = plan_ ? plan_->config.log_every() : 0;
  for (const State& s : states_) most = std::max(most, s.log_every);
  return most == 0 || to <= (from / most + 1) * most;
}

void Examination::read_metrics() {
  std::int64_t last_step = 0;
  // A resumed run may have had a larger log.every_updates before: steps that are alike are then no gap.
  const bool resumed = !states_.empty() && states_.back().incarnation > 0;
  Log log = read_lines("metrics.jsonl", [&](const Json& line) -> std::string {
    const auto update = line.at("update").get<std::int64_t>();
    const std::int64_t before = last_update_, step = update - before;
    if (step <= 0) return fmt::format("is of update {}, the one before of {}", update, before);
    const bool gap = !usual_step(before, update) && !(resumed && (step == last_step || last_step == 0));
    last_step = step;
    last_update_ = update;
    last_metrics_ = line;
    return gap ? fmt::format("is of update {}, the one before of {}: lines are missing", update, before) : "";
  });
  log.good = fmt::format("{} lines, to update {}; none twice, none missing", log.lines, last_update_);
  logs_.push_back(std::move(log));
}

void Examination::read_episodes() {
  std::map<std::int64_t, std::int64_t> last;  // environment -> number of its last episode
  const bool dropped = count_of("rejected_segments") > 0;
  Log log = read_lines("episodes.jsonl", [&](const Json& line) -> std::string {
    const auto env = line.at("env").get<std::int64_t>(), number = line.at("episode").get<std::int64_t>();
    const auto it = last.find(env);
    const std::int64_t due = it == last.end() ? 0 : it->second + 1;
    last[env] = number;
    // An episode with numbers that are not finite has no line.
    if (number == due || (dropped && number > due)) return {};
    return fmt::format("is episode {} of environment {}, {} was due", number, env, due);
  });
  log.good = fmt::format("{} lines; none twice, none missing", log.lines);
  logs_.push_back(std::move(log));
}

void Examination::read_evaluations() {
  std::int64_t& last = last_evaluation_;
  Log log = read_lines("evaluations.jsonl", [&](const Json& line) -> std::string {
    const std::int64_t before = last;
    last = line.at("update").get<std::int64_t>();
    return last > before ? "" : fmt::format("is of update {}, the one before of {}", last, before);
  });
  log.good = fmt::format("{} lines; none twice", log.lines);
  logs_.push_back(std::move(log));
}

bool Examination::clean(const State& state) const {
  return std::all_of(logs_.begin(), logs_.end(), [&](const Log& log) {
    const auto position = state.logs.find(log.name);
    return log.faults.empty() || position == state.logs.end() || log.faults.front().offset >= position->second;
  });
}

// What resume cuts off and writes anew is no loss.
void Examination::tell(const Log& log) {
  const auto position = usable_ ? usable_->logs.find(log.name) : LogPositions::const_iterator();
  const bool known = usable_ && position != usable_->logs.end();
  if (!fs::exists(path(log.name))) {
    // A file that must hold something was told of with its checkpoint.
    if (!known || position->second == 0) say(known ? Health::kNote : Health::kDamaged, log.name + ": missing");
    return;
  }
  if (log.faults.empty()) return say(Health::kGood, fmt::format("{}: {}", log.name, log.good));
  std::size_t lost = 0;
  for (const Fault& fault : log.faults) {
    if (known && !finished() && fault.offset >= position->second) break;
    if (++lost <= kMostTold) say(Health::kDamaged, fmt::format("{}: {}", log.name, fault.text));
  }
  if (lost > kMostTold) say(Health::kDamaged, fmt::format("{}: and {} more", log.name, lost - kMostTold));
  lines_lost_ = lines_lost_ || lost > 0;
  if (lost == log.faults.size()) return;
  say(Health::kNote, fmt::format("{}: {}; resume cuts off what came after the checkpoint and writes it anew", log.name,
                                 log.faults[lost].text));
}

}  // namespace gipo
