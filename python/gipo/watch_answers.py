"""The runs that `gipo watch` shows, and what its page is told of them.

A thread reads the files of the runs while a page asks for them; requests are answered from memory, so that a slow file
system delays the figures and never the page.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gipo.runs import Record, UserMistake, find_binary
from gipo.watch_runs import AGE_PARTS, CURVE, EPISODES, EVALUATIONS, TIMES, RunReader, held_locks

DEPTH = 4  # folders below the one that was given in which runs are looked for
SCAN_SECONDS = 5.0  # between looks for new runs
LOOK_SECONDS = 0.5  # between looks at all runs, however many pages ask
READ_SECONDS = 0.25  # of reading at a time, and how long an answer waits for it
REPLY_NUMBERS = 150_000  # about as many in one answer; the page asks again for the rest

EXACT = {"update", "env_steps", "seconds"}  # columns with all their digits
TRACKS = {"curve": CURVE, "ages": tuple(AGE_PARTS), "episodes": EPISODES, "evaluations": EVALUATIONS, "times": TIMES}


# What is watched


def is_run(folder: Path) -> bool:
    return (folder / "config.toml").is_file() or (folder / "metrics.jsonl").is_file()


def run_folders(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Run folders below, not those inside another."""
    try:
        children = sorted(Path(entry) for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return
    for child in children:
        if is_run(child):
            yield child
        elif depth > 1:
            yield from run_folders(child, depth - 1)


def suite_folder(file: Path) -> Path:
    """Where the runs of a suite's file are."""
    wanted = "wanted a run folder, a folder of runs, the folder of a suite or its TOML file"
    try:
        name = tomllib.loads(file.read_text())["suite"]["name"]
    except OSError as error:
        raise UserMistake(f"{file}: {error.strerror}: {wanted}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserMistake(f"{file} is neither a run nor a suite: {wanted}") from error
    folder = Path("results", str(name))
    if not folder.is_dir():
        raise UserMistake(f"{file}: the suite has not begun, there is no {folder}: start it with gipo suite {file}, or give the folder of its --out")
    return folder


def read_suite(folder: Path) -> Record:
    """The suite's own description, as far as the grid needs it."""
    try:
        suite = json.loads((folder / "suite.json").read_text())
        runs = [{key: str(run[key]) for key in ("task", "method", "regime", "seed", "name")} for run in suite["runs"]]
        return {"name": str(suite["name"]), "regimes": [str(regime) for regime in suite["regimes"]],
                "tasks": [str(task["name"]) for task in suite["tasks"]],
                "methods": [str(method["name"]) for method in suite["methods"]], "runs": runs}  # fmt: skip
    except OSError as error:
        raise UserMistake(f"{folder / 'suite.json'}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserMistake(f"{folder / 'suite.json'} is damaged: {error!r}") from error


class Watched:
    """The runs of one path, of which some may appear and vanish."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise UserMistake(f"{path}: no such folder: give a run folder, a folder of runs or the folder of a suite")
        if path.is_file():
            path = suite_folder(path)
        self.path = path
        self.suite: Record | None = None
        if is_run(path):
            self.kind = "run"
        elif (path / "suite.json").is_file():
            self.kind, self.suite = "suite", read_suite(path)
        else:
            self.kind = "runs"
        self.readers: dict[str, RunReader] = {}
        self.locks: dict[str, threading.Lock] = {}
        self.find()
        if not self.readers:
            raise UserMistake(f"{path}: no run in it: give a run folder, a folder of runs or the folder of a suite, or start a run with gipo train")

    def find(self) -> None:
        """Brings the list of runs up to date."""
        if self.kind == "run":
            found = {self.path.resolve().name: self.path}
        elif self.kind == "suite":
            with contextlib.suppress(UserMistake):  # being written
                self.suite = read_suite(self.path)
            found = {run["name"]: self.path / "runs" / run["name"] for run in self.suite["runs"]}
        else:
            found = {str(folder.relative_to(self.path)): folder for folder in run_folders(self.path)}
        if found.keys() == self.readers.keys():
            return
        readers = {name: self.readers.get(name) or RunReader(folder, name) for name, folder in found.items()}
        self.locks = {name: self.locks.get(name) or threading.Lock() for name in found}
        self.readers = readers


# What the page is told


def packed(names: Sequence[str], rows: np.ndarray, widths: Sequence[int]) -> list[list[Any]]:
    """A column for each name; of those wider than one, a list of rows. Six digits are enough for a picture."""

    def short(value: float, exact: bool) -> float | int | None:
        if not math.isfinite(value):
            return None
        return round(value, 4) if exact else float(f"{value:.6g}")

    columns: list[list[Any]] = []
    at = 0
    for name, width in zip(names, widths):
        part = rows[:, at : at + width].tolist()
        at += width
        cells = [[short(value, name in EXACT) for value in row] for row in part]
        columns.append([row[0] for row in cells] if width == 1 else [None if all(v is None for v in row) else row for row in cells])
    return columns


class Watcher:
    """Reads while pages ask, and answers them."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self._asked, self._done = threading.Event(), threading.Condition()
        self._wanted: dict[str, float] = {}  # runs whose curves a page shows, and when it asked last
        self._standings: dict[str, tuple[int, Record]] = {}  # with the version in which each came
        self._version = 0
        self._asked_at = math.inf  # the first request that nothing was read for since
        self._scanned_at = time.monotonic()
        self._multipliers: dict[str, Record] = {}
        threading.Thread(target=self._read_on, daemon=True).start()

    def _read_on(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            began = time.monotonic()
            self._look(began)
            self._follow(began + READ_SECONDS)
            with self._done:
                self._asked_at = math.inf
                self._done.notify_all()
            time.sleep(max(0.0, began + LOOK_SECONDS - time.monotonic()))

    def _look(self, now: float) -> None:
        watched = self.watched
        if now - self._scanned_at > SCAN_SECONDS:
            watched.find()
            self._scanned_at = time.monotonic()
        locks = held_locks()
        for name, reader in watched.readers.items():
            with watched.locks[name]:
                reader.look(locks, now)
                self._tell(name, reader.standing())
        for name in self._standings.keys() - watched.readers.keys():
            self._tell(name, {})

    def _tell(self, name: str, standing: Record) -> None:
        if self._standings.get(name, (0, None))[1] != standing:
            self._version += 1
            self._standings[name] = (self._version, standing)

    def _follow(self, until: float) -> None:
        """Runs in turn, a part of each, so that a long one does not hold up the others."""
        now = time.monotonic()
        left = [name for name, asked in list(self._wanted.items()) if now - asked < 10]
        while left and time.monotonic() < until:
            for name in left:
                if reader := self.watched.readers.get(name):
                    with self.watched.locks[name]:
                        reader.follow()
            left = [name for name in left if (reader := self.watched.readers.get(name)) and reader.behind]

    def answer(self, request: Record) -> Record:
        """What has changed since the page's last request, which says what it has."""
        wanted = request.get("runs")
        wanted = wanted if isinstance(wanted, dict) else {}
        now = time.monotonic()
        for name in wanted:
            if name in self.watched.readers:
                self._wanted[name] = now
        with self._done:
            self._asked_at = min(self._asked_at, now)
            self._asked.set()
            self._done.wait(READ_SECONDS + 0.1)
            late = max(0.0, time.monotonic() - self._asked_at)
        seen = request.get("version")
        seen = seen if isinstance(seen, int) and 0 <= seen <= self._version else 0
        version = self._version
        reply: Record = {
            "version": version, "late": round(late, 1),
            "standings": {name: told for name, (at, told) in list(self._standings.items()) if at > seen},
        }  # fmt: skip
        if seen == 0:
            path = str(self.watched.path)
            reply |= {"kind": self.watched.kind, "path": path, "suite": self.watched.suite,
                      "columns": TRACKS, "all": True}  # fmt: skip
        reply["tracks"], more = self._tracks(wanted)
        reply["more"] = more or not self._standings
        return reply

    def _tracks(self, wanted: Mapping[str, Any]) -> tuple[Record, bool]:
        """The rows that the page lacks; and whether there is more."""
        tracks: Record = {}
        more, room = False, REPLY_NUMBERS
        for name, has in wanted.items():
            reader, lock = self.watched.readers.get(name), self.watched.locks.get(name)
            if reader is None or lock is None or not isinstance(has, dict):
                continue
            if room <= 0 or not lock.acquire(timeout=0.05):  # being read, from a slow file system
                more = True
                continue
            try:
                tracks[name], numbers = self._run_tracks(reader, has)
                more = more or reader.behind
                room -= numbers
            finally:
                lock.release()
        return tracks, more

    def _run_tracks(self, reader: RunReader, has: Mapping[str, Any]) -> tuple[Record, int]:
        told: Record = {}
        numbers = 0
        for key, names in TRACKS.items():
            known = has.get(key)
            track = getattr(reader, key)
            if not (isinstance(known, list) and len(known) == 3 and all(isinstance(n, int) for n in known)):
                continue
            if known == [track.generation, track.length, track.pending]:
                continue
            start, rows = track.since(*known[:2])
            widths = list(AGE_PARTS.values()) if key == "ages" else [1] * len(names)
            told[key] = {"generation": track.generation, "start": start, "whole": track.length, "pending": track.pending,
                         "columns": packed(names, rows, widths)}  # fmt: skip
            numbers += rows.size
        return told, numbers

    def multiplier(self, name: str) -> Record:
        """The surrogate's multiplier against the log ratio, for both signs of the advantage; finer about zero."""
        reader = self.watched.readers.get(name)
        words = reader.surrogate_words() if reader else ""
        if words and words not in self._multipliers:
            inner, outer = multipliers(words, 0.5), multipliers(words, 12)
            if inner and outer:
                far = [i for i, x in enumerate(outer["x"]) if abs(x) > 0.5]
                points = sorted([(x, inner["positive"][i], inner["negative"][i]) for i, x in enumerate(inner["x"])]
                                + [(outer["x"][i], outer["positive"][i], outer["negative"][i]) for i in far])  # fmt: skip
                self._multipliers[words] = dict(zip(("x", "positive", "negative"), map(list, zip(*points))))
        return self._multipliers.get(words, {})


def multipliers(words: str, most: float) -> Record:
    """As the program computes them; nothing where it cannot, as for a surrogate of another version."""
    try:
        binary = os.environ.get("GIPO_BINARY") or find_binary()
        command = [binary, "study", "multipliers", words, "--range", str(most), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        found = json.loads(done.stdout)
        return {"x": found["log_ratio"], **{row["advantage"]: row["multiplier"] for row in found["rows"]}}
    except (UserMistake, OSError, ValueError, KeyError, subprocess.SubprocessError):
        return {}
