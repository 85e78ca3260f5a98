// The checkpoints of a run folder: which are whole, and from which the run can go on.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "gipo/core/error.h"
#include "gipo/doctor/examination.h"
#include "gipo/run/state_fields.h"

namespace gipo {

namespace fs = std::filesystem;

void Examination::check_checkpoints() {
  const std::string folder = path(kCheckpointFolder);
  std::vector<std::int64_t> without_manifest;
  for (const std::int64_t number : list_checkpoints(folder)) {
    const std::string name = checkpoint_name(number);
    if (fs::is_directory(path(name)) && !fs::exists(path(name + "/manifest.json"))) {
      without_manifest.push_back(number);
      continue;
    }
    try {
      const Checkpoint checkpoint = find_checkpoint(path(name));
      if (checkpoint.update != number) throw Error("it is the checkpoint of another update");
      std::uint64_t bytes = 0;
      for (const auto& [file, size] : checkpoint.sizes) bytes += size;
      const auto text = checkpoint.files.find("state.json");
      if (text == checkpoint.files.end()) throw Error("it has no state.json");
      const nlohmann::json state = parse_state(text->second);
      State s;
      s.update = number;
      s.config = state.at("config").get<std::string>();
      const Config then = parse_config(s.config, "its config").config;
      s.dial_updates = dial_updates(state);
      s.log_every = then.log_every();
      s.incarnation = state.at("incarnation").get<std::uint64_t>();
      s.logs = read_positions(state);
      if (!loads(s, state, checkpoint)) continue;
      states_.push_back(std::move(s));
      say(Health::kGood, fmt::format("{}: whole, {} files, {} bytes", name, checkpoint.sizes.size(), bytes));
    } catch (const std::exception& e) {
      // A process that is at work removes old ones and may have done so just now.
      if (busy_ && !fs::exists(path(name))) continue;
      damaged_.insert(number);
      std::string why = e.what();
      if (why.starts_with(path(name) + ": ")) why.erase(0, path(name).size() + 2);
      say(busy_ ? Health::kNote : Health::kDamaged, fmt::format("{}: not whole: {}", name, why));
    }
  }
  // Old ones are removed with their manifest first, so that a process that was killed may leave such a rest.
  for (const std::int64_t number : without_manifest) {
    const bool old = !states_.empty() && number < states_.back().update;
    if (!old) damaged_.insert(number);
    say(old || busy_ ? Health::kNote : Health::kDamaged,
        checkpoint_name(number) +
            (old ? ": half removed; the next checkpoint removes the rest" : ": no manifest.json"));
  }
}

void Examination::check_latest() {
  const std::string file = fmt::format("{}/LATEST", kCheckpointFolder);
  if (!fs::exists(path(file))) {
    if (!states_.empty()) say(Health::kNote, file + ": missing; resume does not need it");
    return;
  }
  std::string name;
  try {
    name = read_file(path(file));
  } catch (const Error& e) {
    return say(Health::kDamaged, e.what());
  }
  const auto named = [&](const State& s) { return name == fmt::format("{:06}\n", s.update); };
  const auto it = std::find_if(states_.begin(), states_.end(), named);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  if (it == states_.end()) {
    say(busy_ ? Health::kNote : Health::kDamaged,
        fmt::format("{}: names {}, which is not a whole checkpoint", file, name.substr(0, 40)));
  } else if (it + 1 != states_.end()) {
    say(Health::kNote, fmt::format("{}: names {}, though {:06} is newer and whole; resume takes the newer one", file,
                                   name, states_.back().update));
  } else {
    say(Health::kGood, fmt::format("{}: names {}, the newest whole checkpoint", file, name));
  }
}

void Examination::check_temporaries() {
  for (const std::string& folder : {std::string(), std::string(kCheckpointFolder) + "/"}) {
    std::error_code failed;
    std::vector<std::string> names;
    for (fs::directory_iterator it(path(folder), failed), end; !failed && it != end; it.increment(failed)) {
      if (it->path().extension() == ".tmp") names.push_back(folder + it->path().filename().string());
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (busy_) {
        say(Health::kNote, name + ": being written");
      } else if (holds_newest(name)) {
        not_renamed_ = name;
        say(Health::kNote, name + ": a whole checkpoint, newer than all others, that was not renamed any more");
      } else {
        say(Health::kNote, name + ": left by a write that was cut off; may be removed");
      }
    }
  }
}

// Whether a temporary folder is a checkpoint that lacks nothing but its name.
bool Examination::holds_newest(const std::string& name) const {
  try {
    const Checkpoint checkpoint = find_checkpoint(path(name));
    return name == checkpoint_name(checkpoint.update) + ".tmp" &&
           (states_.empty() || states_.back().update < checkpoint.update);
  } catch (const Error&) {
    return false;
  }
}

void Examination::choose_checkpoint() {
  for (auto it = states_.rbegin(); it != states_.rend() && !clean_; ++it) {
    if (const std::string why = logs_fall_short(run_, it->logs); !why.empty()) {
      say(busy_ ? Health::kNote : Health::kDamaged,
          fmt::format("{}: no resume from there: {}", checkpoint_name(it->update), why));
      continue;
    }
    if (!usable_) usable_ = &*it;
    if (clean(*it)) clean_ = &*it;
  }
}

}  // namespace gipo
