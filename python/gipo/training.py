"""Training and what comes of it: `train`, `resume`, run folders."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gipo import _core
from gipo.callbacks import Callback, Moments, together
from gipo.envs import Task, task_of, workers_find
from gipo.options import LENGTHS, flatten, in_pythons_words
from gipo.policy import Policy
from gipo.progress import training_line
from gipo.runs import Record, read_jsonl, read_summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gipo.video import Video


class Figures(dict[str, Any]):
    """What a callback is given: figures by name, and the policy of that moment on demand."""

    def __init__(self, figures: Mapping[str, Any], policy: Callable[[], Any]) -> None:
        super().__init__(figures)
        self._policy = policy

    def policy(self) -> Policy:
        """The policy as it is now; after an evaluation, the one that was evaluated. Only until the callback returns."""
        return Policy._of(self._policy())


Function = Callable[[Figures], bool | None]
Callbacks = Callback | Function | Sequence[Callback | Function]


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

    def policy(self, which: str = "last", *, update: int | None = None) -> Policy:
        """A policy of the run: "last", of its end; "best", of its best evaluation; update=N, that of a checkpoint."""
        return Policy(self.path, which if update is None else str(update))

    def video(
        self,
        path: str | PathLike[str] | None = None,
        *,
        policy: str = "last",
        episode: int | str = 0,
        episodes: int = 10,
        fps: float | None = None,
        size: tuple[int, int] | None = None,
        seed: int = 0,
        sampled: bool = False,
    ) -> Video:
        """Draws an episode of the policy into an mp4 file, which a notebook shows. docs/video.md says what it needs.

        path: the file; None: video.mp4 in the run folder. policy: "last", "best" or the update of a checkpoint.
        episode: which of the `episodes` that `gipo eval` plays with this seed: a number, "best", "worst" or "all".
        fps: steps of the task in a second, each drawn; None: real time. size: width and height; None: the task's own.
        sampled: actions are sampled, not the most likely ones.
        """
        from gipo.video import make_video

        with workers_find():
            return make_video(
                self.path, self.path / "video.mp4" if path is None else Path(path),
                self.config["env"].get("python") or sys.executable,
                {"policy": policy, "episode": episode, "episodes": episodes, "fps": fps, "seed": seed, "sampled": sampled,
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
    return {name: _column([record.get(name) for record in records]) for name in names}


def _column(values: list[Any]) -> np.ndarray:
    """NaN where there is no value, of the shape of the others: lists came into some lines with a later version."""
    blank = next((np.full(np.shape(value), np.nan) for value in values if value is not None), np.nan)
    column = np.array([blank if value is None else value for value in values])
    return column.astype(float) if column.dtype == object else column


def train(
    config: str | PathLike[str] | Mapping[str, Any] | None = None,
    env: Any = None,
    callback: Callbacks | None = None,
    *,
    on_evaluation: Function | None = None,
    on_episode: Function | None = None,
    env_steps: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    overwrite: bool = False,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Trains a policy and returns its run folder.

    config: a preset by its name ("classic/stale", `gipo.presets()`), a TOML file, or a dictionary with its keys, nested
        or with dots. "auto", and None where `env` is given: the settings are chosen for the task, and the run says
        which and why. None without `env`, and {}: the defaults.
    env: the task: an id, an environment class or a function that makes one, or an environment. It may also stand in the
        place of `config`: gipo.train(MyEnv).
    callback: called with the figures of every logged update, a line of metrics.jsonl, as gipo.training.Figures.
        It returns None or True to go on, False to end the run, which then makes its last evaluation. Or one of
        gipo.callbacks, or a list of these.
    on_evaluation, on_episode: called likewise with every evaluation (a line of evaluations.jsonl, and `best`) and with
        every finished training episode (a line of episodes.jsonl).
    env_steps: how long the run is, in environment steps; wins over `config`, as learner.env_steps does.
    seed, name: as run.seed and run.name. overwrite: remove an earlier run of that name first.
    progress: show a line on stderr.
    options: further options, with two underscores for the dot: surrogate__sigma=0.5.

    The interpreter is free while the run goes on. Ctrl-C, and an exception in the callback, end the run with a
    checkpoint and are raised afterwards: `gipo.resume` goes on. Mistakes raise gipo.ConfigError before anything is
    created; a run that cannot go on raises gipo.RunError.
    """
    given: dict[str, Any] = {}
    task: Task | None = None
    if env is None and not isinstance(config, (str, PathLike, Mapping, type(None))):
        config, env = None, config
    if config is None and env is not None and not isinstance(env, Mapping):
        config = "auto"
    keywords, named = flatten(options), flatten({"run.seed": seed, "run.name": name, "learner.env_steps": env_steps})
    if isinstance(config, Mapping):
        given |= flatten(config)
        if not LENGTHS.isdisjoint(keywords | named):  # the length in a dictionary yields, as that in a file does
            given = {key: value for key, value in given.items() if key not in LENGTHS}
    elif not isinstance(config, (str, PathLike, type(None))):
        raise TypeError(f"gipo.train: config must be a path or a dictionary, not {type(config).__name__}")
    spelled = {key: key.replace(".", "__") for key in keywords}
    given |= keywords
    if isinstance(env, Mapping):
        given |= flatten({"env": env})
    elif env is not None:
        task = task_of(env)
        given |= flatten(task.given) | {"env.id": task.id}
        spelled["env.id"] = "env"
    spelled |= {key: key.split(".")[1] for key in named}
    given |= named
    path = "" if config is None or isinstance(config, Mapping) else fspath(config)
    words = [repr(path)] * bool(path) + [f"{key.replace('.', '__')}={value!r}" for key, value in given.items()]
    heard = together(callback, on_evaluation, on_episode)
    with in_pythons_words("gipo.train", spelled, given), _listening(progress, heard, task) as listeners:
        folder = _core.train(path, list(given.items()), overwrite, f"gipo.train({', '.join(words)})", listeners)
    return Run(folder)


def resume(
    run: str | PathLike[str] | Run,
    updates: int | None = None,
    callback: Callbacks | None = None,
    *,
    on_evaluation: Function | None = None,
    on_episode: Function | None = None,
    env_steps: int | None = None,
    progress: bool = True,
) -> Run:
    """Goes on with a run from its newest whole checkpoint. The rest as in `train`.

    updates, env_steps: one of them lengthens the run to this many, counted from its beginning.
    """
    path = str(Path(_path("gipo.resume", run)))
    if not Path(path).is_dir():
        raise _core.ConfigError(f"{path}: no such run folder")
    length = {"updates": updates, "env_steps": env_steps}
    for name, value in length.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer))):
            raise TypeError(f"gipo.resume: {name} must be an int, not {type(value).__name__}")
    length = {name: int(value) for name, value in length.items() if value is not None}
    command = ", ".join([repr(path), *(f"{name}={value}" for name, value in length.items())])
    words = in_pythons_words("gipo.resume", {f"learner.{name}": name for name in ("updates", "env_steps")}, {})
    heard = together(callback, on_evaluation, on_episode)
    with words, _listening(progress, heard, run=Path(path)) as listeners:
        folder = _core.resume(
            path, length.get("updates"), length.get("env_steps"), f"gipo.resume({command})", listeners
        )
    return Run(folder)


def presets() -> dict[str, str]:
    """The ready-made configs that `train` takes by name, and what each is."""
    return dict(_core.presets())


def zoo() -> dict[str, Record]:
    """The tasks of the zoo by name: the `preset` that solves each, and the returns to expect; docs/zoo.md."""
    return {entry["task"]: entry for entry in json.loads(_core.zoo_as_json())}


def _path(where: str, run: Any) -> str:
    if not isinstance(run, (str, PathLike)):
        raise TypeError(f"{where}: run must be a Run or a path, not {type(run).__name__}")
    return fspath(run)


def _with_policy(function: Callable[[Figures], bool] | None) -> Callable[..., bool] | None:
    return None if function is None else lambda figures, policy: function(Figures(figures, policy))


@contextlib.contextmanager
def _listening(
    progress: bool, heard: Moments, task: Task | None = None, run: Path | None = None
) -> Iterator[_core.Listeners]:
    """What a run that goes on inside calls; workers that it starts can make the environment that was given."""
    functions = [_with_policy(function) for function in (heard.on_update, heard.on_evaluation, heard.on_episode)]
    line = training_line() if progress else None

    def warn(text: str) -> None:
        if line:
            line.close()
        warnings.warn(text, RuntimeWarning, stacklevel=4)

    main = threading.current_thread() is threading.main_thread()
    with workers_find(task, run) as keep_environment:

        def start(name: str, opening: str, folder: str) -> None:
            keep_environment(folder)
            if line:
                line.start(name, opening)
            if heard.on_evaluation and Run(folder).config["eval"]["every_updates"] == 0:
                warn("a callback waits for evaluations, and there is one at the end only: eval__every_updates is 0")
            if heard.on_start:
                heard.on_start(Run(folder))

        try:
            show = line.show if line else None
            yield _core.Listeners(start, show, *functions, warn, line.interval if line else 0.0, main)
        finally:
            if line:
                line.close()


def load(run: str | PathLike[str] | Run, which: str = "last") -> Policy:
    """A trained policy of a run folder, `which` as in `Run.policy`; or that of a policy.safetensors alone."""
    return Policy(_path("gipo.load", run), which)


def export(run: str | PathLike[str] | Run, file: str | PathLike[str], which: str = "last") -> Path:
    """Writes a policy of a run for other programs: NAME.onnx, or its weights as NAME.safetensors."""
    _core.export_policy(_path("gipo.export", run), fspath(file), which)
    return Path(file)
