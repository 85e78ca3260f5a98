"""What a report is made of: the runs of a suite, and their aggregates, which the trainer's own program computes."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from gipo.figures import RunData
from gipo.runs import ENDED_WELL, Record, UserMistake, find_binary, is_number

RETURNS = {"train": "training return, last 100 episodes", "greedy": "greedy evaluation after the last update"}
THRESHOLD_EPISODES = 100  # a threshold is reached when the mean return of this many episodes is


def gipo(*arguments: object) -> Record:
    """The JSON that the program prints."""
    binary = os.environ.get("GIPO_BINARY") or find_binary()
    done = subprocess.run([binary, *map(str, arguments), "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise UserMistake(done.stderr.strip().removeprefix("gipo: "))
    return json.loads(done.stdout)


def read_json(path: Path) -> object:
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise UserMistake(f"{path}: {error.strerror}; a folder that `gipo suite` made is wanted") from error
    except (ValueError, RecursionError) as error:
        raise UserMistake(f"{path}: not valid JSON, half written or damaged: {error}") from error


@cache
def read_run(folder: Path) -> RunData | None:
    return RunData.read(folder) if (folder / "metrics.jsonl").exists() else None


@dataclass(frozen=True)
class Suite:
    """One or several suites' folders, read once. `rows` are the finished runs; `missing` the names of the others, and
    `damaged` says which files of runs could not be read."""

    folders: list[Path]
    name: str
    tasks: list[Record]
    methods: list[Record]
    regimes: list[str]
    rows: list[Record]
    missing: list[str]
    damaged: list[str]

    @classmethod
    def read(cls, folders: Sequence[Path], only: Sequence[str] = ()) -> Suite:
        """Several suites stand beside each other by their regimes. only: these tasks alone."""
        whole = cls(list(folders), "", [], [], [], [], [], [])
        names = []
        for folder in folders:
            suite = read_json(folder / "suite.json")
            if not isinstance(suite, dict) or suite.get("schema_version") != 1:
                raise UserMistake(f"{folder / 'suite.json'}: schema_version 1 is wanted: the suite is of another version")
            try:
                names.append(suite["name"])
                whole.take(folder, suite, only)
            except (KeyError, TypeError, AttributeError) as error:
                raise UserMistake(f"{folder}: suite.json or results.json is damaged: {error!r}") from error
        if unknown := [name for name in only if name not in whole.task_names()]:
            raise UserMistake(f"--task {unknown[0]} is not accepted: wanted {', '.join(whole.task_names())}")
        if not whole.rows:
            raise UserMistake(f"{folders[0]}: no finished run there yet")
        tasks = [task for task in whole.tasks if not only or task["name"] in only]
        return replace(whole, name=" and ".join(names), tasks=tasks)

    def take(self, folder: Path, suite: Record, only: Sequence[str]) -> None:
        """Adds what one suite's folder holds: every task, and the runs of those asked for."""
        if shared := set(suite["regimes"]) & set(self.regimes):
            raise UserMistake(f"{folder / 'suite.json'}: another suite has the regime {shared.pop()!r} too")
        self.regimes.extend(suite["regimes"])
        for own, all_ in ((suite["tasks"], self.tasks), (suite["methods"], self.methods)):
            all_.extend(entry for entry in own if entry["name"] not in {known["name"] for known in all_})
        self.read_rows(folder, [run for run in suite["runs"] if not only or run["task"] in only])

    def read_rows(self, folder: Path, runs: Sequence[Record]) -> None:
        kept = folder / "results.json"
        known = {row["name"]: row for row in read_json(kept)} if kept.exists() else {}
        for run in runs:
            summary = folder / "runs" / run["name"] / "summary.json"
            figures = known.get(run["name"], {})
            if summary.exists():
                figures = self.read_summary(summary)
            if figures.get("ended") in ENDED_WELL:
                self.rows.append({**figures, **run, "folder": folder / "runs" / run["name"]})
            else:
                self.missing.append(run["name"])

    def read_summary(self, path: Path) -> Record:
        """Nothing of a damaged one: a report of a hundred runs must not be lost to it."""
        try:
            summary = read_json(path)
        except UserMistake as error:
            self.damaged.append(str(error))
            return {}
        if fault := summary_fault(summary):
            self.damaged.append(f"{path}: {fault}")
            return {}
        return summary

    def faults(self) -> list[str]:
        """All that was left out because it is damaged, a line each, with its file."""
        runs = [run for run in map(self.run, self.rows) if run]
        return [*self.damaged, *(fault for run in runs for fault in run.faults)]

    def select(self, **where: object) -> list[Record]:
        return [row for row in self.rows if all(row[key] == value for key, value in where.items())]

    def method_names(self, rows: Sequence[Record] | None = None) -> list[str]:
        """In the suite's order, those that have runs."""
        present = {row["method"] for row in (self.rows if rows is None else rows)}
        return [m["name"] for m in self.methods if m["name"] in present]

    def task_names(self) -> list[str]:
        return [task["name"] for task in self.tasks]

    def run(self, row: Record) -> RunData | None:
        """The logs of a run; None where only its results were kept."""
        return read_run(row["folder"])

    def has_logs(self) -> bool:
        return any((row["folder"] / "metrics.jsonl").exists() for row in self.rows)

    def data(self, rows: Sequence[Record]) -> str:
        """What a figure is made of, in words."""
        seeds = sorted({row["seed"] for row in rows})
        return f"{len(rows)} runs, seeds {', '.join(map(str, seeds))}"


def summary_fault(summary: object) -> str:
    """What keeps a summary.json from being reported, or nothing."""
    if not isinstance(summary, dict) or not isinstance(summary.get("ended"), str):
        return "no summary of a run"
    if summary["ended"] not in ENDED_WELL:
        return ""
    for key in ("final_return", "eval_return"):
        stats = summary.get(key)
        mean = stats.get("mean", "missing") if isinstance(stats, dict) else "missing"
        if not (mean is None or is_number(mean)):
            return f"{key} has no mean"
    window = summary.get("window")
    if not isinstance(window, dict) or not all(v is None or is_number(v) for v in window.values()):
        return "window is no table of numbers"
    return "" if is_number(summary.get("env_steps")) else "env_steps is no number"


def score(row: Record, kind: str) -> float | None:
    return row["final_return" if kind == "train" else "eval_return"]["mean"]


def aggregate(suite: Suite, regime: str, kind: str) -> Record | None:
    """`gipo aggregate` of one regime; None where some method lacks a task."""
    scores: dict[str, dict[str, list[float]]] = {}
    for row in suite.select(regime=regime):
        if score(row, kind) is not None:
            scores.setdefault(row["method"], {}).setdefault(row["task"], []).append(score(row, kind))
    whole = {m: tasks for m, tasks in scores.items() if len(tasks) == len(suite.tasks)}  # the rest cannot be averaged
    if not whole:
        return None
    table: Record = {"scores": whole}
    if all(task["random"] is not None for task in suite.tasks):
        table["scales"] = {t["name"]: {"random": t["random"], "reference": t["reference"]} for t in suite.tasks}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.json"
        path.write_text(json.dumps(table))
        how = [] if "scales" in table else ["--normalise", "min_max"]
        return gipo("aggregate", path, *how)


def steps_to_threshold(suite: Suite, row: Record) -> float | None:
    """Env steps at which the mean return of the last episodes first reached the task's threshold; None: never."""
    threshold = next(task["threshold"] for task in suite.tasks if task["name"] == row["task"])
    run = suite.run(row)
    if threshold is None or run is None:
        return None
    returns = np.array([np.nan if e["return"] is None else e["return"] for e in run.episodes], dtype=float)
    if len(returns) < THRESHOLD_EPISODES:
        return None
    means = np.convolve(returns, np.full(THRESHOLD_EPISODES, 1 / THRESHOLD_EPISODES), "valid")
    reached = np.flatnonzero(means >= threshold)
    return float(run.episodes[reached[0] + THRESHOLD_EPISODES - 1]["env_steps"]) if len(reached) else None
