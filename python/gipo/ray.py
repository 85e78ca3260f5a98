"""Training on a Ray cluster: docs/cluster.md.

    run = gipo.ray.train("classic/stale", actors=8)

Ray places the programs `gipo learn` and `gipo actor`, and starts again what dies. What they say to each other goes over
their own connection, with certificates that are made for each run.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gipo import ray_nodes
from gipo.progress import in_words
from gipo.runs import UserMistake, find_binary

if TYPE_CHECKING:
    from gipo.training import Run

LOOK_SECONDS = 0.5
SAVE_SECONDS = 120.0  # for a learner that was asked to end
MOST_STARTS = 5  # of a learner, without an update between them
PLACE_SECONDS = 30.0  # before it is told that actors are missing
LINE_SECONDS = 5.0  # between lines of progress

Callback = Callable[[dict[str, Any]], bool | None]


class RunFailed(Exception):
    """The run cannot go on."""


def find_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserMistake("Ray is not installed: pip install 'gipo[ray]', or scripts/setup.sh --cluster in a clone") from None
    return ray


def connect(programs: int) -> Any:
    """Ray, connected: to the cluster that RAY_ADDRESS names, else to one on this machine alone, with room for so many."""
    ray = find_ray()
    if not ray.is_initialized():
        room = {"num_cpus": max(os.cpu_count() or 1, programs), "include_dashboard": False}
        ray.init(**({} if os.environ.get("RAY_ADDRESS") else room), log_to_driver=False, logging_level=logging.ERROR)
    ray.cloudpickle.register_pickle_by_value(ray_nodes)
    return ray


def program() -> str:
    """The program as the driver has it; nodes that have none there take the first on their PATH."""
    return os.environ.get("GIPO_BINARY") or str(find_binary())


def place_actor(
    ray: Any, binary: str, address: str, certificates: Mapping[str, bytes], ledger: str = "",
    resources: Mapping[str, Any] | None = None,
) -> Any:
    """A task of Ray that is an actor of the learner there, for as long as the run goes on."""
    wanted = {"num_cpus": 1, "scheduling_strategy": "SPREAD"} | dict(resources or {})
    return ray.remote(ray_nodes.run_actor).options(**wanted, max_retries=-1).remote(binary, address, certificates, ledger)


def _resolve(config: str, words: Sequence[str]) -> dict[str, Any]:
    """The run as the program would make it: every option, and the run folder. Raises UserMistake."""
    made = subprocess.run(
        [program(), "train", *([config] if config else []), "--dry-run", "--json", *words], capture_output=True, text=True
    )
    if made.returncode != 0:
        raise UserMistake(made.stderr.strip().removeprefix("gipo: "))
    return json.loads(made.stdout)


class _Placed:
    """Learner and actors of one run on the cluster."""

    def __init__(
        self, ray: Any, run_dir: Path, config: str, actors: int, resources: Mapping[str, Any],
        learner_resources: Mapping[str, Any], ledgers: Path | None, say: Callable[[str], None],
    ) -> None:
        self.ray, self.run_dir, self.config, self.ledgers, self.say = ray, run_dir, config, ledgers, say
        self.resources = resources
        self.names = [f"actor-{i}" for i in range(actors)]
        self.begun = False
        self._tasks: dict[Any, str] = {}  # names of actors by their tasks
        self._learner = ray.remote(ray_nodes.LearnerNode).options(**({"num_cpus": 1} | dict(learner_resources)))

    def start(self, flags: Sequence[str]) -> None:
        """Places a learner, and actors that know where it is."""
        words = ["--name", self.run_dir.name, "--set", f"run.dir={self.run_dir.parent}"]
        self.learner = self._learner.remote(program(), self.config, words, str(self.run_dir))
        self._certificates = self.ray.get(self.learner.make_certificates.remote(self.names))
        self._address = self.ray.get(self.learner.start.remote(self.begun, list(flags)))
        self.begun = True
        self.say(f"learner at {self._address}")
        for name in self.names:
            self._place(name)

    def _place(self, name: str) -> None:
        ledger = str(self.ledgers.absolute() / f"{name}.jsonl") if self.ledgers else ""
        task = place_actor(self.ray, program(), self._address, self._certificates[name], ledger, self.resources)
        self._tasks[task] = name

    def start_learner_again(self, why: str) -> None:
        """Only the program: its actors wait for it at its address."""
        self.say(f"the learner ended ({why}): starting it again from its checkpoint")
        self.ray.get(self.learner.start.remote(True, ["--resume"]))

    def place_again(self) -> None:
        """The learner's node is lost, and with it its address: the actors are told the new one."""
        self.say("the learner's node is lost: placing it again")
        self.cancel_actors()
        self.start(["--resume"])

    def look_after_actors(self) -> None:
        """Ray has placed those again whose node was lost. Raises RunFailed for one that cannot work anywhere."""
        done, _ = self.ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0) if self._tasks else ([], [])
        for task in done:
            name = self._tasks.pop(task)
            try:
                self.ray.get(task)
            except self.ray.exceptions.RayTaskError as error:
                raise RunFailed(f"{name}: {error.cause}") from None
            except self.ray.exceptions.RayError as error:
                self.say(f"{name} was lost ({type(error).__name__}): placing it again")
                self._place(name)

    def cancel_actors(self) -> None:
        for task in self._tasks:
            self.ray.cancel(task, force=True)
        self._tasks = {}

    def end(self) -> None:
        """Actors of a run that has ended end by themselves."""
        if self._tasks:
            self.ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=10)
        self.cancel_actors()
        self.ray.get(self.learner.clean.remote())
        self.ray.kill(self.learner)

    def fetch(self) -> None:
        """Copies the run folder from the learner's node, if the driver does not see it there."""
        mark = self.ray.get(self.learner.mark.remote())
        own = self.run_dir / "actors.json"
        if own.exists() and own.read_text() == mark:
            return
        data = b"".join(self.ray.get(piece) for piece in self.ray.get(self.learner.pieces.remote()))
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            tar.extractall(self.run_dir, filter="data")


class _Watch:
    """What the driver has seen of the run, and what it prints of it."""

    def __init__(self, name: str, updates: int, actors: int, callback: Callback | None, progress: bool) -> None:
        self.name, self.updates, self.actors, self.callback, self.progress = name, updates, actors, callback, progress
        self.offset, self.update, self.wanted = 0, 0, True
        self._begun = self._shown = time.monotonic()
        self._told = False

    def say(self, text: str) -> None:
        if self.progress:
            print(f"{self.name}: {text}", file=sys.stderr, flush=True)

    def take(self, state: dict[str, Any]) -> None:
        self.offset = state["offset"]
        figures: dict[str, Any] = {}
        for line in state["lines"]:
            figures = json.loads(line)
            if figures["update"] <= self.update:  # from before the learner was started again
                continue
            self.update = figures["update"]
            if self.callback and self.callback(figures) is False:
                self.wanted = False
        now, connected = time.monotonic(), sum(actor["connected"] for actor in state["actors"])
        if connected < self.actors and not self._told and now - self._begun > PLACE_SECONDS:
            self._told = True
            self.say(f"{connected} of {self.actors} actors are connected: does the cluster have room for the rest? (ray status)")
        if figures and now - self._shown > LINE_SECONDS:
            self._shown = now
            self.say(
                f"{100 * self.update / self.updates:.0f}%  {figures['env_steps']} env steps  "
                f"return {in_words(figures.get('return_mean'))}  {connected} of {self.actors} actors"
            )


def _attend(placed: _Placed, watch: _Watch) -> None:
    """Until the run has ended, or the callback wants no more of it."""
    lost, starts, before = placed.ray.exceptions.RayActorError, 0, 0
    while watch.wanted:
        try:
            state = placed.ray.get(placed.learner.look.remote(watch.offset))
            watch.take(state)
            if watch.update > before:
                starts, before = 0, watch.update
            if state["code"] == 0:
                return
            if state["code"] is not None:
                starts += 1
                if state["code"] == 2 or starts > MOST_STARTS:
                    raise RunFailed(state["message"])
                placed.start_learner_again(state["message"] or f"exit code {state['code']}")
        except lost:
            starts += 1
            if starts > MOST_STARTS:
                raise RunFailed("the learner's node was lost again and again") from None
            placed.place_again()
        placed.look_after_actors()
        time.sleep(LOOK_SECONDS)
    placed.ray.get(placed.learner.end.remote(SAVE_SECONDS))


def run_on_cluster(
    config: str, words: Sequence[str], actors: int | None, resources: Mapping[str, Any],
    learner_resources: Mapping[str, Any], flags: Sequence[str], callback: Callback | None, progress: bool,
    ledgers: Path | None = None,
) -> Path:
    """Trains and returns the run folder. Raises UserMistake, RunFailed."""
    wanted = [] if actors is None else ["--set", f"staleness.actors={actors}"]
    resolved = _resolve(config, [*words, *wanted, "--set", "run.mode=async"])
    options = tomllib.loads(resolved["config"])
    count = resolved["staleness"]["actors"]
    ray = connect(count + 1)
    run_dir = Path(resolved["run_dir"]).absolute()
    watch = _Watch(run_dir.name, options["learner"]["updates"], count, callback, progress)
    placed = _Placed(ray, run_dir, resolved["config"], count, resources, learner_resources, ledgers, watch.say)
    try:
        placed.start(flags)
        try:
            _attend(placed, watch)
        except KeyboardInterrupt:
            placed.ray.get(placed.learner.end.remote(SAVE_SECONDS))
            placed.fetch()
            raise
        placed.fetch()
        placed.end()
    except ray.exceptions.RayTaskError as error:  # of ours: what a program said
        if not isinstance(error.cause, ray_nodes.ProgramFailed):
            raise
        raise (RunFailed if placed.begun else UserMistake)(str(error.cause)) from None
    finally:
        placed.cancel_actors()
    return run_dir


def train(
    config: str | PathLike[str] | Mapping[str, Any] | None = None,
    env: str | None = None,
    callback: Callback | None = None,
    *,
    actors: int | None = None,
    resources: Mapping[str, Any] | None = None,
    learner_resources: Mapping[str, Any] | None = None,
    env_steps: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: bool = True,
    ledgers: str | PathLike[str] | None = None,
    **options: Any,
) -> Run:
    """Trains a policy with learner and actors on a Ray cluster, and returns its run folder.

    config, env, env_steps, seed, name, overwrite, options: as in `gipo.train`. The task is given by its id, and must be
        installed on every node. run.mode is async.
    callback: called with the figures of every logged update, a line of metrics.jsonl. False ends the run with a
        checkpoint.
    actors: how many; None: as staleness.actors says.
    resources: what Ray is to set aside for each actor, as in `ray.remote`: {"num_cpus": 1} unless given, spread over the
        nodes. learner_resources: for the learner, for instance {"num_cpus": 4, "num_gpus": 1}.
    resume: continue the run folder of this name, if there is one.
    progress: print lines on stderr. ledgers: folder on the nodes, which must exist, for what `gipo actor --ledger` writes.

    The cluster is the one that RAY_ADDRESS names or that `ray.init` connected to before; else one is started on this
    machine. Ctrl-C ends the run with a checkpoint. Mistakes raise gipo.ConfigError, a run that cannot go on
    gipo.RunError.
    """
    from gipo import _core
    from gipo.options import flatten
    from gipo.training import Run

    named = {"run.seed": seed, "run.name": name, "learner.env_steps": env_steps, "env.id": env}
    given = (flatten(config) if isinstance(config, Mapping) else {}) | flatten(options) | flatten(named)
    path = "auto" if config is None and env is not None else ""
    if config is not None and not isinstance(config, Mapping):
        path = fspath(config)
    if overwrite and resume:
        raise _core.ConfigError("gipo.ray.train: overwrite and resume exclude each other")
    if actors is not None and not 1 <= actors <= 4096:
        raise _core.ConfigError(f"gipo.ray.train: actors = {actors!r} is not accepted: wanted 1 to 4096")
    flags = ["--overwrite"] * overwrite + ["--resume"] * resume
    text = lambda value: value if isinstance(value, str) else json.dumps(value)
    words = [word for key, value in given.items() for word in ("--set", f"{key}={text(value)}")]
    try:
        folder = run_on_cluster(path, words, actors, resources or {}, learner_resources or {}, flags, callback, progress,
                                None if ledgers is None else Path(ledgers))
    except UserMistake as error:
        raise _core.ConfigError(f"gipo.ray.train: {error}") from None
    except RunFailed as error:
        raise _core.RunError(str(error)) from None
    return Run(folder)


def main(arguments: Sequence[str]) -> int:
    """`gipo cluster up`, which has checked the words."""
    parser = argparse.ArgumentParser(prog="gipo cluster up")
    parser.add_argument("--config", required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--actors", type=int)
    for name in ("--cpus-per-actor", "--learner-cpus", "--learner-gpus"):
        parser.add_argument(name, type=float)
    for name in ("--overwrite", "--resume", "--quiet", "--json"):
        parser.add_argument(name, action="store_true")
    a = parser.parse_args(arguments)
    given = lambda **values: {name: value for name, value in values.items() if value is not None}
    flags = ["--overwrite"] * a.overwrite + ["--resume"] * a.resume
    try:
        folder = run_on_cluster(
            a.config, [word for value in a.set for word in ("--set", value)], a.actors, given(num_cpus=a.cpus_per_actor),
            given(num_cpus=a.learner_cpus, num_gpus=a.learner_gpus), flags, None, not a.quiet,
        )
    except UserMistake as error:
        print(f"gipo: {error}", file=sys.stderr)
        return 2
    except RunFailed as error:
        print(f"gipo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    summary = json.loads((folder / "summary.json").read_text())
    if a.json:
        print(json.dumps(summary | {"run_dir": str(folder)}, indent=2))
    else:
        print(f"{folder.name}: {summary['ended']} after {summary['updates']} updates, {summary['env_steps']} env steps; "
              f"greedy evaluation {in_words(summary['eval_return']['mean'])}; files in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
