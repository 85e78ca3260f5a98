"""Training and what comes of it: `train`, `resume`, run folders."""

from __future__ import annotations

import contextlib
import sys
import threading
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gipo import _core
from gipo.envs import env_id, workers_find
from gipo.options import flatten, in_pythons_words
from gipo.policy import Policy
from gipo.progress import TrainingLine
from gipo.runs import Record, read_jsonl, read_summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gipo.video import Video

Callback = Callable[[dict[str, float]], object]


class Run:
    """A run folder and what is in it; docs/run-folder.md describes the files."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / "config.toml").is_file():
            raise _core.ConfigError(f"{self.path}: no such run folder")

    @property
    def summary(self) -> Record:
        """What the run came to: summary.json, which a run writes when it ends."""
        if not (self.path / "summary.json").is_file():
            raise _core.ConfigError(f"{self.path}/summary.json: not there yet; a run writes it when it ends")
        return read_summary(self.path)

    @property
    def config(self) -> Record:
        """Every option of the run, by group."""
        return tomllib.loads((self.path / "config.toml").read_text())

    def metrics(self) -> dict[str, np.ndarray]:
        """The columns of metrics.jsonl, one value per logged update; NaN where there was none."""
        return _columns(self.path / "metrics.jsonl")

    def episodes(self) -> dict[str, np.ndarray]:
        """The columns of episodes.jsonl, one value per finished training episode."""
        return _columns(self.path / "episodes.jsonl")

    def evaluations(self) -> dict[str, np.ndarray]:
        """The columns of evaluations.jsonl, one value per evaluation."""
        return _columns(self.path / "evaluations.jsonl")

    def policy(self) -> Policy:
        """The policy of the run's end."""
        return Policy(self.path)

    def video(
        self,
        path: str | PathLike[str] | None = None,
        *,
        episode: int | str = 0,
        episodes: int = 10,
        fps: float | None = None,
        size: tuple[int, int] | None = None,
        seed: int = 0,
        sampled: bool = False,
    ) -> Video:
        """Draws an episode of the policy into an mp4 file, which a notebook shows. docs/video.md says what it needs.

        path: the file; None: video.mp4 in the run folder.
        episode: which of the `episodes` that `gipo eval` plays with this seed: a number, "best", "worst" or "all".
        fps: steps of the task in a second, each drawn; None: real time. size: width and height; None: the task's own.
        sampled: actions are sampled, not the most likely ones.
        """
        from gipo.video import make_video

        with workers_find():
            return make_video(
                self.path, self.path / "video.mp4" if path is None else Path(path),
                self.config["env"].get("python") or sys.executable,
                {"episode": episode, "episodes": episodes, "fps": fps, "seed": seed, "sampled": sampled,
                 "size": None if size is None else "x".join(map(str, size))},
            )

    def plot(self) -> Figure:
        """A figure: the training return, and how much old data still contributed. Needs matplotlib."""
        from gipo.figures import RunData, run_figure

        run = RunData.read(self.path)
        for fault in run.faults:
            warnings.warn(f"{fault}: left out", stacklevel=2)
        return run_figure(run, self.path.name)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        ended = self.summary["ended"] if (self.path / "summary.json").is_file() else "not ended"
        return f"Run({str(self.path)!r}, {ended})"


def _columns(path: Path) -> dict[str, np.ndarray]:
    records = read_jsonl(path)
    names = dict.fromkeys(name for record in records for name in record)
    return {n: np.array([np.nan if r.get(n) is None else r[n] for r in records]) for n in names}


def train(
    config: str | PathLike[str] | Mapping[str, Any] | None = None,
    env: str | type | Callable[..., Any] | Mapping[str, Any] | None = None,
    callback: Callback | None = None,
    *,
    seed: int | None = None,
    name: str | None = None,
    overwrite: bool = False,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Trains a policy and returns its run folder.

    config: a TOML file, or a dictionary with its keys, nested or with dots; None: the defaults.
    env: the task: an id, or an environment class or function of your own that a worker process can import.
    callback: called with the figures of every logged update, a line of metrics.jsonl; False ends the run.
    seed, name: as run.seed and run.name. overwrite: remove an earlier run of that name first.
    progress: show a line on stderr.
    options: further options, with two underscores for the dot: surrogate__sigma=0.5.

    The interpreter is free while the run goes on. Ctrl-C, and an exception in the callback, end the run with a
    checkpoint and are raised afterwards: `gipo.resume` goes on. Mistakes raise gipo.ConfigError before anything is
    created; a run that cannot go on raises gipo.RunError.
    """
    given: dict[str, Any] = {}
    if isinstance(config, Mapping):
        given |= flatten(config)
    elif not isinstance(config, (str, PathLike, type(None))):
        raise TypeError(f"gipo.train: config must be a path or a dictionary, not {type(config).__name__}")
    keywords = flatten(options)
    spelled = {key: key.replace(".", "__") for key in keywords}
    given |= keywords
    if isinstance(env, Mapping):
        given |= flatten({"env": env})
    elif env is not None:
        given["env.id"] = env_id(env)
        spelled["env.id"] = "env"
    named = flatten({"run.seed": seed, "run.name": name})
    spelled |= {key: key.removeprefix("run.") for key in named}
    given |= named
    path = "" if config is None or isinstance(config, Mapping) else fspath(config)
    words = [repr(path)] * bool(path) + [f"{key.replace('.', '__')}={value!r}" for key, value in given.items()]
    with in_pythons_words("gipo.train", spelled, given), _listening(progress, callback) as listeners:
        folder = _core.train(path, list(given.items()), overwrite, f"gipo.train({', '.join(words)})", listeners)
    return Run(folder)


def resume(
    run: str | PathLike[str] | Run,
    updates: int | None = None,
    callback: Callback | None = None,
    *,
    progress: bool = True,
) -> Run:
    """Goes on with a run from its newest whole checkpoint; `updates` lengthens it. The rest as in `train`."""
    path = str(Path(_path("gipo.resume", run)))
    if not Path(path).is_dir():
        raise _core.ConfigError(f"{path}: no such run folder")
    if updates is not None and (isinstance(updates, bool) or not isinstance(updates, (int, np.integer))):
        raise TypeError(f"gipo.resume: updates must be an int, not {type(updates).__name__}")
    command = f"gipo.resume({path!r}{'' if updates is None else f', {updates}'})"
    words = in_pythons_words("gipo.resume", {"learner.updates": "updates"}, {})
    with words, _listening(progress, callback) as listeners:
        folder = _core.resume(path, None if updates is None else int(updates), command, listeners)
    return Run(folder)


def _path(where: str, run: Any) -> str:
    if not isinstance(run, (str, PathLike)):
        raise TypeError(f"{where}: run must be a Run or a path, not {type(run).__name__}")
    return fspath(run)


@contextlib.contextmanager
def _listening(progress: bool, callback: Callback | None) -> Iterator[_core.Listeners]:
    """What a run that goes on inside calls; workers that it starts find what this process can import."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, not {type(callback).__name__}")
    line = TrainingLine() if progress else None

    def warn(text: str) -> None:
        if line:
            line.close()
        warnings.warn(text, RuntimeWarning, stacklevel=4)

    main = threading.current_thread() is threading.main_thread()
    show = (line.start, line.show) if line else (None, None)
    with workers_find():
        try:
            yield _core.Listeners(*show, callback, warn, line.interval if line else 0.0, main)
        finally:
            if line:
                line.close()


def load(run: str | PathLike[str] | Run) -> Policy:
    """The trained policy of a run folder, or of a policy.safetensors alone."""
    return Policy(_path("gipo.load", run))


def export(run: str | PathLike[str] | Run, file: str | PathLike[str]) -> Path:
    """Writes the policy of a run for other programs: NAME.onnx, or its weights as NAME.safetensors."""
    _core.export_policy(_path("gipo.export", run), fspath(file))
    return Path(file)
