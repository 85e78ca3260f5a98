#include "gipo/env/mujoco/mujoco_env.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "gipo/io/bytes.h"
#include "gipo/io/temporary_folder.h"

namespace gipo {
namespace {

std::vector<std::string> mujoco_tasks() {
  std::vector<std::string> ids;
  for (const EnvSpec& spec : registered_envs()) {
    for (const EnvOption& option : spec.options) {
      if (option.name == "xml_file") ids.push_back(spec.id);
    }
  }
  return ids;
}

std::string bytes_of(const Env& env) {
  ByteWriter out;
  env.save_state(out);
  std::vector<double> observation(env.spec().observation_size);
  env.observe(observation);
  out.array(observation);
  return out.take();
}

// State and observation after each step, through ends of episodes.
std::vector<std::string> play(Env& env, RandomStream random, int steps) {
  std::vector<std::string> rows;
  std::vector<double> action(env.spec().action.dims());
  for (int t = 0; t < steps; ++t) {
    for (double& a : action) a = random.uniform(-1, 1);
    const StepResult r = env.step(action);
    ByteWriter out;
    out.value(r.reward);
    rows.push_back(out.take() + bytes_of(env));
    if (r.terminated || r.truncated) env.reset();
  }
  return rows;
}

TEST(Mujoco, TheSpecIsThatOfTheModel) {
  ASSERT_EQ(mujoco_tasks().size(), 10u);
  for (const std::string& id : mujoco_tasks()) {
    const EnvSpec& known = find_env(id);
    const auto env = make_env(id);
    EXPECT_EQ(env->spec().observation_size, known.observation_size) << id;
    EXPECT_EQ(env->spec().action.low, known.action.low) << id;
    EXPECT_EQ(env->spec().action.high, known.action.high) << id;
    EXPECT_TRUE(env->spec().engine.starts_with("MuJoCo 3.3.0, ")) << env->spec().engine;
  }
}

// Every byte of what follows, at many moments: contacts, limits and the fields that lag behind the joints included.
TEST(Mujoco, LoadedStateIsTheSavedOneToTheLastBit) {
  for (const std::string& id : mujoco_tasks()) {
    SCOPED_TRACE(id);
    const auto env = make_env(id), other = make_env(id);
    env->reset(3);
    other->reset(99);
    play(*other, RandomStream(5), 7);  // what it held before must not matter
    for (int n = 0; n < 12; ++n) {
      play(*env, RandomStream(static_cast<std::uint64_t>(n)), 11);
      ByteWriter out;
      env->save_state(out);
      ByteReader in(out.bytes());
      other->load_state(in);
      ASSERT_EQ(bytes_of(*other), bytes_of(*env));
      ASSERT_EQ(play(*other, RandomStream(1), 9), play(*env, RandomStream(1), 9));
    }
  }
}

TEST(Mujoco, StateThatIsNotFiniteIsRefused) {
  const auto env = make_env("Hopper-v5");
  env->reset(1);
  ByteWriter out;
  env->save_physics(out);
  std::string bytes = out.take();
  const double nan = std::nan("");
  std::memcpy(bytes.data() + 3 * sizeof nan, &nan, sizeof nan);
  ByteReader in(bytes);
  EXPECT_THROW(env->load_physics(in), Error);
}

// Moves Hopper's root, whose velocities follow time and six positions in the saved state.
StepResult step_at_speed(Env& env, double speed) {
  ByteWriter out;
  env.save_physics(out);
  std::string bytes = out.take();
  std::memcpy(bytes.data() + 7 * sizeof speed, &speed, sizeof speed);
  ByteReader in(bytes);
  env.load_physics(in);
  return env.step(std::vector<double>(3, 0));
}

TEST(Mujoco, SimulationThatDivergesEndsTheEpisodeByName) {
  const auto env = make_env("Hopper-v5", std::nullopt, {{"terminate_when_unhealthy", false}});
  env->reset(1);
  const StepResult r = step_at_speed(*env, 1e30);
  ASSERT_NE(r.fault, nullptr);
  EXPECT_STREQ(r.fault, "mujoco_bad_qvel");
  EXPECT_TRUE(r.terminated);
  EXPECT_EQ(r.reward, 0);
  EXPECT_FALSE(env->running());
  // The next episode is none the worse.
  env->reset();
  EXPECT_EQ(env->step(std::vector<double>(3, 0)).fault, nullptr);
}

TEST(Mujoco, ErrorsOfTheLibraryThrowThroughIt) {
  const std::shared_ptr<const MujocoModel> model = load_model("hopper.xml");
  try {
    model->api.mj_stateSize(model->m, ~0u);
    FAIL();
  } catch (const MujocoError& e) {
    EXPECT_NE(std::string(e.what()).find("MuJoCo: mj_stateSize: invalid state"), std::string::npos) << e.what();
  }
}

TEST(Mujoco, OneModelForAll) {
  const auto first = load_model("ant.xml"), second = load_model("ant.xml");
  EXPECT_EQ(first, second);
  EXPECT_NE(load_model("hopper.xml"), first);
}

TEST(MujocoThreads, EnvironmentsOfOneModelStepTogether) {
  for (const char* id : {"Hopper-v5", "Ant-v5"}) {
    std::vector<std::vector<std::string>> rows(4);
    std::vector<std::jthread> threads;
    threads.reserve(rows.size());
    for (auto& own : rows) {
      threads.emplace_back([&own, id] {
        const auto env = make_env(id);
        env->reset(1);
        own = play(*env, RandomStream(2), 60);
      });
    }
    threads.clear();  // joins
    for (const auto& own : rows) EXPECT_EQ(own, rows[0]) << id;
  }
}

class Models : public ::testing::Test {
 protected:
  std::string refusal(const std::string& id, const std::string& file) {
    try {
      make_env(id, std::nullopt, {{"xml_file", file}});
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing thrown";
  }
  std::string model(const std::string& text) {
    std::string path = dir_ / "model.xml";
    std::ofstream(path) << text;
    return path;
  }
  const TemporaryFolder dir_;
};

TEST_F(Models, WhatCannotBeUsedIsNamedInOneLine) {
  const std::string missing = refusal("Hopper-v5", "no_such.xml");
  EXPECT_NE(missing.find("no_such.xml is not there; "), std::string::npos) << missing;
  EXPECT_NE(missing.find("pip install --force-reinstall --no-deps gymnasium=="), std::string::npos) << missing;

  for (const char* text : {"", "<mujoco", "<mujoco><worldbody><geom size=\"x\"/></worldbody></mujoco>"}) {
    const std::string corrupt = refusal("Hopper-v5", model(text));
    EXPECT_NE(corrupt.find("model.xml is refused by MuJoCo 3.3.0: "), std::string::npos) << corrupt;
    EXPECT_EQ(corrupt.find('\n'), std::string::npos) << corrupt;
  }
  EXPECT_NE(refusal("Hopper-v5", model("<mujoco/>")).find("nu = 0, wanted at least 1"), std::string::npos);
  EXPECT_NE(refusal("Humanoid-v5", "inverted_pendulum.xml").find("nq = 2, wanted at least 3"), std::string::npos);
  EXPECT_NE(refusal("Reacher-v5", "ant.xml").find("has no body \"fingertip\""), std::string::npos);
}

}  // namespace
}  // namespace gipo
