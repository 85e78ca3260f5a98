"""A trainer as an object that learns, acts, is saved and goes on; docs/from-sb3.md has it beside Stable-Baselines3."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from gipo import _core, training
from gipo.callbacks import Callback
from gipo.envs import short_name
from gipo.evaluation import Evaluation, evaluate
from gipo.options import ELSEWHERE
from gipo.policy import Policy
from gipo.runs import last_record
from gipo.training import Run


class _Remember(Callback):
    """Tells the trainer its run at the start, so that `learn` goes on with it also after an interruption."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def on_start(self, run: Run) -> None:
        self.trainer._run = run


class Trainer:
    """Trains a policy on an environment: `learn`, `predict`, `evaluate`, `save` and `load`.

    env: as `gipo.train` takes it: an id, a class, a function, an environment.
    config: a preset by its name, a TOML file or a dictionary; "auto": the settings are chosen for the environment.
    seed: of the run. name: of its folder; None: a free one that begins with the name of the environment.
    progress: show a line on stderr. options: as `gipo.train` takes them: surrogate__sigma=0.5.
    """

    def __init__(
        self,
        env: Any = None,
        config: str | PathLike[str] | Mapping[str, Any] | None = "auto",
        *,
        seed: int = 1,
        name: str | None = None,
        progress: bool = True,
        **options: Any,
    ) -> None:
        self._train = {"config": config, "env": env, "seed": seed, "name": name, **options}
        self._progress = progress
        self._run: Run | None = None
        self._policy: Policy | None = None

    @classmethod
    def load(cls, path: str | PathLike[str], *, progress: bool = True) -> Trainer:
        """A trainer that was saved, or the run folder of any run. `learn` goes on in that folder."""
        trainer = cls(progress=progress)
        trainer._run = Run(path)
        return trainer

    @property
    def run(self) -> Run:
        """The run: its folder, metrics, figures. There is none before `learn`."""
        if self._run is None:
            raise _core.ConfigError("gipo.Trainer: nothing has been learned yet: call learn(env_steps) first")
        return self._run

    @property
    def policy(self) -> Policy:
        """The policy as it is now; `run.policy("best")` is that of the best evaluation."""
        if self._policy is None:
            self._policy = self.run.policy()
        return self._policy

    @property
    def env_steps(self) -> int:
        """Environment steps so far; of a run that was killed, those of its last log line."""
        if self._run is None:
            return 0
        if (self._run.path / "summary.json").is_file():
            return int(self._run.summary["env_steps"])
        return int((last_record(self._run.path / "metrics.jsonl") or {"env_steps": 0})["env_steps"])

    def learn(self, env_steps: int | None = None, callback: Any = None, **unknown: Any) -> Trainer:
        """Trains for so many environment steps more; a whole number of updates, so that it may be a few more.

        callback: a function, one of gipo.callbacks, or a list of these. Other arguments are refused by name.
        """
        for word in unknown:
            near = ELSEWHERE.get(word)
            hint = f"; did you mean {near!r}?" if near else "; it takes env_steps and callback (docs/from-sb3.md)"
            raise _core.ConfigError(f"Trainer.learn() got an unexpected keyword argument {word!r}{hint}")
        whole = isinstance(env_steps, (int, np.integer)) and not isinstance(env_steps, bool)
        if not whole or env_steps < 1:
            raise _core.ConfigError(f"Trainer.learn: env_steps = {env_steps!r} is not accepted: wanted 1 or more")
        self._policy = None
        callbacks = [] if callback is None else list(callback) if isinstance(callback, (list, tuple)) else [callback]
        if self._run is None:
            given = self._train if self._train["name"] else self._train | {"name": self._free_name()}
            callbacks.append(_Remember(self))
            training.train(**given, callback=callbacks, env_steps=int(env_steps), progress=self._progress)
        else:
            total = self.env_steps + int(env_steps)
            training.resume(self._run, callback=callbacks, env_steps=total, progress=self._progress)
        return self

    def predict(
        self,
        obs: Any,
        state: np.ndarray | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        mask: Any = None,
    ) -> tuple[Any, np.ndarray | None]:
        """The action for an observation, or the actions for a batch; and the state for the next call, as in
        Stable-Baselines3.

        state: what the last call returned, of a policy with memory; None where an episode begins. episode_start: of each
        row, whether an episode begins with it. A policy without memory has the state None.
        """
        policy = self.policy
        if policy.state_size == 0:
            return policy.act(obs, deterministic, mask=mask), None
        if state is None:
            state = policy.first_state(policy._batch_of(obs))
        state = np.array(state, np.float32)
        if episode_start is not None:
            state.reshape(-1, policy.state_size)[np.atleast_1d(np.asarray(episode_start, bool))] = 0
        return policy.act(obs, deterministic, mask=mask, state=state), state

    def evaluate(self, episodes: int = 100, env: Any = None, **arguments: Any) -> Evaluation:
        """Plays episodes, as `gipo.evaluate` does: on the task of the run, or on `env`."""
        return evaluate(self.run if env is None else self.policy, env, episodes, **arguments)

    def save(self, path: str | PathLike[str]) -> Path:
        """Copies the run folder, with all that is needed to go on, to a new folder."""
        path = Path(path)
        if path.exists():
            raise _core.ConfigError(f"Trainer.save: {path} exists: wanted the name of a new folder")
        shutil.copytree(self.run.path, path, ignore=shutil.ignore_patterns("lock"))
        return path

    def _free_name(self) -> str:
        env, folder = self._train["env"], Path(self._train.get("run__dir") or "runs")
        base = "run" if env is None else short_name(env)
        names = (f"{base}-{self._train['seed']}{'' if n == 1 else f'-{n}'}" for n in range(1, 1_000_000))
        return next(name for name in names if not (folder / name).exists())

    def __repr__(self) -> str:
        return f"Trainer({self._run.path if self._run else 'nothing learned yet'}, {self.env_steps} env steps)"
