"""Plays whole episodes with a policy, in this process, on any environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from gipo import _core, worker
from gipo.envs import made_env
from gipo.options import from_toml
from gipo.policy import Policy
from gipo.training import Run

MOST_STEPS = 10_000  # of an episode where nothing limits it, as while training

Act = Callable[[Any, Mapping[str, Any]], Any]  # of an observation and its info


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of the episodes that were played, in order."""

    returns: np.ndarray = field(repr=False)  # float64 [episodes]
    lengths: np.ndarray = field(repr=False)  # int64 [episodes]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(self.returns.std())

    @property
    def episodes(self) -> int:
        """How many were played."""
        return len(self.returns)

    def __repr__(self) -> str:
        return f"Evaluation(mean={self.mean:.6g}, std={self.std:.6g}, episodes={self.episodes})"


def evaluate(
    policy: Policy | Run | str | PathLike[str] | Callable[[Any], Any],
    env: Any = None,
    episodes: int = 100,
    *,
    seed: int = 1,
    deterministic: bool = True,
    time_limit: int | None = None,
    **options: Any,
) -> Evaluation:
    """Plays episodes and returns their returns and lengths.

    policy: a Policy, a Run, the path of one, any function from an observation to an action, or an object with
        predict(obs, deterministic=...), as models of Stable-Baselines3 have it.
    env: an id (of gipo, or gymnasium:ID, python:MODULE:FACTORY), an environment class or a function that makes one, or
        an environment, which is left open. None: the task of the run, with its options and its time limit.
    seed: episode i begins with reset(seed=seed + i), so that every policy meets the same starts.
    deterministic: the most likely actions; False samples them, from a stream that `seed` begins.
    time_limit: steps after which an episode is cut off. options: those of the environment.
    """
    for name, value in (("episodes", episodes), ("time_limit", time_limit)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1):
            raise _core.ConfigError(f"gipo.evaluate: {name} = {value!r} is not accepted: wanted 1 or more")
    run, frames = None, 1
    if env is None:
        env, given, limit, run, frames = _task_of(policy)
        options, time_limit = {**given, **options}, time_limit or limit
    begin = _act_of(policy, deterministic, seed)
    made, mine = made_env("gipo.evaluate", env, options, time_limit, run)
    made = worker.stacked(made, frames)
    try:
        return _play(begin, made, episodes, seed, time_limit or (None if worker.is_limited(made) else MOST_STEPS))
    finally:
        if mine and hasattr(made, "close"):
            made.close()


def _play(begin: Callable[[], Act], env: Any, episodes: int, seed: int, limit: int | None) -> Evaluation:
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    for i in range(episodes):
        obs, info = env.reset(seed=seed + i)
        act = begin()
        ended = False
        while not ended:
            obs, reward, terminated, truncated, info = env.step(act(obs, info))
            returns[i] += reward
            lengths[i] += 1
            ended = terminated or truncated or lengths[i] == limit
    return Evaluation(returns, lengths)


def _act_of(policy: Any, deterministic: bool, seed: int) -> Callable[[], Act]:
    """What is called at the start of each episode, for the function that acts in it."""
    if isinstance(policy, (Run, str, PathLike)):
        policy = Policy(policy)
    if isinstance(policy, Policy):
        seeds = iter([seed])  # the first call begins the stream
        masked = policy._core.mask_size > 0

        def begin() -> Act:
            state = policy.first_state() if policy.state_size else None
            return lambda obs, info: policy.act(
                obs, deterministic, next(seeds, None), info.get("action_mask") if masked else None, state
            )

        return begin
    if hasattr(policy, "predict"):
        return lambda: _predicting(policy, deterministic)
    if callable(policy):
        return lambda: lambda obs, info: policy(obs)
    raise TypeError(
        f"gipo.evaluate: policy must be a Policy, a Run, a path or a function from observation to action, not "
        f"{type(policy).__name__}"
    )


def _predicting(policy: Any, deterministic: bool) -> Act:
    """Of a model of Stable-Baselines3, or a Trainer: with the state that predict returns."""
    state, start = None, True

    def act(obs: Any, info: Mapping[str, Any]) -> Any:
        nonlocal state, start
        if state is None:
            action, state = policy.predict(obs, deterministic=deterministic)
        else:
            action, state = policy.predict(obs, state=state, episode_start=np.array([start]), deterministic=deterministic)
        start = False
        return action

    return act


def _task_of(policy: Any) -> tuple[str, dict[str, Any], int | None, Path | None, int]:
    """The task that a policy was trained on: id, options, time limit; its run folder, where that is known; frames."""
    if isinstance(policy, Policy):
        policy = policy.path
    if isinstance(policy, (str, PathLike)) and (Path(policy) / "config.toml").is_file():
        policy = Run(policy)
    if isinstance(policy, Run):
        task = policy.config["env"]
        options = from_toml(task.get("options", {}))
        return task["id"], options, task.get("time_limit"), policy.path, task.get("frame_stack", 1)
    if isinstance(policy, (str, PathLike)):
        return Policy(policy).env, {}, None, None, 1
    raise _core.ConfigError("gipo.evaluate: env is missing: of this policy it is not known which task it is for")
