#include "gipo/env/bridge/bridge.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>

#include "gipo/core/error.h"
#include "gipo/core/python.h"
#include "gipo/core/stop.h"
#include "gipo/data/field_json.h"
#include "gipo/env/bridge/process.h"
#include "gipo/env/bridge/source.h"
#include "gipo/env/spaces.h"

namespace gipo {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kSettled = 100;  // rounds after which a death is not one of a row
constexpr std::int64_t kBackOffMs = 50, kMostBackOffMs = 2000;

bool is_one_of(std::initializer_list<std::string_view> prefixes, const std::string& id) {
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return id.starts_with(prefix); });
}

// Of python/gipo/robot_tasks.py, which workers get with their setup.
bool is_robot_task(const std::string& id) { return is_one_of({"libero:", "metaworld-pixels:", "robosuite:"}, id); }

// What LIBERO needs stands in an environment of its own, beside the checkout's.
std::string worker_python(const EnvOptions& env) {
  if (env.python.empty() && !std::getenv("GIPO_PYTHON") && is_one_of({"libero:", "robosuite:"}, env.id)) {
    std::string own = checkout() + "/.venv-libero/bin/python";
    if (std::filesystem::exists(own)) return own;
  }
  return find_python(env.python);
}

Json setup_json(const EnvOptions& env, const OptionValues& options, std::size_t threads) {
  // As text: it keeps the order of keys, and numbers that are not finite.
  Nested named{Nested::Kind::kTable, {}};
  for (const auto& [name, value] : options) named.items.push_back({name, value});
  return {{"id", env.id},
          {"robot_tasks", is_robot_task(env.id) ? Json(robot_tasks_source()) : Json()},
          {"mask", env.mask},
          {"frame_stack", env.frame_stack},
          {"options", to_json(named)},
          {"time_limit", env.time_limit ? Json(*env.time_limit) : Json()},
          {"count", 1},
          {"first", 0},
          {"threads", threads},  // of EnvPool
          {"try_out", false}};
}

Json layout(const Slots& s) {
  return {{"bytes", s.bytes},        {"command", s.command_at}, {"flags", s.flags_at},
          {"success", s.success_at}, {"seed", s.seed_at},       {"action", s.action_at},
          {"reward", s.reward_at},   {"start", s.start_at},     {"observation", s.observation_at}};
}

std::vector<double> bounds(const Json& values, double missing) {
  std::vector<double> all;
  for (const Json& v : values) all.push_back(v.is_null() ? missing : v.get<double>());
  return all;
}

EnvSpec read_spec(const Json& value, const EnvOptions& env) {
  const double inf = std::numeric_limits<double>::infinity();
  try {
    EnvSpec spec;
    spec.id = env.id;
    spec.fields = fields_from_json(value.at("fields"));
    spec.observation_size = floats_of(spec.fields);
    const Json& action = value.at("action");
    const auto kind = action.at("kind").get<std::string>();
    spec.action = {kind == "box"        ? ActionSpace::Kind::kBox
                   : kind == "composed" ? ActionSpace::Kind::kComposed
                   : kind == "discrete" ? ActionSpace::Kind::kDiscrete
                                        : ActionSpace::Kind::kMultiDiscrete,
                   action.at("choices").get<std::vector<std::int64_t>>(), bounds(action.at("low"), -inf),
                   bounds(action.at("high"), inf)};
    spec.time_limit = env.time_limit.value_or(value.at("limited").get<bool>() ? 0 : kBridgedTimeLimit);
    spec.engine = value.at("engine").get<std::string>();
    spec.saves_state = false;
    if (const Json& spaces = value.at("spaces"); !spaces.is_null()) spec.spaces = spaces.dump();
    return spec;
  } catch (const Json::exception& e) {
    throw RunError(fmt::format("{}: a worker's description is damaged: {}", env.id, e.what()));
  }
}

bool same_spaces(const EnvSpec& a, const EnvSpec& b) {
  const auto same_field = [](const Field& x, const Field& y) {  // who sees it is for the program to say
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape && x.choices == y.choices && x.stack == y.stack;
  };
  return std::ranges::equal(a.fields, b.fields, same_field) && a.action.kind == b.action.kind &&
         a.action.choices == b.action.choices && a.action.low == b.action.low && a.action.high == b.action.high;
}

// An action that the task takes, for the first step of all.
void write_some_action(const ActionSpace& space, std::span<double> action) {
  for (std::size_t d = 0; d < action.size(); ++d) {
    action[d] = space.continuous(d) ? std::clamp(0.0, space.low[d], space.high[d]) : 0.0;
  }
}

std::string in_words(const std::string& id, const Json& error) {
  return fmt::format("{}: {}", id, error.value("text", "it failed without a word"));
}

EnvSpec ask(const EnvOptions& env, const std::string& python, const Json& setup) {
  WorkerProcess process(python, setup, {env.step_timeout, nullptr});
  const auto answer = [&](char wanted) {
    const std::optional<WorkerProcess::Answer> a = process.wait();
    if (!a && process.never_started()) {
      throw Error(
          fmt::format("{}: {} does not start: a Python with the task's package is wanted; env.python or the "
                      "environment variable GIPO_PYTHON chooses it",
                      env.id, python));
    }
    if (!a) throw Error(fmt::format("{}: the worker that was to try it out died: {}", env.id, process.last_words()));
    if (a->kind == 'E') throw Error(in_words(env.id, a->value));
    GIPO_CHECK(a->kind == wanted);
    return a->value;
  };
  EnvSpec spec = read_spec(answer('S'), env);
  Slots slots(1, spec.fields, spec.action.dims());
  slots.memory = process.share(slots.bytes);
  write_some_action(spec.action, slots.action(0));
  process.tell(layout(slots));
  const Json memory = answer('T');
  spec.memory = {memory.value("each", 0.0), memory.value("worker", 0.0), memory.value("worker_programs", 0.0)};
  return spec;
}

}  // namespace

bool is_bridged(const std::string& id) {
  return is_one_of({"gymnasium:", "python:", "envpool:"}, id) || is_robot_task(id);
}

std::string worker_setup(const EnvOptions& env, const OptionValues& options) {
  return setup_json(env, options, 1).dump();
}

std::int64_t worker_seed(std::uint64_t root, std::uint64_t incarnation) {
  return static_cast<std::int64_t>(derive_seed(root, "worker", incarnation) >> 33);
}

EnvSpec bridged_spec(const EnvOptions& env, const OptionValues& options) {
  static std::mutex mutex;
  static std::map<std::string, EnvSpec> known;
  const std::string python = worker_python(env);
  Json setup = setup_json(env, options, 1);
  setup["try_out"] = true;
  const std::lock_guard lock(mutex);
  const std::string question = python + " " + setup.dump();
  auto it = known.find(question);
  if (it == known.end()) it = known.emplace(question, ask(env, python, setup)).first;
  EnvSpec spec = it->second;
  assign_roles(env, spec);
  return spec;
}

Bridge::Bridge(EnvSpec spec, const EnvOptions& env, const OptionValues& options, const EnvCrowd& crowd)
    : spec_(std::move(spec)),
      python_(worker_python(env)),
      setup_(std::make_unique<Json>(setup_json(env, options, crowd.workers))),
      crowd_(crowd),
      max_deaths_(env.max_deaths),
      step_timeout_(env.step_timeout) {
  // A pool has threads: a second process would only split it.
  const std::size_t most = env.id.starts_with("envpool:") ? 1 : crowd.count;
  crowd_.workers = std::clamp<std::size_t>(crowd.workers, 1, most);
  std::size_t first = crowd_.first;
  for (std::size_t w = 0; w < crowd_.workers; ++w) {
    const std::size_t count = (w + 1) * crowd_.count / crowd_.workers - w * crowd_.count / crowd_.workers;
    workers_.push_back(
        {nullptr, Slots(count, spec_.fields, spec_.action.dims()), std::vector<std::uint64_t>(count), first});
    first += count;
    start(workers_.back());
  }
}

Bridge::~Bridge() { leave(); }

void Bridge::leave() {
  for (Worker& worker : workers_) worker.process->dismiss();  // all at once
}

Bridge::Place Bridge::place_of(std::size_t i) const {
  std::size_t w = 0;
  for (; i >= workers_[w].slots.count; ++w) i -= workers_[w].slots.count;
  return {w, i};
}

const Slots& Bridge::slots(std::size_t worker) const { return workers_[worker].slots; }
std::uint64_t Bridge::incarnation(std::size_t worker) const { return workers_[worker].incarnation; }
std::uint64_t Bridge::rounds(std::size_t worker) const { return workers_[worker].rounds; }

// Its spaces are known, so all it needs is sent at once; what it answers is read when something is waited for.
void Bridge::start(Worker& worker) {
  Json setup = *setup_;
  setup["count"] = worker.slots.count;
  setup["first"] = worker.first;
  worker.process = std::make_unique<WorkerProcess>(python_, setup, WorkerProcess::Patience{step_timeout_, crowd_.stop});
  worker.slots.memory = worker.process->share(worker.slots.bytes);
  worker.process->tell(layout(worker.slots));
  for (std::size_t i = 0; i < worker.slots.count; ++i) write_seed(worker, i);
  worker.ordered = worker.sent = false;
  worker.rounds_before = worker.rounds;
}

void Bridge::write_seed(Worker& worker, std::size_t slot) {
  worker.slots.seed()[slot] = worker_seed(worker.roots[slot], worker.incarnation);
}

void Bridge::seed(const Place& place, std::uint64_t root) {
  Worker& worker = workers_[place.worker];
  GIPO_CHECK(!worker.sent);
  worker.roots[place.slot] = root;
  write_seed(worker, place.slot);
}

void Bridge::order(const Place& place, Command command) {
  Worker& worker = workers_[place.worker];
  GIPO_CHECK(!worker.sent);
  worker.slots.command()[place.slot] = command;
  worker.ordered = true;
}

void Bridge::exchange(std::size_t index) {
  for (Worker& worker : workers_) {
    if (!worker.ordered) continue;
    worker.process->go();
    worker.ordered = false;
    worker.sent = true;
  }
  settle(index);
}

void Bridge::settle(std::size_t index) {
  Worker& worker = workers_[index];
  if (worker.sent && !finish_round(worker)) replace(worker);
}

bool Bridge::finish_round(Worker& worker) {
  while (const std::optional<WorkerProcess::Answer> answer = worker.process->wait()) {
    // It worked when it was tried out, so that the run ends here and the config may be right.
    if (answer->kind == 'E') throw RunError(in_words(spec_.id, answer->value));
    if (answer->kind == 'S') {
      EnvOptions env;
      env.id = spec_.id;
      if (!same_spaces(read_spec(answer->value, env), spec_)) {
        throw RunError(fmt::format("{}: its spaces are not those it had when the run began", spec_.id));
      }
      continue;
    }
    worker.sent = false;
    ++worker.rounds;
    std::fill_n(worker.slots.command(), worker.slots.count, Command::kNone);
    return true;
  }
  return false;
}

void Bridge::replace(Worker& worker) {
  last_death_ = worker.process->last_words();
  worker.deaths = worker.rounds - worker.rounds_before >= kSettled ? 1 : worker.deaths + 1;
  if (worker.deaths >= max_deaths_) {
    throw RunError(
        fmt::format("{}: a worker died {} times in a row (env.max_deaths): {}", spec_.id, worker.deaths, last_death_));
  }
  if (worker.deaths > 1) {
    const std::int64_t wait = kBackOffMs << std::min<std::int64_t>(worker.deaths - 2, 10);
    for (std::int64_t ms = 0; ms < std::min(wait, kMostBackOffMs); ms += kBackOffMs) {
      throw_if_requested(crowd_.stop);
      std::this_thread::sleep_for(std::chrono::milliseconds(kBackOffMs));
    }
  }
  ++worker.incarnation;
  start(worker);
}

}  // namespace gipo
