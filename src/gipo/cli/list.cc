#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"
#include "gipo/cli/progress.h"
#include "gipo/core/error.h"
#include "gipo/env/env.h"
#include "gipo/objective/surrogate.h"
#include "gipo/plan/option_table.h"
#include "gipo/plan/presets.h"
#include "gipo/plan/zoo.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string in_words(const ActionSpace& a) {
  if (a.kind == ActionSpace::Kind::kBox) {
    return fmt::format("{} continuous in [{:g}, {:g}]", a.dims(), a.low.front(), a.high.front());
  }
  return fmt::format("choices {}", fmt::join(a.choices, " x "));
}

void list_envs(bool json) {
  Json rows = Json::array();
  for (const EnvSpec& e : registered_envs()) {
    Json options = Json::array();
    for (const EnvOption& o : e.options) {
      options.push_back({{"name", o.name},
                         {"type", o.type()},
                         {"default", to_toml(o.value)},
                         {"accepted", o.accepted()},
                         {"help", o.help}});
    }
    rows.push_back({{"id", e.id},
                    {"observation_size", e.observation_size},
                    {"action", in_words(e.action)},
                    {"time_limit", e.time_limit},
                    {"summary", e.summary},
                    {"options", options}});
    if (json) continue;
    fmt::print("{:<26} observation {:<3} action {:<28} limit {:<5} {}\n", e.id, e.observation_size, in_words(e.action),
               e.time_limit, e.summary);
    for (const EnvOption& o : e.options) {
      fmt::print("    env.options.{:<43} {:<28} {}\n", o.name, to_toml(o.value), o.help);
    }
  }
  if (json) return fmt::print("{}\n", rows.dump(2));
  fmt::print(
      "Of Python packages (docs/bridge.md): gymnasium:ID, python:MODULE:FACTORY, envpool:ID; robot tasks with cameras\n"
      "(docs/robot-tasks.md): libero:SUITE/N, metaworld-pixels:TASK, robosuite:TASK\n");
}

// The page docs/tasks.md.
void print_envs_page() {
  fmt::print(
      "# Tasks\n\n"
      "Every task with its options, made by `gipo list envs --markdown`. An option stands in the table `[env.options]` "
      "of a\n"
      "run file, or on the command line as `--set env.options.NAME=VALUE`. [Environments](environments.md) says what "
      "the\n"
      "tasks are and how they are tested; [those of Python packages](bridge.md) come beside these.\n");
  for (const EnvSpec& e : registered_envs()) {
    fmt::print("\n## {}\n\nAim: {}. Observation: {} numbers. Action: {}. Limit: {} steps.\n", e.id, e.summary,
               e.observation_size, in_words(e.action), e.time_limit);
    if (e.options.empty()) continue;
    fmt::print("\n| option | type | default | meaning |\n|---|---|---|---|\n");
    for (const EnvOption& o : e.options) {
      fmt::print("| `{}` | {}{}{} | `{}` | {} |\n", o.name, o.type(), o.accepted().empty() ? "" : ", ", o.accepted(),
                 to_toml(o.value), o.help);
    }
  }
}

void list_surrogates(bool json) {
  Json rows = Json::array();
  for (const SurrogateInfo& s : registered_surrogates()) {
    rows.push_back({{"name", s.name}, {"options", s.options}, {"summary", s.summary}});
    if (!json) fmt::print("{:<10} {}\n{:<10} options: {}\n", s.name, s.summary, "", fmt::join(s.options, ", "));
  }
  if (json) fmt::print("{}\n", rows.dump(2));
}

void list_options(bool json) {
  Json rows = Json::array();
  for (const OptionGroup<Config>& g : option_table()) {
    if (!json) fmt::print("\n[{}] {}\n", g.name, g.help);
    for (const Option<Config>& o : g.options) {
      rows.push_back(
          {{"key", o.key}, {"type", o.type}, {"default", o.value}, {"accepted", o.accepted}, {"help", o.help}});
      if (json) continue;
      fmt::print("  {:<32} {}\n  {:<32} {}{}; default {}\n", o.key, o.help, "", o.type,
                 o.accepted.empty() ? "" : ", " + o.accepted, o.value);
    }
  }
  if (json) fmt::print("{}\n", rows.dump(2));
}

void list_presets(bool json) {
  Json rows = Json::array();
  for (const PresetConfig& preset : preset_configs()) {
    rows.push_back({{"name", preset.name}, {"about", preset.about()}, {"config", preset.text}});
    if (!json) fmt::print("{:<28} {}\n", preset.name, preset.about());
  }
  if (json) fmt::print("{}\n", rows.dump(2));
}

template <class T, class Words>
std::string or_none(const std::optional<T>& value, Words&& words) {
  return value ? words(*value) : std::string("-");
}

struct ZooRow {
  std::string task, measured, worst, goal, env_steps, cpu_seconds, rl_zoo;
};

ZooRow in_words(const ZooEntry& e) {
  const auto& m = e.measured;
  return {e.task,
          m ? fmt::format("{} ({})", in_digits(m->mean), m->seeds) : "not measured",
          or_none(m, [](const auto& value) { return in_digits(value.worst); }),
          or_none(e.goal, in_digits),
          fmt::format("{}", e.env_steps),
          or_none(m ? m->cpu_seconds : std::nullopt, [](double seconds) { return fmt::format("{:.0f}", seconds); }),
          or_none(e.rl_zoo,
                  [](const auto& value) { return fmt::format("{} ({})", in_digits(value.mean), value.env_steps); })};
}

void list_zoo(bool json) {
  if (json) return fmt::print("{}\n", zoo_as_json());
  const char* row = "{:<28} {:>16} {:>9} {:>8} {:>10} {:>7}  {}\n";
  fmt::print(fmt::runtime(row), "task", "greedy (seeds)", "worst", "goal", "env steps", "cpu s",
             "RL Zoo's PPO (env steps)");
  for (const ZooEntry& entry : zoo()) {
    const ZooRow w = in_words(entry);
    fmt::print(fmt::runtime(row), w.task, w.measured, w.worst, w.goal, w.env_steps, w.cpu_seconds, w.rl_zoo);
  }
  fmt::print("Train one: gipo train --zoo TASK. What the figures are: docs/zoo.md\n");
}

// The page docs/zoo.md.
void print_zoo_page() {
  fmt::print(R"(# Zoo

After this page you can train a policy that solves a known task with one command. The page is made by
`gipo list zoo --markdown`.

```
gipo list zoo                                    # the tasks, and what to expect
gipo train --zoo LunarLander-v3 --seed 1         # train with the settings of the zoo
gipo train --zoo LunarLander-v3 --dry-run        # show these settings
gipo train --zoo LunarLander-v3 --set policy.hidden=[128,128] --name wider
```

A task of the zoo is a preset: `configs/zoo/LunarLander-v3.toml` is `zoo/LunarLander-v3`. In Python,
`gipo.train("zoo/LunarLander-v3", seed=1)` and `gipo.Trainer(config="zoo/LunarLander-v3")` use it; `gipo.zoo()` gives the
table below. `scripts/setup.sh --box2d` installs what LunarLander and BipedalWalker need (without a clone,
[`pip install 'gipo[box2d]'`](python.md#install)), and `scripts/setup.sh --metaworld` what Meta-World needs
([Meta-World](metaworld.md)). MinAtar's games want a program with libtorch ([images](images.md)):
`build/torch/gipo train --zoo MinAtar-Breakout`.

)");
  fmt::print(
      "| task | greedy return (seeds) | worst seed | solved from | env steps | CPU seconds | RL Zoo's PPO (env steps) "
      "|\n"
      "|---|---|---|---|---|---|---|\n");
  for (const ZooEntry& entry : zoo()) {
    const ZooRow w = in_words(entry);
    fmt::print("| `{}` | {} | {} | {} | {} | {} | {} |\n", w.task, w.measured, w.worst, w.goal, w.env_steps,
               w.cpu_seconds, w.rl_zoo);
  }
  fmt::print(R"(
- **Greedy return**: the mean return of the final policy, which takes its most likely action. It is the mean over the
  seeds 1, 2, 3 and so on, as many as the number in brackets says. The settings were chosen on other seeds, from 101 on.
- **Solved from**: the return from which Gymnasium calls the task solved; for a task without such a number, ours.
- **CPU seconds**: processor time of one run with its workers. Divide by two for the time on two cores that have nothing
  else to do. MinAtar's returns are those of runs whose learner was on a card ([images](images.md#games)); the seconds are
  of a run without.
- **RL Zoo's PPO**: what the benchmark page of RL Baselines3 Zoo lists for its trained PPO agent, with the steps that it
  was trained for. Its authors say that this is one run each. It used older versions of the tasks (LunarLander-v2, MuJoCo
  v3), so the numbers are neighbours, not a comparison.

## Check it

```
make zoo                                # one seed of each quick task: does it reach its goal?
make zoo ZOO="--seeds 1-5 --all"        # all tasks, five seeds; can be interrupted and continued
make zoo ZOO="--task Acrobot-v1"
```

Each run is a folder in `runs/zoo`. A run that is there is not made again. The command prints a row for each task and
fails if a run misses its goal. A task whose packages are missing is left out, and the command says so. MinAtar's games are
trained by `build/torch/gipo`.
)");
}

}  // namespace

int list(const ListArguments& a) {
  if (a.markdown && a.what != "options" && a.what != "envs" && a.what != "zoo")
    throw Error("--markdown goes with `gipo list options`, `gipo list envs` or `gipo list zoo`");
  if (a.what == "envs" && a.markdown) print_envs_page();
  if (a.what == "envs" && !a.markdown) list_envs(a.json);
  if (a.what == "presets") list_presets(a.json);
  if (a.what == "zoo" && a.markdown) print_zoo_page();
  if (a.what == "zoo" && !a.markdown) list_zoo(a.json);
  if (a.what == "surrogates") list_surrogates(a.json);
  if (a.what == "options" && a.markdown) fmt::print("{}", options_page());
  if (a.what == "options" && !a.markdown) list_options(a.json);
  return kDone;
}

}  // namespace gipo::cli
