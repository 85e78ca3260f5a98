"""The tasks of gipo as environments of Gymnasium: one, or many that are stepped together in C++."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from gipo import _core
from gipo.options import in_pythons_words, plain
from gipo.registration import spec_of

# Bounds of the observations of Classic Control, as Gymnasium states them. Those of MuJoCo tasks are float64 without any.
_BOUNDS = {
    "CartPole-v1": [4.8, np.inf, np.deg2rad(24), np.inf],
    "Acrobot-v1": [1, 1, 1, 1, 4 * np.pi, 9 * np.pi],
    "MountainCar-v0": ([-1.2, -0.07], [0.6, 0.07]),
    "MountainCarContinuous-v0": ([-1.2, -0.07], [0.6, 0.07]),
    "Pendulum-v1": [1, 1, 8],
}


def make_env(id: str, *, max_episode_steps: int | None = None, **options: Any) -> gymnasium.Env:
    """A task of gipo as a gymnasium.Env.

    id: one of `gipo list envs`, such as "Hopper-v5". max_episode_steps: in place of the task's own; 0: never.
    options: those of the task (docs/tasks.md): ctrl_cost_weight=0.01.
    """
    return NativeEnv(id, max_episode_steps=max_episode_steps, **options)


def make_vec(
    id: str,
    num_envs: int = 1,
    *,
    max_episode_steps: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    threads: int = 1,
    **options: Any,
) -> VectorEnv:
    """Environments of a task of gipo as a gymnasium.vector.VectorEnv, stepped in C++ with Python's lock released.

    threads: how many share the work; more than one pays for MuJoCo tasks. The rest as in `make_env`.
    """
    return NativeVectorEnv(
        id, num_envs, max_episode_steps=max_episode_steps, autoreset_mode=autoreset_mode, threads=threads, **options
    )


class NativeEnv(gymnasium.Env[np.ndarray, Any]):
    """One environment of a task of gipo. `save_state` and `load_state` go back to any moment of it."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, id: str, *, max_episode_steps: int | None = None, **options: Any) -> None:
        self._batch = _batch(id, 1, options, max_episode_steps, 1)
        self.observation_space, self.action_space = _spaces(id, self._batch)
        self.spec = spec_of(id, self._batch.time_limit, options)
        self.made_of = {"id": id, "max_episode_steps": max_episode_steps, **options}
        self._begun = False  # it has a random stream

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        start = _start(self, seed, not self._begun)
        _refuse_options(options)
        super().reset(seed=start)
        obs = self._empty()
        self._batch.reset(np.ones(1, bool), [start], obs)
        self._begun = True
        return obs[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self._batch.running(0):
            raise gymnasium.error.ResetNeeded(f"{self.spec.id}: call reset() first: no episode runs")
        obs, reward = self._empty(), np.empty(1)
        terminated, truncated = np.empty((2, 1), bool)
        faults = self._batch.step(
            _numbers(action, self.action_space, ()), _core.Autoreset.DISABLED, obs, reward, terminated, truncated, obs
        )
        info = {"fault": faults[0][1]} if faults else {}
        return obs[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def save_state(self) -> bytes:
        """Everything: physics, the step count, the random stream."""
        return self._batch.save(0)

    def load_state(self, state: bytes) -> np.ndarray:
        """Goes back to a saved state, of this or of another environment of the task; its observation."""
        obs = self._empty()
        self._batch.load(0, state, obs)
        self._begun = True
        return obs[0]

    def _empty(self) -> np.ndarray:
        return np.empty((1, *self.observation_space.shape), self.observation_space.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(make_env, **self.made_of), (), self.save_state() if self._begun else None

    def __setstate__(self, state: bytes) -> None:
        self.load_state(state)


class NativeVectorEnv(VectorEnv[np.ndarray, Any, np.ndarray]):
    """Environments of a task of gipo that are stepped together."""

    def __init__(
        self,
        id: str,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        threads: int = 1,
        **options: Any,
    ) -> None:
        for name, value in (("num_envs", num_envs), ("threads", threads)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value <= 65536:
                raise _core.ConfigError(f"gipo.make_vec: {name} = {value!r} is not accepted: wanted 1 to 65536")
        self.num_envs = int(num_envs)
        self._batch = _batch(id, self.num_envs, options, max_episode_steps, int(threads))
        try:
            mode = AutoresetMode(autoreset_mode)
        except ValueError:
            known = ", ".join(f"{m.value!r}" for m in AutoresetMode)
            raise _core.ConfigError(
                f"gipo.make_vec: autoreset_mode = {autoreset_mode!r} is not accepted: wanted {known}"
            ) from None
        self._mode = _core.Autoreset[mode.name]
        self.metadata = {"render_modes": [], "autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = _spaces(id, self._batch)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.spec = spec_of(id, self._batch.time_limit, options)
        self.made_of = {"id": id, "max_episode_steps": max_episode_steps, **options}
        self._ended = np.ones(self.num_envs, bool)  # no episode runs
        self._begun = False  # they have random streams

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """As Gymnasium's vector environments do: a seed for each, or the first of consecutive ones.

        options: {"reset_mask": bool [N]} resets those alone.
        """
        options = dict(options or {})
        chosen = _chosen(options.pop("reset_mask", None), self.num_envs)
        _refuse_options(options)
        if not (self._begun or chosen.all()):
            raise gymnasium.error.ResetNeeded("the first reset() is of all environments: without a reset_mask")
        if isinstance(seed, (int, np.integer)):
            super().reset(seed=_start(self, seed, False))
            seeds = [seed + i for i in range(self.num_envs)]
        else:
            seeds = [None] * self.num_envs if seed is None else list(seed)
        if len(seeds) != self.num_envs:
            raise _core.ConfigError(f"seed has {len(seeds)} values: wanted one for each of {self.num_envs} environments")
        obs = self._empty()
        self._batch.reset(chosen, [_start(self, one, not self._begun) for one in seeds], obs)
        self._begun = True
        self._ended = self._ended & ~chosen
        return obs, {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if not self._begun:
            raise gymnasium.error.ResetNeeded("call reset() first: no episode runs")
        if self._mode is _core.Autoreset.DISABLED and self._ended.any():
            raise gymnasium.error.ResetNeeded(
                f"environments {np.flatnonzero(self._ended).tolist()} have ended: reset them, with a reset_mask"
            )
        obs, reward = self._empty(), np.empty(self.num_envs)
        terminated, truncated = np.empty((2, self.num_envs), bool)
        same_step = self._mode is _core.Autoreset.SAME_STEP
        final = self._empty() if same_step else obs
        numbers = _numbers(actions, self.single_action_space, (self.num_envs,))
        faults = self._batch.step(numbers, self._mode, obs, reward, terminated, truncated, final)
        infos: dict[str, Any] = {}
        self._ended = terminated | truncated
        if same_step:
            for i in np.flatnonzero(self._ended):
                infos = self._add_info(infos, {"final_obs": final[i], "final_info": {}}, int(i))
            self._ended = np.zeros(self.num_envs, bool)
        for i, fault in faults:
            infos = self._add_info(infos, {"fault": fault}, i)
        return obs, reward, terminated, truncated, infos

    def save_state(self) -> list[bytes]:
        """The whole state of each environment."""
        return [self._batch.save(i) for i in range(self.num_envs)]

    def load_state(self, states: Sequence[bytes]) -> np.ndarray:
        """Goes back to saved states, one for each environment; the observations."""
        if len(states) != self.num_envs:
            raise _core.ConfigError(f"{len(states)} states: wanted one for each of {self.num_envs} environments")
        obs = self._empty()
        for i, state in enumerate(states):
            self._batch.load(i, state, obs[i])
            self._ended[i] = not self._batch.running(i)
        self._begun = True
        return obs

    def _empty(self) -> np.ndarray:
        return np.empty((self.num_envs, *self.single_observation_space.shape), self.single_observation_space.dtype)


def _batch(id: str, count: int, options: Mapping[str, Any], limit: int | None, threads: int) -> _core.EnvBatch:
    if not isinstance(id, str) or ":" in id:
        raise _core.ConfigError(
            f"environment {id!r} is none of gipo's own: wanted an id of `gipo list envs`; gymnasium.make makes others"
        )
    given = {key: plain(key, value, "gipo.make_env") for key, value in options.items() if value is not None}
    words = {f"env.options.{key}": key for key in given}
    with in_pythons_words("gipo.make_env", words, {f"env.options.{key}": value for key, value in given.items()}):
        return _core.EnvBatch(id, count, given, limit, threads)


def _spaces(id: str, batch: _core.EnvBatch) -> tuple[gymnasium.Space, gymnasium.Space]:
    """As Gymnasium's task of that id has them."""
    described = json.loads(batch.spaces)
    shape, action = tuple(described["observation"]["shape"]), described["action"]
    bounds = _BOUNDS.get(id)
    if bounds is None:
        observation = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float64)
    else:
        low, high = bounds if isinstance(bounds, tuple) else (np.negative(bounds), bounds)
        observation = gymnasium.spaces.Box(np.float32(low), np.float32(high))
    if action["kind"] == "Discrete":
        return observation, gymnasium.spaces.Discrete(action["n"])
    low, high = (np.broadcast_to(np.float32(action[end]), action["shape"]) for end in ("low", "high"))
    return observation, gymnasium.spaces.Box(low, high)


def _start(env: NativeEnv | NativeVectorEnv, seed: int | None, first: bool) -> int | None:
    """The seed of a random stream. None: it goes on; the first reset draws one."""
    if seed is None:
        return int(env.np_random.integers(2**63)) if first else None
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
        raise _core.ConfigError(f"seed = {seed!r} is not accepted: wanted 0 to 2**64 - 1")
    return int(seed)


def _chosen(mask: Any, count: int) -> np.ndarray:
    if mask is None:
        return np.ones(count, bool)
    if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != (count,) or not mask.any():
        raise _core.ConfigError(
            f"options['reset_mask'] is {mask!r:.200}: wanted an array of bool of shape ({count},), one of them True"
        )
    return np.ascontiguousarray(mask)


def _refuse_options(options: Mapping[str, Any] | None) -> None:
    if options:
        raise _core.ConfigError(f"reset: options = {options!r:.200} is not accepted: tasks of gipo have none")


def _numbers(actions: Any, space: gymnasium.Space, before: tuple[int, ...]) -> np.ndarray:
    """The actions as rows of numbers: one for each environment."""
    try:
        array = np.asarray(actions, np.float64)
    except (TypeError, ValueError):
        raise _core.ConfigError(f"the action is {actions!r:.200}: wanted one of {space}") from None
    if array.shape != before + space.shape:
        raise _core.ConfigError(f"actions of shape {array.shape} where {before + space.shape} belong")
    return np.ascontiguousarray(array)
