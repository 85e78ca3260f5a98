#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "gipo/bench/clock.h"
#include "gipo/cli/commands.h"
#include "gipo/cli/python.h"
#include "gipo/cli/session.h"
#include "gipo/core/error.h"
#include "gipo/plan/memory.h"
#include "gipo/run/first_weights.h"

namespace gipo::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kConverted[] = "demonstrations.safetensors";

bool is_native(const std::string& path) { return fs::path(path).extension() == ".safetensors"; }

// What the converter must know of the task.
std::string task_json(const Plan& plan) {
  nlohmann::ordered_json fields = nlohmann::ordered_json::array();
  for (const Field& f : plan.model.fields) {
    const Field one = f.frame();
    fields.push_back({{"name", one.name},
                      {"dtype", name_of(one.dtype)},
                      {"shape", one.shape},
                      {"optional", one.role == Role::kMask}});
  }
  const ActionSpace& action = plan.model.action;
  nlohmann::ordered_json options = nlohmann::ordered_json::object();
  for (const auto& [name, value] : plan.config.env_options) options[name] = to_toml(value);
  return nlohmann::ordered_json({{"env", plan.env.id},
                                 {"options", options},
                                 {"fields", fields},
                                 {"dims", action.dims()},
                                 {"choices", action.choices}})
      .dump();
}

// A file that is removed again, unless it is moved elsewhere.
struct TemporaryFile {
  explicit TemporaryFile(std::string p) : path(std::move(p)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  std::string path;
};

}  // namespace

int record(const RecordArguments& a) {
  std::vector<std::string> words = {"record", a.env, a.file};
  const auto add = [&](const char* name, const auto& value) {
    if (value) words.insert(words.end(), {name, fmt::format("{}", *value)});
  };
  add("--episodes", a.episodes);
  add("--noise", a.noise);
  add("--seed", a.seed);
  add("--workers", a.workers);
  for (const std::string& option : a.options) words.insert(words.end(), {"--set", option});
  become_python("gipo.demonstrations", words);
}

std::string demonstrations_of(const Plan& plan) {
  const std::string converted = plan.run_dir + "/" + kConverted;
  return is_native(plan.config.clone.data) ? plan.config.clone.data : converted;
}

int clone(const CloneArguments& a) {
  auto [loaded, chosen] = load_training(a);
  set_option(loaded, "clone.data", a.data, "DATA");
  if (a.updates) {
    forget_length(loaded);
    set_option(loaded, "learner.updates", *a.updates, "--updates");
  }
  if (!fs::exists(a.data)) throw Error(fmt::format("{}: no such file", a.data));
  const Plan plan = make_plan(loaded);
  const std::shared_ptr<const Weights> first = first_weights(plan, loaded.origins);
  refuse_what_does_not_fit(plan, loaded.origins);
  refuse_ranks(plan.config.learner.ranks);
  if (!a.overwrite && fs::exists(plan.run_dir)) {
    throw Error(
        fmt::format("run folder {} exists: choose another with --name or --set run.dir=..., or remove it with "
                    "--overwrite",
                    plan.run_dir));
  }

  listen_for_signals();
  // Beside the run folder, which is made once the demonstrations are known to be good.
  const TemporaryFile converted(fmt::format("{}.{}.{}", plan.run_dir, ::getpid(), kConverted));
  if (!is_native(a.data)) {
    std::error_code ignored;
    fs::create_directories(fs::path(plan.run_dir).parent_path(), ignored);
    const int failed = run_python("gipo.demonstrations", {"convert", a.data, converted.path}, task_json(plan));
    if (failed != 0) return failed;
  }
  if (stop_flag()) return kInterrupted;
  auto demonstrations =
      std::make_unique<Demonstrations>(is_native(a.data) ? a.data : converted.path, plan.demonstration_use());

  if (a.overwrite) remove_run(plan.run_dir);
  RunFolder folder(plan, a.command_line, wall_time);
  if (!is_native(a.data)) fs::rename(converted.path, demonstrations_of(plan));
  tell(chosen, folder, a.quiet);
  return run_session(plan, folder, {nullptr, first, demonstrations.get()}, a.json, a.quiet);
}

}  // namespace gipo::cli
