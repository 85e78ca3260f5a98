"""Environments for test_bridge.py, as a user would write them: some good, some broken in one way each."""

import fcntl
import json
import os
import signal
import sys
import time
from collections import OrderedDict

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


class RecordsStarts(Base):
    """Writes each of its starts to a file of its own."""

    def __init__(self, folder, **options):
        super().__init__(**options)
        self.file = os.path.join(folder, f"{os.getpid()}-{id(self)}")

    def reset(self, **named):
        seen = super().reset(**named)
        with open(self.file, "a") as file:
            print(self.start, file=file)
        return seen


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


class RecordsOptions(Base):
    """Leaves a file with what reached its constructor, as Python writes it; then changes its own."""

    def __init__(self, record, config=None, **options):
        super().__init__()
        given = options if config is None else options | {"config": config}
        with open(record, "a") as file:
            file.write(json.dumps({name: repr(value) for name, value in given.items()}) + "\n")
        if config is not None:
            config["used"] = True


box, choice = spaces.Box, spaces.Discrete
OBSERVATIONS = {
    "row": box(-1, 1, (3,)),
    "image": box(0, 255, (2, 3, 1), np.uint8),
    "number": box(-5, 5, (), np.float64),
    "choice": choice(4, start=5),
    "choices": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [-1, 2]]),
    "bits": spaces.MultiBinary(3),
    "square of bits": spaces.MultiBinary([2, 2]),
    "dict": spaces.Dict(OrderedDict(  # a plain dict would be sorted
        z=box(0, 255, (2, 2), np.uint8), a=choice(3, start=-1),
        inner=spaces.Dict({"pair": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)))}),
    )),
    "tuple": spaces.Tuple((choice(2), box(-1, 1, (2, 2)), spaces.Tuple((choice(3),)))),
    "bytes": box(0, 255, (3,), np.uint8),
    "integers": box(-2**31, 2**31 - 1, (2, 2), np.int32),
    "large": box(-2**63, 2**63 - 1, (2,), np.int64),
    "camera": spaces.Dict({"image": box(0, 255, (4, 4, 3), np.uint8), "speed": box(-1, 1, (2,)), "gear": choice(3)}),
    "nested": spaces.Tuple((spaces.Dict({"b": spaces.Tuple((box(0, 9, (1,), np.uint16), choice(2, start=3)))}), box(0, 1, (2,), bool))),
}  # fmt: skip
ACTIONS = {
    "row": box(-2, 3, (2,)),
    "square of doubles": box(np.array([[-0.3, 0], [-1, -7]]), np.array([[0.1, 0.7], [np.inf, 7]]), dtype=np.float64),
    "doubles": box(-0.3, 0.1, (2,), np.float64),  # -0.3 + (0.1 + 0.3) is more than 0.1
    "halves": box(-0.1, 0.3, (2, 1), np.float16),
    "number": box(-1, 1, ()),
    "bytes": box(0, 255, (2,), np.uint8),
    "integers": box(-3, 9, (2, 1), np.int32),
    "any integers": box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
    "choice": choice(3, start=5),
    "choices": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [-1, 2]]),
    "bits": spaces.MultiBinary([2, 2]),
    "dict": spaces.Dict(OrderedDict(
        z=choice(3, start=1), a=spaces.MultiBinary(2),
        inner=spaces.Tuple((spaces.MultiDiscrete([2, 4]), spaces.Dict({"b": choice(2, start=-1)}))),
    )),
    "tuple": spaces.Tuple((box(-2, 3, (2, 1)), spaces.Dict({"n": box(0, 9, (1,), np.int64)}))),
}  # fmt: skip


def as_row(space, value):
    """What networks read of an observation: as gymnasium.spaces.flatten has it, but images from 0 to 1."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return np.concatenate([as_row(part, value[key]) for key, part in parts])
    row = np.asarray(spaces.flatten(space, value), dtype=np.float32)
    image = isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) >= 2
    return row / np.float32(255) if image else row


class WithRoles(Base):
    """Parts for the policy and for the critic alone, and a mask."""

    observation_space = spaces.Dict({
        "action_mask": spaces.MultiBinary(2), "camera": box(0, 255, (2, 2), np.uint8), "state": box(-1, 1, (3,)),
    })  # fmt: skip

    def seen(self):
        mask = np.array([1, self.steps % 2], np.int8)
        return {"action_mask": mask, "camera": np.full((2, 2), 51, np.uint8), "state": super().seen()}


class Spaced(Base):
    """Any spaces; its observations are random."""

    def __init__(self, observation, action, **options):
        super().__init__(**options)
        self.observation_space, self.action_space = OBSERVATIONS[observation], ACTIONS[action]

    def seen(self):
        return self.observation_space.sample()

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


class FloatImage(Base):
    observation_space = spaces.Box(0, 255, (2, 2), np.uint8)

    def seen(self):
        return np.zeros((2, 2), float if self.steps else np.uint8)


class ShortMask(Base):
    """A mask in info, which one step lacks a value of."""

    def step(self, action):
        *rest, info = super().step(action)
        return *rest, {"action_mask": np.ones(1 if self.steps == 7 else 2, np.int8)}

    def reset(self, **named):
        return super().reset(**named)[0], {"action_mask": np.ones(2, np.int8)}


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


class Hangs(ReportsItself):
    """Never comes back from the step or the reset of this number; says so in a file beside the one of its process."""

    def __init__(self, folder, step=0, reset=0, **options):
        super().__init__(folder, **options)
        self.folder, self.hanging, self.played = folder, {"step": step, "reset": reset}, {"step": 0, "reset": 0}

    def count(self, what):
        self.played[what] += 1
        if self.played[what] == self.hanging[what]:
            open(os.path.join(self.folder, "hangs"), "w").close()
            time.sleep(1000)

    def reset(self, **named):
        self.count("reset")
        return super().reset(**named)

    def step(self, action):
        self.count("step")
        return super().step(action)


class NeverEnds(Base):
    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


class NanSometimes(Base):
    def step(self, action):
        observation, *rest = super().step(action)
        return observation * (np.nan if self.np_random.random() < 0.01 else 1), *rest


class NanInEvaluation(Base):
    """Its observations are NaN from the third step on in environments that a seed was given twice, as evaluations do."""

    seeds = 0

    def reset(self, *, seed=None, options=None):
        self.seeds += seed is not None
        return super().reset(seed=seed)

    def seen(self):
        return super().seen() * (np.nan if self.seeds > 1 and self.steps > 2 else 1)


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
