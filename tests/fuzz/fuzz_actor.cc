// An actor's state, of tasks of each kind. One that loads can go on collecting.
#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/plan/plan.h"
#include "gipo/replay/replay_buffer.h"
#include "gipo/train/actor.h"
#include "gipo/train/intake.h"

namespace {

constexpr const char* kTasks[] = {"CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "Hopper-v5"};

// What one task needs, made once.
struct Setting {
  explicit Setting(const std::string& task) {
    gipo::LoadedConfig loaded = gipo::parse_config(
        "env = {count = 1}\npolicy = {hidden = [2]}\nreplay = {segment_length = 3, capacity = 12}\n"
        "staleness = {regime = 'custom', window = 4, actors = 1}\n",
        "fuzz.toml");
    loaded.config.env.id = task;
    plan = gipo::make_plan(loaded);
    weights = gipo::empty_weights(plan.model);
  }
  gipo::Plan plan;
  gipo::Weights weights;
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all(std::begin(kTasks), std::end(kTasks));
  return all;
}

}  // namespace

std::vector<std::string> valid_inputs() {
  std::vector<std::string> inputs;
  for (const Setting& setting : settings()) {
    gipo::Actor actor(gipo::actor_spec(setting.plan, 0));
    actor.step(setting.weights, 0);
    gipo::ByteWriter out;
    actor.save(out);
    inputs.push_back(out.take());
  }
  return inputs;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const Setting& setting : settings()) {
    gipo::Actor actor(gipo::actor_spec(setting.plan, 0));
    gipo::ReplayBuffer replay(setting.plan.replay_shape(), gipo::RandomStream(1));
    gipo::Intake intake(replay, setting.plan.envs());
    gipo::ByteReader in({reinterpret_cast<const char*>(data), size});
    try {
      actor.load(in);
      for (int i = 0; i < 4; ++i) actor.step(setting.weights, 0);
      actor.cut(setting.weights);
      intake.take(actor.report());
      gipo::ByteWriter out;
      replay.save(out);
      gipo::ByteReader again(out.bytes());
      replay.load(again);  // holds only what a replay may hold
    } catch (const gipo::Error&) {
    } catch (const gipo::RunError&) {  // a task that gives nothing finite
    }
  }
  return 0;
}
