#include <fmt/format.h>

#include <filesystem>

#include "gipo/cli/commands.h"
#include "gipo/cli/python.h"
#include "gipo/core/error.h"
#include "gipo/plan/config_file.h"

namespace gipo::cli {
namespace {

// The Python package draws. Where env.python says what runs the task, it also draws it.
int run_scene(const std::string& module, const SceneArguments& a, const std::vector<std::string>& more) {
  const std::string config = a.run + "/config.toml";
  if (!std::filesystem::exists(config)) throw Error(fmt::format("{}: no such run folder", a.run));
  std::vector<std::string> words = {a.run, "--seed", std::to_string(a.seed)};
  if (a.policy != "last") words.insert(words.end(), {"--policy", a.policy});
  if (a.sampled) words.push_back("--sampled");
  if (!a.episode.empty()) words.insert(words.end(), {"--episode", a.episode});
  if (!a.size.empty()) words.insert(words.end(), {"--size", a.size});
  if (a.fps) words.insert(words.end(), {"--fps", fmt::format("{}", *a.fps)});
  words.insert(words.end(), more.begin(), more.end());
  return run_python(module, words, "", load_config(config).config.env.python);
}

}  // namespace

int play(const PlayArguments& a) { return run_scene("gipo.play", a, {}); }

int video(const EvalArguments& a) {
  std::vector<std::string> words = {"--video", a.video};
  if (a.episodes) words.insert(words.end(), {"--episodes", std::to_string(*a.episodes)});
  if (a.json) words.push_back("--json");
  return run_scene("gipo.video", a, words);
}

}  // namespace gipo::cli
