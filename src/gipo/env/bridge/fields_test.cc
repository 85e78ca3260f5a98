#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "gipo/core/error.h"
#include "gipo/env/bridge/bridge.h"
#include "gipo/io/temporary_folder.h"

namespace gipo {
namespace {

// Observations of every type of field, whose values follow from the number of steps; actions of choices and numbers,
// which the next observation holds. `wrong` says what comes at step 2 in place of them.
constexpr const char* kModule = R"py(
import numpy as np

class Box:
    def __init__(self, dtype, *shape):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.low, self.high = np.full(shape, -2.0), np.full(shape, 2.0)

class Discrete:
    def __init__(self, n, start=0):
        self.n, self.start, self.shape, self.dtype = n, start, (), np.dtype("int64")

class MultiDiscrete:
    def __init__(self, nvec):
        self.nvec, self.shape, self.dtype = np.array(nvec), np.shape(nvec), np.dtype("int64")

class MultiBinary:
    def __init__(self, *shape):
        self.shape, self.dtype = shape, np.dtype("int8")

class Dict:
    def __init__(self, **spaces):
        self.spaces, self.shape = spaces, None

class Tuple:
    def __init__(self, *spaces):
        self.spaces, self.shape = spaces, None

class Env:
    def __init__(self, wrong=""):
        self.wrong, self.got = wrong, np.zeros(5)
        self.observation_space = Dict(
            image=Box("uint8", 2, 3), short=Box("int16", 2), integer=Box("int32", 1), long=Box("int64", 1),
            unsigned=Box("uint32", 1), half=Box("float16", 1), double=Box("float64", 2, 1), place=Discrete(4, start=-1),
            pair=Tuple(MultiDiscrete([2, 3]), MultiBinary(2, 2)), flag=Box("bool", 2), got=Box("float32", 5))
        self.action_space = Dict(gear=Discrete(5, start=1), wheels=Box("float32", 3), keys=MultiBinary(1))
    def seen(self):
        t = self.steps
        seen = dict(
            image=np.arange(6, dtype=np.uint8).reshape(2, 3) + np.uint8(250 * (t % 2)),
            short=np.array([-t, 300], np.int16), integer=np.array([-2**31 + t], np.int32),
            long=np.array([2**62 + t]), unsigned=np.array([2**32 - 1 - t], np.uint32), half=np.array([0.5 * t], np.float16),
            double=np.array([[0.1], [t]]), place=t % 4 - 1, pair=(np.array([t % 2, t % 3]), np.array([[1, 0], [0, t % 2]])),
            flag=np.array([True, t % 2 == 0]), got=self.got)
        if t == 2 and self.wrong:
            seen.update(eval(self.wrong))
        return seen
    def reset(self, seed=None):
        self.steps = 0
        return self.seen(), {}
    def step(self, action):
        self.steps += 1
        assert list(action) == ["gear", "wheels", "keys"] and action["wheels"].dtype == np.float32
        self.got = np.array([action["gear"], *action["wheels"], *action["keys"]])
        return self.seen(), 0.0, False, False, {}

class Masked:
    def __init__(self, info="{}", inside="np.array([1, 0, 1, 1, 2], np.int8)"):
        self.info, self.inside = info, inside
        self.observation_space = Dict(state=Box("float32", 2), action_mask=Box("int8", 5), hidden=Box("uint8", 1))
        self.action_space = Tuple(Discrete(2), Box("float32", 1), Discrete(3))
        if info != "{}":
            del self.observation_space.spaces["action_mask"]
    def seen(self):
        seen = dict(state=np.ones(2, np.float32), hidden=np.array([7], np.uint8))
        if self.info == "{}":
            seen["action_mask"] = eval(self.inside, {"np": np, "t": self.steps})
        return seen, eval(self.info, {"np": np, "t": self.steps})
    def reset(self, seed=None):
        self.steps = 0
        return self.seen()
    def step(self, action):
        self.steps += 1
        observation, info = self.seen()
        return observation, 0.0, False, False, info
)py";

class BridgeFieldsTest : public testing::Test {
 protected:
  BridgeFieldsTest() {
    std::ofstream(folder_.path() + "/typed.py") << kModule;
    options_.id = "python:" + folder_.path() + "/typed.py:Env";
  }

  // What is said of the second of two environments, the eleventh of the run, at the start or within two steps.
  std::string message(const OptionValues& given) {
    try {
      const auto envs = make_envs(ask_spec(options_, given), options_, given, {2, 1, true, nullptr, 10});
      for (const auto& env : envs) env->reset(1);
      for (int t = 0; t < 2; ++t) envs[1]->step(std::vector<double>(envs[1]->spec().action.dims()));
    } catch (const std::exception& e) {
      return e.what();
    }
    return "nothing thrown";
  }

  void expect_message(const OptionValues& given, const std::string& words) {
    const std::string found = message(given);
    EXPECT_NE(found.find(words), std::string::npos) << "wanted: " << words << "\nfound: " << found;
  }

  void use(const std::string& name) { options_.id = "python:" + folder_.path() + "/typed.py:" + name; }

  TemporaryFolder folder_;
  EnvOptions options_;
};

// A field that was copied out, value by value.
template <class T>
std::vector<T> values(const std::vector<std::byte>& bytes) {
  std::vector<T> all(bytes.size() / sizeof(T));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

std::vector<std::vector<std::byte>> observed(const Env& env) {
  std::vector<std::vector<std::byte>> all;
  std::vector<std::byte*> row;
  for (const Field& f : env.spec().fields) row.push_back(all.emplace_back(f.bytes()).data());
  env.observe(ObservationRow(row));
  return all;
}

TEST_F(BridgeFieldsTest, SpacesBecomeFields) {
  const EnvSpec spec = ask_spec(options_, {});
  EXPECT_EQ(spec.fields, (Fields{{"image", DType::kUint8, {2, 3}},
                                 {"short", DType::kInt32, {2}},
                                 {"integer", DType::kInt32, {1}},
                                 {"long", DType::kInt64, {1}},
                                 {"unsigned", DType::kInt64, {1}},
                                 {"half", DType::kFloat32, {1}},
                                 {"double", DType::kFloat32, {2, 1}},
                                 {"place", DType::kInt32, {}, Role::kPolicy, {4}},
                                 {"pair.0", DType::kInt32, {2}, Role::kPolicy, {2, 3}},
                                 {"pair.1", DType::kUint8, {2, 2}, Role::kPolicy, {}, true},
                                 {"flag", DType::kUint8, {2}, Role::kPolicy, {}, true},
                                 {"got", DType::kFloat32, {5}}}));
  EXPECT_EQ(spec.observation_size, 6u + 2 + 1 + 1 + 1 + 1 + 2 + 4 + 5 + 4 + 2 + 5);
  EXPECT_EQ(spec.action.kind, ActionSpace::Kind::kComposed);
  EXPECT_EQ(spec.action.choices, (std::vector<std::int64_t>{5, 0, 0, 0, 2}));
  EXPECT_EQ(spec.action.low, (std::vector<double>{0, -2, -2, -2, 0}));
  EXPECT_EQ(spec.action.high, (std::vector<double>{0, 2, 2, 2, 0}));
}

TEST_F(BridgeFieldsTest, EveryTypeArrivesExactlyAndSoDoComposedActions) {
  const auto envs = make_envs(ask_spec(options_, {}), options_, {}, {3, 2});
  for (const auto& env : envs) env->reset(1);
  const std::vector<double> action = {4, 0.25, -1.5, 0.1F, 1};
  for (std::int64_t t = 0; t < 4; ++t) {
    for (const auto& env : envs) {
      if (t > 0) env->step(action);
      const auto seen = observed(*env);
      const auto high = static_cast<std::uint8_t>(250 * (t % 2));
      std::vector<std::uint8_t> image;
      for (std::uint8_t p = 0; p < 6; ++p) image.push_back(static_cast<std::uint8_t>(high + p));
      const auto small = static_cast<std::int32_t>(t);
      EXPECT_EQ(values<std::uint8_t>(seen[0]), image);
      EXPECT_EQ(values<std::int32_t>(seen[1]), (std::vector<std::int32_t>{-small, 300}));
      EXPECT_EQ(values<std::int32_t>(seen[2])[0], std::numeric_limits<std::int32_t>::min() + small);
      EXPECT_EQ(values<std::int64_t>(seen[3])[0], (std::int64_t{1} << 62) + t);
      EXPECT_EQ(values<std::int64_t>(seen[4])[0], (std::int64_t{1} << 32) - 1 - t);
      EXPECT_EQ(values<float>(seen[5])[0], 0.5F * static_cast<float>(t));
      EXPECT_EQ(values<float>(seen[6]), (std::vector<float>{0.1F, static_cast<float>(t)}));
      EXPECT_EQ(values<std::int32_t>(seen[7])[0], small % 4);
      EXPECT_EQ(values<std::int32_t>(seen[8]), (std::vector<std::int32_t>{small % 2, small % 3}));
      EXPECT_EQ(values<std::uint8_t>(seen[9]), (std::vector<std::uint8_t>{1, 0, 0, static_cast<std::uint8_t>(t % 2)}));
      EXPECT_EQ(values<std::uint8_t>(seen[10]), (std::vector<std::uint8_t>{1, t % 2 == 0}));
      const std::vector<float> got = {5, 0.25F, -1.5F, 0.1F, 1};  // gears count from 1
      EXPECT_EQ(values<float>(seen[11]), t == 0 ? std::vector<float>(5) : got);
    }
  }
}

TEST_F(BridgeFieldsTest, WhatDoesNotFitItsFieldIsNamed) {
  const auto expect = [&](const char* wrong, const char* words) { expect_message({{"wrong", wrong}}, words); };
  expect(
      "{'image': np.zeros((2, 3))}",
      "the observation['image'] of step 2 of environment 11 is float64 of shape (2, 3): wanted uint8 of shape (2, 3)");
  expect("{'image': np.zeros((3, 2), np.uint8)}",
         "the observation['image'] of step 2 of environment 11 is uint8 of shape (3, 2): wanted uint8 of shape (2, 3)");
  expect("{'image': np.full((2, 3), 256)}", "is int64 from 256 to 256: wanted uint8, 0 to 255");
  expect("{'long': np.array([2**63], np.uint64)}", "wanted int64");
  expect("{'double': np.array([['1.5'], ['2']])}", "wanted float32 of shape (2, 1)");
  expect("{'place': 3}",
         "the observation['place'] of step 2 of environment 11 is 3: wanted choices from -1 on, 4 of them");
  expect("{'pair': (np.array([0, 3]), np.zeros((2, 2), int))}", "the observation['pair'][0] of step 2");
  expect("{'pair': 5}", "the observation['pair'] of step 2 of environment 11 is 5: wanted a tuple with [0, 1]");
  expect("{'more': 5}", "wanted a dict with ['image', 'short'");
}

TEST_F(BridgeFieldsTest, TheObservationsOwnMaskIsTakenUnasked) {
  use("Masked");
  const EnvSpec spec = ask_spec(options_, {});
  EXPECT_EQ(spec.fields, (Fields{{"state", DType::kFloat32, {2}},
                                 {"action_mask", DType::kUint8, {5}, Role::kMask},
                                 {"hidden", DType::kUint8, {1}}}));
  EXPECT_EQ(spec.observation_size, 3u);
  EXPECT_NE(spec.spaces.find(R"("roles":{"action_mask":"mask"})"), std::string::npos) << spec.spaces;
  const auto envs = make_envs(spec, options_, {}, {1, 1});
  envs[0]->reset(1);
  EXPECT_EQ(values<std::uint8_t>(observed(*envs[0])[1]), (std::vector<std::uint8_t>{1, 0, 1, 1, 1}));
  options_.mask = "none";
  EXPECT_EQ(ask_spec(options_, {}).fields[1], (Field{"action_mask", DType::kInt32, {5}}));
}

TEST_F(BridgeFieldsTest, MasksOfInfoAreTakenWhenAskedFor) {
  use("Masked");
  const char* parts = "{'action_mask': (np.array([0, 1]), None, np.array([1, t % 2, 0]))}";
  const OptionValues given = {{"info", parts}};
  EXPECT_EQ(ask_spec(options_, given).fields.size(), 2u) << "not unasked";
  options_.mask = "info";
  const EnvSpec spec = ask_spec(options_, given);
  EXPECT_EQ(spec.fields[2], (Field{"action_mask", DType::kUint8, {5}, Role::kMask}));
  const auto envs = make_envs(spec, options_, given, {1, 1});
  envs[0]->reset(1);
  EXPECT_EQ(values<std::uint8_t>(observed(*envs[0])[2]), (std::vector<std::uint8_t>{0, 1, 1, 0, 0}));
  envs[0]->step(std::vector<double>(3));
  EXPECT_EQ(values<std::uint8_t>(observed(*envs[0])[2]), (std::vector<std::uint8_t>{0, 1, 1, 1, 0}));
}

TEST_F(BridgeFieldsTest, AWrongMaskIsNamed) {
  use("Masked");
  expect_message(
      {{"inside", "np.ones(5 - t // 2, np.int8)"}},
      "the observation['action_mask'] of step 2 of environment 11 is int8 of shape (4,): wanted uint8 of shape (5,)");
  expect_message({{"inside", "np.ones(5)"}}, "is float64 of shape (5,): wanted uint8 of shape (5,)");
  options_.mask = "info";
  expect_message({{"info", "{'action_mask': np.ones(5 - t // 2, bool)}"}},
                 "info['action_mask'] of step 2 of environment 11 is bool of shape (4,): wanted uint8 of shape (5,)");
  expect_message({{"info", "{'action_mask': np.ones(5, bool)} if t < 2 else {'other': 3}"}},
                 "info['action_mask'] of step 2 of environment 11 is missing: wanted a mask of shape (5,)");
  expect_message({{"info", "{'other': 3}"}}, "info['action_mask'] of reset of environment 0 is missing");
  options_.mask = "state";
  expect_message({}, "is float32 of shape (2,): wanted uint8 of shape (5,), one value for each choice of the action");
  options_.mask = "masc";
  expect_message({}, "env.mask = masc: the observation has no such field; wanted auto, none, info or one of state, ");
}

TEST_F(BridgeFieldsTest, FieldsAreGivenToTheCriticAlone) {
  use("Masked");
  options_.critic_fields = "hidden";
  const EnvSpec spec = ask_spec(options_, {});
  EXPECT_EQ(spec.fields[2].role, Role::kCritic);
  EXPECT_EQ(spec.observation_size, 3u);
  EXPECT_NE(spec.spaces.find(R"("roles":{"action_mask":"mask","hidden":"critic"})"), std::string::npos) << spec.spaces;
  make_envs(spec, options_, {}, {1, 1})[0]->reset(1);
  options_.critic_fields = "hidden, stat";
  expect_message({}, "env.critic_fields = hidden, stat: " + options_.id +
                         " has no field stat; its fields: state, action_mask, hidden");
  options_.critic_fields = "action_mask";
  expect_message({}, "has as its mask the field action_mask");
  options_.critic_fields = "hidden,state";
  expect_message({}, "no field of the observation is left for the policy to see");
}

}  // namespace
}  // namespace gipo
