// state.json of a checkpoint that is whole: a run goes on from it or refuses.
#include <nlohmann/json.hpp>
#include <sstream>

#include "gipo/core/error.h"
#include "gipo/io/temporary_folder.h"
#include "gipo/plan/option_table.h"
#include "gipo/run/resume.h"
#include "gipo/train/trainer.h"

namespace {

constexpr const char* kState = "state.json";
constexpr std::size_t kMostReplayBytes = 1 << 20;  // a config may ask for more than a test should have

gipo::TrainerHooks hooks() {
  return {[] { return 0.0; }, {}, {}, nullptr};
}

std::string bare_config(const gipo::Config& config) {
  std::istringstream lines(gipo::config_to_toml(config));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('#')) text += line.substr(0, line.find("  # ")) + "\n";
  }
  return text;
}

// A finished run of two updates.
struct Run {
  Run() {
    gipo::LoadedConfig loaded = gipo::parse_config(
        "env = {count = 1, time_limit = 8}\npolicy = {hidden = [2]}\nreplay = {segment_length = 4}\neval = {episodes = "
        "1}\n"
        "learner = {batch_size = 4, updates = 2}\nstaleness = {regime = 'custom', window = 4, actors = 1}\n",
        "fuzz.toml");
    loaded.config.run.dir = folder.path();
    const gipo::Plan plan = gipo::make_plan(loaded);
    gipo::RunFolder files(plan, "fuzz", [] { return 0.0; });
    gipo::Trainer(plan, files, hooks()).run();
    path = plan.run_dir;
    // Without the comments that explain each option: they are most of the file, and nothing to parse.
    gipo::write_file_atomic(path + "/config.toml", bare_config(plan.config));
    checkpoint = gipo::read_checkpoint(gipo::newest_checkpoint(checkpoints(), passed_over)->path);
    auto state = nlohmann::ordered_json::parse(checkpoint.files.at(kState));
    state["config"] = bare_config(plan.config);
    checkpoint.files[kState] = state.dump();
  }
  std::string checkpoints() const { return path + "/" + gipo::kCheckpointFolder; }

  gipo::TemporaryFolder folder{gipo::TemporaryFolder::memory()};
  std::string path;
  gipo::Checkpoint checkpoint;
  std::vector<std::string> passed_over;
};

Run& run() {
  static Run finished;
  return finished;
}

}  // namespace

std::vector<std::string> valid_inputs() { return {run().checkpoint.files.at(kState)}; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gipo::Checkpoint hostile = run().checkpoint;
  hostile.files[kState].assign(reinterpret_cast<const char*>(data), size);
  gipo::write_checkpoint(run().checkpoints(), hostile, 1);
  try {
    const gipo::ResumePoint point = gipo::find_resume_point(run().path, {4, {}});
    for (const auto& [name, position] : point.positions) GIPO_CHECK(name.find('/') == std::string::npos);
    GIPO_CHECK(point.plan.capacity > 0 && point.plan.total_env_steps() > 0);
    if (point.plan.replay_bytes() > kMostReplayBytes) return 0;
    gipo::RunFolder files(
        point.plan, "fuzz", [] { return 0.0; }, point.positions);
    gipo::Trainer(point.plan, files, hooks()).restore(point.checkpoint);
  } catch (const gipo::Error&) {
  } catch (const gipo::RunError&) {  // a log that is shorter than the checkpoint says
  }
  return 0;
}
