"""Starts training runs, a few at a time, and reads the files of run folders.

A run is one process of the `gipo` binary. Its progress is read from its metrics file, which any run writes, rather than
from its messages: the same code then watches a run that somebody else started.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sysconfig
import tempfile
import threading
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

POLL_SECONDS = 0.2
STOP_SECONDS = 5.0  # for a run to end by itself once asked
TAIL_BYTES = 16 * 1024  # several lines of metrics

ENDED_WELL = ("finished", "solved", "stopped")  # `ended` of a run that has done all it was asked to

Record = dict[str, Any]


class UserMistake(Exception):
    """Something the user can put right; the message says how."""


class RunFailed(Exception):
    """A training run ended by itself before it was done."""


def find_binary() -> Path:
    """The trainer: `gipo` in $GIPO_BUILD_DIR, which is relative to the repository's root; build/release by default.

    Where pip installed this package, the program that came with it.
    """
    binary = ROOT / os.environ.get("GIPO_BUILD_DIR", "build/release") / "gipo"
    installed = Path(sysconfig.get_path("scripts"), "gipo")
    if "GIPO_BUILD_DIR" not in os.environ and not binary.exists() and installed.is_file():
        return installed
    if not binary.is_file() or not os.access(binary, os.X_OK):
        raise UserMistake(f"no program {binary}: build it with `make build`, or set GIPO_BUILD_DIR to its folder")
    return binary


def from_root(path: Path) -> Path:
    """The path as seen from the repository's root where it lies inside, so that saved commands work in any clone."""
    path = path.resolve()
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def config_updates(config: Path) -> int:
    """The updates that a config file sets."""
    return tomllib.loads(config.read_text())["learner"]["updates"]


@dataclass(frozen=True)
class RunSpec:
    """One training run: a config file, what differs from it, and where its folder goes."""

    name: str
    config: Path
    run_dir: Path  # holds the run folders
    seed: int
    updates: int
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.run_dir / self.name

    def arguments(self) -> list[str]:
        settings = {**self.settings, "learner.updates": self.updates, "run.dir": from_root(self.run_dir)}
        words = ["train", str(from_root(self.config)), "--json", "--quiet", "--overwrite", "--name", self.name]
        words += ["--seed", str(self.seed)]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        return words


class Run:
    """A training run under way: its process and how far it came."""

    def __init__(self, spec: RunSpec, binary: Path) -> None:
        self.spec = spec
        self.fraction = 0.0
        self.episode_return: float | None = None
        self.summary: Record = {}
        self._start_time = time.time()
        # Files rather than pipes: nobody has to empty them while the run goes on.
        self._stdout, self._stderr = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        # A session of its own, so that Ctrl-C in a terminal reaches this process alone, which then stops the run.
        self.process = subprocess.Popen(
            [binary, *spec.arguments()], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self._stdout, stderr=self._stderr,
            start_new_session=True,
        )

    def look(self) -> bool:
        """Brings the progress up to date; says whether the run is done. Raises RunFailed where it went wrong."""
        code = self.process.poll()
        if code is None:
            self._look_at_metrics()
            return False
        output, messages = (_contents(file) for file in (self._stdout, self._stderr))
        if code != 0:
            reason = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
            command = shlex.join(["gipo", *self.spec.arguments()])
            raise RunFailed(f"{self.spec.name} {reason}\n  command: {command}\n  {messages.strip() or 'no message'}")
        try:
            self.summary = json.loads(output)
        except json.JSONDecodeError as error:
            raise RunFailed(f"{self.spec.name}: what it printed is no JSON object: {error}") from error
        self.fraction, self.episode_return = 1.0, self.summary["final_return"]["mean"]
        return True

    def _look_at_metrics(self) -> None:
        path = self.spec.folder / "metrics.jsonl"
        try:
            # A file from before this run is the folder that --overwrite is about to remove.
            record = last_record(path) if path.stat().st_mtime >= self._start_time - 1 else None
        except OSError:  # not there yet
            return
        if record:
            self.fraction = min(1.0, record["update"] / self.spec.updates)
            self.episode_return = record.get("return_mean")


def run_all(
    specs: Sequence[RunSpec],
    binary: Path,
    jobs: int,
    on_tick: Callable[[Sequence[Run], int], None],
    on_done: Callable[[Run], None],
) -> list[Run]:
    """Runs all, `jobs` at a time, and returns them in the order of `specs`.

    `on_tick(running, done)` is called a few times a second, `on_done(run)` after each run. Whatever ends this early,
    the failure of a run or Ctrl-C, also ends every run still under way.
    """
    waiting = deque(specs)
    running: list[Run] = []
    done: dict[str, Run] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                with _signals_later():  # one between the start and the list would leave a process behind
                    running.append(Run(waiting.popleft(), binary))
            time.sleep(POLL_SECONDS)
            for run in [run for run in running if run.look()]:
                running.remove(run)
                done[run.spec.name] = run
                on_done(run)
            on_tick(running, len(done))
    finally:
        _stop(running)
    return [done[spec.name] for spec in specs]


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the end of the block. Python calls handlers in the main thread alone."""
    came: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(n))]
        before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)


def _stop(runs: Sequence[Run]) -> None:
    """Asks the runs to end, so that their files are whole; kills those that do not."""
    alive = [run.process for run in runs if run.process.poll() is None]
    for process in alive:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + STOP_SECONDS
    try:
        for process in alive:
            process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:  # also after a second Ctrl-C
        for process in alive:
            process.kill()
            process.wait()


def _contents(file: Any) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def read_jsonl(
    path: Path, faults: list[str] | None = None, fault_of: Callable[[Record], str] = lambda record: ""
) -> list[Record]:
    """The records of a metrics.jsonl or episodes.jsonl; a last line still being written is left out.

    So is a damaged line, or one that `fault_of` has something to say about, with file and number in `faults`. Without
    that list it raises ValueError.
    """
    records = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                break
            try:
                record = json.loads(line)
                fault = fault_of(record) if isinstance(record, dict) else "not a JSON object"
            except (ValueError, RecursionError):
                fault = "not a JSON object"
            if not fault:
                records.append(record)
            elif faults is None:
                raise ValueError(f"{path}:{number}: {fault}")
            else:
                faults.append(f"{path}:{number}: {fault}")
    return records


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def last_record(path: Path) -> Record | None:
    """The last whole record of a file of JSON lines, without reading the rest; None where there is none."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = file.read().split(b"\n")[:-1]
    try:
        return json.loads(lines[-1]) if lines else None
    except json.JSONDecodeError:  # one line alone is longer than the tail
        return None


def read_summary(folder: Path) -> Record:
    return json.loads((folder / "summary.json").read_text())
