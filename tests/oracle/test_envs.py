"""Every Classic Control environment of ours against Gymnasium's of the same id.

Gymnasium is run first and its states are recorded; env_probe then takes the same steps. A task added to the registry is
tested as soon as env_probe lists it: only the two tables below know any by name.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

BUILD = Path(os.environ.get("GIPO_BUILD_DIR", "build/release"))
PROBE = BUILD / "tests" / "env_probe"
SEEDS = range(20)
STEPS = 500
FREE_STEPS = 50

# Tasks that no state ends.
ENDLESS = {"Pendulum-v1"}
# NumPy squares the float32 torque with libm's powf, which misses the nearest float32 for about one torque in 2,000;
# ours is the nearest. One last digit of a term below 0.004 is below 5e-10.
REWARD_TOLERANCE = {"Pendulum-v1": 5e-10}

if not PROBE.exists():
    pytest.fail(f"{PROBE} is not built (GIPO_BUILD_DIR names the build folder)", pytrace=False)

IDS = [name for name in subprocess.run([PROBE, "list"], capture_output=True, text=True, check=True).stdout.split()
       if name in gym.registry and "classic_control" in str(gym.spec(name).entry_point)]


@dataclass
class Step:
    first: bool  # of its episode
    before: np.ndarray  # physics, float64
    action: list
    after: np.ndarray
    observation: np.ndarray  # float32
    reward: float
    terminated: bool
    truncated: bool


@dataclass
class Answer:
    observation: np.ndarray
    physics: np.ndarray
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


def words(values):
    return " ".join(repr(float(v)) for v in values)


def ask(lines):
    """The answers of env_probe to a whole batch of lines."""
    run = subprocess.run([PROBE], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    replies = run.stdout.splitlines()
    assert len(replies) == len(lines)
    for line, reply in zip(lines, replies):
        assert not reply.startswith("error"), f"{line}: {reply}"
    return replies


def parse(reply):
    parts = [np.array(part.split(), dtype=np.float64) for part in reply.split("|")]
    if len(parts) == 2:
        return Answer(*parts)
    observation, physics, (reward, terminated, truncated) = parts
    return Answer(observation, physics, reward, bool(terminated), bool(truncated))


def make(env_id, limit=None):
    # The passive checker refuses actions outside the bounds, which the tasks themselves accept and clip.
    return gym.make(env_id, disable_env_checker=True, max_episode_steps=limit)


def physics(env):
    return np.array(env.unwrapped.state, dtype=np.float64)


def state_type(env_id):
    """The precision a task keeps between steps, which may not be the one its reset draws in."""
    env = make(env_id)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    return np.asarray(env.unwrapped.state).dtype


def choose(space, state, seed, rng):
    """Even seeds act at random. Odd ones mostly push along the last velocity, which drives the tasks to their ends."""
    push = seed % 2 == 1 and rng.random() < 0.9
    if isinstance(space, gym.spaces.Discrete):
        if push:
            return int(space.start + (space.n - 1 if state[-1] > 0 else 0))
        return int(space.start + rng.integers(space.n))
    if push:
        return space.high if state[-1] > 0 else space.low
    return rng.uniform(1.5 * space.low, 1.5 * space.high).astype(space.dtype)


def reset(env, dtype, **how):
    env.reset(**how)
    if dtype == np.float32:
        # Only the very first state of an episode is then float64: round it as the task itself does one step later.
        env.unwrapped.state = np.asarray(env.unwrapped.state, dtype=np.float32)


def take(env, action, first):
    before = physics(env)
    observation, reward, terminated, truncated, _ = env.step(action)
    assert observation.dtype == np.float32
    return Step(first, before, np.atleast_1d(action).tolist(), physics(env), observation.copy(), float(reward),
                bool(terminated), bool(truncated))


def record(env_id, seed, steps=STEPS, limit=None):
    env, dtype, rng = make(env_id, limit), state_type(env_id), np.random.default_rng(seed)
    reset(env, dtype, seed=seed)
    rows, first = [], True
    for _ in range(steps):
        rows.append(take(env, choose(env.action_space, physics(env), seed, rng), first))
        first = rows[-1].terminated or rows[-1].truncated
        if first:
            reset(env, dtype)
    return rows


def replay(env_id, rows, limit=None, copy_every_step=True):
    """Our answers to the recorded actions, from each recorded state or only from the first of each episode."""
    lines, at = ["create " + env_id + ("" if limit is None else f" {limit}")], []
    for row in rows:
        if row.first:
            lines.append("reset 0")
        if row.first or copy_every_step:
            lines.append("load " + words(row.before))
        at.append(len(lines))
        lines.append("step " + words(row.action))
    replies = ask(lines)
    return [parse(replies[i]) for i in at]


def worst(ours, theirs):
    return max(float(np.max(np.abs(o.physics - t.after))) for o, t in zip(ours, theirs))


def assert_same_ends(ours, theirs):
    for n, (o, t) in enumerate(zip(ours, theirs)):
        assert (o.terminated, o.truncated) == (t.terminated, t.truncated), f"step {n} from {t.before}"


def assert_same_steps(env_id, ours, theirs):
    assert worst(ours, theirs) <= (0 if state_type(env_id) == np.float32 else 1e-12)
    assert_same_ends(ours, theirs)
    for o, t in zip(ours, theirs):
        assert np.array_equal(o.observation, t.observation.astype(np.float64)), f"{t.before} {t.action}"
        assert o.reward == pytest.approx(t.reward, rel=1e-12, abs=REWARD_TOLERANCE.get(env_id, 0))


@pytest.mark.parametrize("env_id", IDS)
def test_one_step_from_every_state(env_id, record_property):
    # Each seed's first step begins an episode, so that the recordings can be taken as one.
    everything = [row for seed in SEEDS for row in record(env_id, seed)]
    ours = replay(env_id, everything)

    error = worst(ours, everything)
    record_property("worst_state_error", error)
    print(f"{env_id}: worst state error over one step {error:.3g}")
    assert_same_steps(env_id, ours, everything)

    # The recorded steps reach what they are meant to test.
    space = make(env_id).action_space
    assert any(t.terminated for t in everything) == (env_id not in ENDLESS)
    if isinstance(space, gym.spaces.Box):
        outside = [np.any(np.abs(t.action) > space.high) for t in everything]
        assert any(outside) and not all(outside)


@pytest.mark.parametrize("env_id", IDS)
def test_one_step_from_far_states(env_id):
    """States an episode seldom reaches, where every clamp and wrap acts."""
    env, dtype = make(env_id), state_type(env_id)
    rng, rows = np.random.default_rng(0), []
    for row in record(env_id, 1):
        env.reset()
        env.unwrapped.state = np.asarray(row.before * rng.uniform(-3, 3, row.before.shape), dtype=dtype)
        rows.append(take(env, choose(env.action_space, row.before, 0, rng), first=True))
    assert_same_steps(env_id, replay(env_id, rows), rows)


@pytest.mark.parametrize("env_id", IDS)
def test_free_running(env_id, record_property):
    error = 0.0
    for seed in SEEDS:
        rows = record(env_id, seed, steps=FREE_STEPS)
        ours = replay(env_id, rows, copy_every_step=False)
        assert_same_ends(ours, rows)
        error = max(error, worst(ours, rows))
        for o, t in zip(ours, rows):
            assert o.observation == pytest.approx(t.observation.astype(np.float64), rel=3e-7, abs=3e-7)
            assert o.reward == pytest.approx(t.reward, rel=1e-8, abs=1e-8)
    record_property("worst_state_error", error)
    print(f"{env_id}: worst state error over {FREE_STEPS} steps {error:.3g}")
    assert error <= 1e-8


@pytest.mark.parametrize("env_id", IDS)
def test_time_limit(env_id):
    assert ask([f"create {env_id}"])[0].split()[1] == str(gym.spec(env_id).max_episode_steps)
    rows = record(env_id, 1)
    # A limit that falls on the step which ends the task: both are then reported.
    lengths = [n + 1 for n, row in enumerate(rows) if row.terminated][:1]
    for limit in {13, *lengths}:
        limited = record(env_id, 1, steps=2 * limit, limit=limit)
        assert any(row.truncated for row in limited)
        assert_same_ends(replay(env_id, limited, limit=limit), limited)
        if limit in lengths:
            assert limited[limit - 1].terminated and limited[limit - 1].truncated


@pytest.mark.parametrize("env_id", IDS)
def test_start(env_id):
    """Starts look alike: the same quantiles of each state number, and an observation that shows the state."""
    env, count = make(env_id), 2000
    theirs = []
    for seed in range(count):
        observation, _ = env.reset(seed=seed)
        theirs.append(physics(env))
    answers = [parse(r) for r in ask([f"create {env_id}", *(f"reset {n}" for n in range(count))])[1:]]
    ours, theirs = np.array([a.physics for a in answers]), np.array(theirs)
    levels = [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1]
    width = np.ptp(theirs, axis=0)
    gap = np.abs(np.quantile(ours, levels, axis=0) - np.quantile(theirs, levels, axis=0))
    assert np.all(gap <= 0.05 * width)

    # NumPy takes the cosine of a float32 start in float32: a last digit may differ.
    shown = ask([f"create {env_id}", "reset 0", "load " + words(theirs[-1])])[-1]
    assert parse(shown).observation == pytest.approx(observation.astype(np.float64), rel=3e-7, abs=1e-7)
