"""The two sides of a comparison: a peer's script in the environment of its packages, and the gipo program.

Each function returns figures or raises Missing with one line that says why there are none.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "python"))

from gipo.runs import UserMistake, find_binary, read_summary  # noqa: E402

PEER_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
TIMEOUT_SECONDS = 3600


class Missing(Exception):
    """There is no figure; the message is one line that says why."""


@contextlib.contextmanager
def cores(count: int) -> Iterator[None]:
    """Whatever is started inside runs on the first `count` cores of this process, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def run(what: str, command: list[object], folder: Path) -> str:
    """What the command prints; where it fails, the last line of its messages says why, after progress or a traceback."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise Missing(f"{what}: stopped after {TIMEOUT_SECONDS} s") from None
    except OSError as error:
        raise Missing(f"{what}: {words[0]} does not start: {error.strerror}") from None
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise Missing(f"{what}: {lines[-1]} (exit code {done.returncode})")
    return done.stdout


def peer(what: str, script: str, *arguments: object, folder: Path, python: Path | None = None) -> dict[str, Any]:
    """The object on the last line that a script prints. `python` says whose packages it sees: the peers' by default."""
    python = python or PEER_PYTHON
    if not python.exists():
        raise Missing(f"{what}: not installed; `make peers` does that")
    output = run(what, [python, HERE / script, *arguments], folder)
    try:
        return json.loads(output.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        raise Missing(f"{what}: {script} printed no figures") from None


def gipo(*arguments: object, folder: Path) -> str:
    try:
        binary = find_binary()
    except UserMistake as mistake:
        raise Missing(f"gipo: {mistake}") from None
    return run(f"gipo {arguments[0]}", [binary, *arguments], folder)


def gipo_bench(name: str, folder: Path) -> dict[str, float]:
    """The figures of `gipo bench NAME` by their names."""
    output = gipo("bench", name, "--json", folder=folder)
    try:
        return {row["name"]: row["value"] for row in json.loads(output)}
    except (json.JSONDecodeError, KeyError, TypeError):
        raise Missing(f"gipo bench {name}: printed no array of rows with name and value") from None


def gipo_train(config: Path, seed: int, folder: Path, *arguments: object) -> dict[str, Any]:
    """The summary of a run and, as `folder`, where it lies."""
    if not config.exists():
        raise Missing(f"gipo train: there is no {config.relative_to(ROOT)}")
    words = ["train", config, "--seed", seed, "--name", config.stem, "--overwrite", "--quiet", *arguments]
    gipo(*words, folder=folder)
    run_folder = folder / "runs" / config.stem
    return {**read_summary(run_folder), "folder": run_folder}


def gipo_seconds(config: Path, threshold: float, seed: int, folder: Path) -> float:
    """From the start of the process to its end, which is the threshold; infinite where the run ended below it."""
    started = time.time()
    run = gipo_train(config, seed, folder, "--set", f"run.target_return={threshold}")
    return time.time() - started if run["ended"] == "solved" else math.inf


def sb3_seconds(env: str, threshold: float, seed: int, folder: Path) -> float:
    started = time.time()
    end = peer("Stable-Baselines3", "peer_sb3.py", "solve", env, threshold, seed, folder=folder)["solved_at"]
    return end - started if end else math.inf
