#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gipo/core/random.h"
#include "gipo/data/spec.h"
#include "gipo/env/env_options.h"
#include "gipo/env/options.h"

namespace gipo {

class ByteReader;
class ByteWriter;
class Stop;

struct ActionSpace {
  enum class Kind { kDiscrete, kMultiDiscrete, kBox, kComposed };
  Kind kind = Kind::kDiscrete;
  // Composed: choices beside numbers; all three lists have an entry per dimension, choices 0 where it is a number.
  std::vector<std::int64_t> choices;  // discrete: one entry; multi-discrete: one per dimension
  std::vector<double> low, high;      // box: one per dimension, may be infinite

  bool continuous(std::size_t d) const { return kind == Kind::kBox || (kind == Kind::kComposed && choices[d] == 0); }
  std::size_t dims() const { return kind == Kind::kBox ? low.size() : choices.size(); }

  static ActionSpace discrete(std::int64_t n) { return {Kind::kDiscrete, {n}, {}, {}}; }
  static ActionSpace box(std::vector<double> low, std::vector<double> high) {
    return {Kind::kBox, {}, std::move(low), std::move(high)};
  }
};

// What environments of a task take of memory, in bytes, as one that was made showed it.
struct EnvMemory {
  double each = 0;             // of an environment; in a worker, of each but its first
  double worker = 0;           // of a process, for tasks of Python packages, with its first environment
  double worker_programs = 0;  // what all of those share: Python, libraries
};

// What is known of a task before any instance of it exists.
struct EnvSpec {
  std::string id;
  std::string summary;               // one line for `gipo list envs`
  std::size_t observation_size = 0;  // numbers that the networks read
  ActionSpace action;
  std::int64_t time_limit = 0;  // steps after which an episode is truncated; 0: never
  std::vector<EnvOption> options = {};
  // What simulates the task where this library does not, with version and model; known of an instance alone.
  std::string engine = {};
  bool saves_state = true;  // false: a resumed run begins new episodes
  // The spaces as JSON (docs/run-folder.md), which the file of a policy holds; known of an instance alone. Empty: not
  // known.
  std::string spaces = {};
  EnvMemory memory = {};  // known of an instance alone
  // What an observation is made of. Always there for an instance; empty otherwise.
  Fields fields = {};
};

inline constexpr std::int8_t kNoSuccess = -1;

struct StepResult {
  double reward = 0;
  bool terminated = false;  // the task ended: nothing follows, do not bootstrap
  bool truncated = false;   // time ran out: bootstrap from the observation
  // Not null: the simulation broke down, and this is the name of how. The episode is over, as if terminated, but neither
  // this step nor the observation means anything.
  const char* fault = nullptr;
  std::int8_t success = kNoSuccess;  // 0 or 1 where the task says after each step whether it is solved
};

// What an episode came to, where the task speaks of success at all.
struct Success {
  bool known = false;
  bool ever = false, last = false;  // at any step, at the last one

  void add(const StepResult& step) {
    if (step.success == kNoSuccess) return;
    known = true;
    last = step.success != 0;
    ever = ever || last;
  }
};

// The fault of an environment whose process ended; with the next reset it is there again.
inline constexpr char kWorkerDied[] = "worker_died";  // an array: one address, by which it is known

// One simulated task, owned and stepped by one thread. After a step that ends the episode the observation is the true
// final one, until the owner calls reset. The base keeps the time limit and the random stream; a task implements the
// protected part.
class Env {
 public:
  virtual ~Env() = default;

  const EnvSpec& spec() const { return spec_; }
  bool running() const { return running_; }  // an episode: from reset until a step ends it

  void reset(std::uint64_t seed);  // starts the task's random stream anew, then an episode
  void reset();                    // the next episode of the same stream
  // One value per action dimension; discrete choices as whole numbers. Throws Error for an action that is not one of
  // this task's (a box action outside its bounds is left to the task), and InvariantError when no episode runs.
  StepResult step(std::span<const double> action);
  // Tells the action of the next step beforehand, so that environments in other processes work on it while their owner
  // goes on to the next. Nothing for a task of this process.
  virtual void begin_step(std::span<const double>) {}
  // Of a task of one vector, as a task of this library writes it.
  virtual void observe(std::span<double> observation) const = 0;  // [observation_size]
  // Any observation: each field as spec().fields has it.
  void observe(ObservationRow out) const { observe_fields(out); }

  // Everything: physics, step count, whether an episode runs, random stream.
  void save_state(ByteWriter& out) const;
  void load_state(ByteReader& in);
  // The task's physical state alone; load_physics moves the running episode there, its step count going on, as the
  // oracle tests do.
  virtual void save_physics(ByteWriter& out) const = 0;
  virtual void load_physics(ByteReader& in) = 0;
  // Beside the object itself, about.
  virtual double memory_bytes() const { return 0; }
  // How the process ended that kWorkerDied speaks of.
  virtual std::string last_death() const { return {}; }
  // Nothing will be asked of it again: its process may end, and the owner need not wait for that yet.
  virtual void leave() {}

 protected:
  explicit Env(EnvSpec spec) : spec_(std::move(spec)) {}

  struct Outcome {
    double reward = 0;
    bool terminated = false;
    const char* fault = nullptr;  // see StepResult; the name of a constant
    bool truncated = false;       // by a limit of the task's own beside spec().time_limit
    std::int8_t success = kNoSuccess;
  };
  // For a task whose sizes depend on its options.
  EnvSpec& own_spec() { return spec_; }
  // Whether the time limit ends the episode with the next step.
  bool last_step() const { return spec_.time_limit > 0 && steps_ + 1 >= spec_.time_limit; }
  // Before start_episode, where a new seed was given: for a task whose random stream lies elsewhere.
  virtual void seeded(std::uint64_t) {}
  virtual void start_episode(RandomStream& random) = 0;
  virtual Outcome advance(std::span<const double> action) = 0;
  // The numbers of the observation above as float32, where a task has no fields of its own.
  virtual void observe_fields(ObservationRow out) const;

 private:
  friend std::unique_ptr<Env> make_env(const std::string&, std::optional<std::int64_t>, const OptionValues&);
  EnvSpec spec_;
  std::int64_t steps_ = 0;  // in this episode
  bool running_ = false;    // from reset until a step ends the episode
  RandomStream random_;
  mutable std::vector<double> observed_;  // [observation_size], of observe_fields
};

// One line at the end of a task's file makes it known:
//   const RegisterEnv kRegistered{cart_pole_spec(), [] { return std::make_unique<CartPole>(); }};
// A task with options is made from all of them: [](const OptionValues& o) { return std::make_unique<Hopper>(o); }
struct RegisterEnv {
  RegisterEnv(EnvSpec spec, std::function<std::unique_ptr<Env>()> make);
  RegisterEnv(EnvSpec spec, std::function<std::unique_ptr<Env>(const OptionValues&)> make);
};

// How many environments are wanted that step together.
struct EnvCrowd {
  std::size_t count = 1;
  std::size_t workers = 1;     // processes for them, where the task is one of a Python package
  bool restart = true;         // an episode that ends is followed by reset(); false: by reset(seed), or by none
  const Stop* stop = nullptr;  // where requested, what waits for a process throws Interrupted
  std::size_t first = 0;       // number of the first in the run, for messages
};

// Tasks register before main starts and are never removed: what follows may be called from any thread.
// Sorted by id.
std::vector<EnvSpec> registered_envs();
// Throws Error, naming the nearest known id.
const EnvSpec& find_env(const std::string& id);
// time_limit replaces the task's own; 0: never. Throws Error for options the task does not have or accept.
std::unique_ptr<Env> make_env(const std::string& id, std::optional<std::int64_t> time_limit = std::nullopt,
                              const OptionValues& options = {});

// A task as a config chooses it: one of those above, or one of a Python package (env/bridge/).
// Every option of the task at its value; of a Python package those given. Throws Error for one that it does not have or
// accept.
OptionValues task_options(const std::string& id, const OptionValues& given);
// Makes one to see: sizes follow from the options, and what simulates it must be there. Throws Error.
EnvSpec ask_spec(const EnvOptions& env, const OptionValues& options);
// Environments of the task that was asked.
std::vector<std::unique_ptr<Env>> make_envs(const EnvSpec& spec, const EnvOptions& env, const OptionValues& options,
                                            const EnvCrowd& crowd);

}  // namespace gipo
