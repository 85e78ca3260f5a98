"""Environments for test_bridge.py, as a user would write them: some good, some broken in one way each."""

import fcntl
import os
import signal
import sys
import time

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv


class Base(gymnasium.Env):
    """Counts its steps; ends after `length` of them."""

    observation_space = spaces.Box(-10, 10, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length=20):
        self.length, self.steps = length, 0

    def seen(self):
        return np.array([self.steps, self.start, 0], np.float32) / 10

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.start = 0, self.np_random.uniform()
        return self.seen(), {}

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.steps += 1
        return self.seen(), float(self.steps % 2 == action), self.steps >= self.length, False, {}


class ReportsItself(Base):
    """Leaves a file with the number of its process as its name, locked while it lives."""

    files = {}

    def __init__(self, folder, **options):
        super().__init__(**options)
        if not self.files:
            self.files[folder] = open(os.path.join(folder, str(os.getpid())), "w")
            fcntl.flock(self.files[folder], fcntl.LOCK_EX)


class Succeeds(Base):
    """Success in the middle of every episode; at the last step in every other one."""

    episodes = 0

    def reset(self, **named):
        self.episodes += 1
        return super().reset(**named)

    def step(self, action):
        *rest, info = super().step(action)
        at_last = self.steps >= self.length and self.episodes % 2 == 0
        return *rest, info | {"success": float(self.steps == self.length // 2 or at_last)}


class IsSuccessful(Succeeds):
    """The same under the other name that packages use."""

    def step(self, action):
        *rest, info = super().step(action)
        return *rest, {"is_success": info["success"]}


class Truncates(Base):
    def step(self, action):
        observation, reward, ends, _, info = super().step(action)
        return observation, reward, False, ends, info


class Arrays(Base):
    """Every kind of space at once; remembers nothing but checks its actions."""

    observation_space = spaces.Dict({
        "image": spaces.Box(0, 255, (2, 2), np.uint8),
        "place": spaces.Discrete(3, start=-1),
        "pair": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2))),
    })
    action_space = spaces.Dict({
        "gear": spaces.Discrete(3, start=1), "keys": spaces.MultiBinary(2), "wheels": spaces.MultiDiscrete([2, 4]),
    })

    def seen(self):
        self.observation_space.seed(self.steps)
        return self.observation_space.sample()

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.steps += 1
        return self.seen(), 1.0, self.steps >= self.length, False, {}


class Continuous(Base):
    """Integers and a shape, as few environments have."""

    action_space = spaces.Tuple((spaces.Box(-2, 3, (2, 1), np.float32), spaces.Box(0, 9, (1,), np.int64)))

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.steps += 1
        return self.seen(), 1.0, self.steps >= self.length, False, {}


# Broken ones.


class NanAtReset(Base):
    def reset(self, **named):
        return np.array([0, np.nan, 0], np.float32), {}


class InfinityAtStep(Base):
    def seen(self):
        return np.array([0, np.inf if self.steps else 0, 0], np.float32)


class NanReward(Base):
    def step(self, action):
        return self.seen(), float("nan"), False, False, {}


class NanLater(Base):
    def seen(self):
        return np.array([0, np.nan if self.steps == 7 else 0, 0], np.float32)


class WrongShapeAtReset(Base):
    def reset(self, **named):
        return np.zeros(4, np.float32), {}


class WrongShapeLater(Base):
    def seen(self):
        return np.zeros(4 if self.steps == 7 else 3, np.float32)


class OldReset(Base):
    def reset(self, **named):
        return np.zeros(3, np.float32)


class FourValues(Base):
    def step(self, action):
        return self.seen(), 1.0, False, {}


class ThreeValues(Base):
    def step(self, action):
        return self.seen(), 1.0, False


class OldSeed(Base):
    def reset(self):
        return np.zeros(3, np.float32)


class PettingZooParallel:
    """As pettingzoo.ParallelEnv is: spaces for each agent, dictionaries by agent."""

    possible_agents = agents = ["a", "b"]

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (3,))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return {agent: np.zeros(3) for agent in self.agents}, {}

    def step(self, actions):
        raise NotImplementedError


class PettingZooAec(PettingZooParallel):
    def agent_iter(self):
        return iter(self.agents)


class TextSpace(Base):
    observation_space = spaces.Text(5)


class TextInside(Base):
    observation_space = spaces.Dict({
        "inner": spaces.Box(-1, 1, (3,)), "outer": spaces.Tuple([spaces.Discrete(2), spaces.Text(5)])})


class SequenceInside(Base):
    action_space = spaces.Dict({"arm": spaces.Discrete(2), "tool": spaces.Sequence(spaces.Discrete(2))})


class SequenceAction(Base):
    action_space = spaces.Sequence(spaces.Discrete(2))


class MixedActions(Base):
    action_space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1, 1, (2,))})


class WrongChoice(Base):
    observation_space = spaces.Discrete(4)

    def seen(self):
        return 4


class RaisesAtStep(Base):
    def step(self, action):
        raise RuntimeError("the wheel came off")


class RaisesLater(Base):
    def step(self, action):
        if self.steps == 7:
            raise RuntimeError("the wheel came off")
        return super().step(action)


class DiesAtOnce(Base):
    def step(self, action):
        print("these are my last words", file=sys.stderr, flush=True)
        os._exit(3)


class DiesLater(Base):
    def step(self, action):
        if self.steps == 7:
            print("these are my last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().step(action)


class Slow(ReportsItself):
    def step(self, action):
        time.sleep(0.001)
        return super().step(action)


def raises():
    raise ValueError("no robot is connected")


def returns_nothing():
    return None


def exits():
    sys.exit("not today")


not_a_factory = 3


# CartPole from the starts that the program's own CartPole has: the random stream of core/random.h in Python.


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def derive_seed(root, purpose, index=0):
    h = mix(root)
    for byte in purpose.encode():
        h = mix(h ^ byte)
    return mix(h ^ mix(index))


def philox(counter, key):
    """Philox 4x32 with ten rounds."""
    c, k = [counter % 2**32, counter >> 32, 0, 0], [key % 2**32, key >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [b >> 32 ^ c[1] ^ k[0], b % 2**32, a >> 32 ^ c[3] ^ k[1], a % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


class SameStarts(CartPoleEnv):
    def __init__(self, root_seed):
        super().__init__()
        self.root_seed, self.key, self.drawn = root_seed, None, 0

    def uniform(self):
        """53 bits of two words."""
        words = philox(self.drawn // 2, self.key)
        low, high = words[2 * (self.drawn % 2) : 2 * (self.drawn % 2) + 2]
        self.drawn += 1
        return ((low | high << 32) >> 11) * 2.0**-53

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        if seed is not None:
            # What the worker gives follows from what the native environment of the same number would be given.
            seeds = [derive_seed(self.root_seed, "env", i) for i in range(64)]
            known = [s for s in seeds if derive_seed(s, "worker") >> 33 == seed]
            self.key, self.drawn = (derive_seed(known[0], "env") if known else None), 0
        if self.key is not None:
            self.state = np.array([-0.05 + 0.1 * self.uniform() for _ in range(4)])
            observation = np.array(self.state, np.float32)
        return observation, info


def same_starts(root_seed):
    return gymnasium.wrappers.TimeLimit(SameStarts(root_seed), 500)
