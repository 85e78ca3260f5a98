"""Trains tasks of the zoo and checks that they reach their goals: `make zoo`; docs/zoo.md.

    python -m gipo.zoo_check                     one seed of each quick task
    python -m gipo.zoo_check --all --seeds 1-5   everything
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gipo.runs import ENDED_WELL, ROOT, Record, UserMistake, find_binary, read_summary

DONE, MISSED, USER_MISTAKE, INTERRUPTED = 0, 1, 2, 130
QUICK_SECONDS = 150.0  # of processor time: what one seed of a quick task may take
MODULES = {"box2d": "Box2D", "metaworld": "envpool", "torch": "minatar"}  # what must be there for an entry that needs it
ROW = "{:<28} {:>5} {:>10} {:>10} {:>7} {:>7}  {}"


def entries(binary: Path) -> list[Record]:
    printed = subprocess.run([binary, "list", "zoo", "--json"], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(printed)


def chosen(zoo: Sequence[Record], tasks: Sequence[str], everything: bool) -> list[Record]:
    """The named tasks; all; or those that are quick and have a goal."""
    unknown = sorted(set(tasks) - {entry["task"] for entry in zoo})
    if unknown:
        raise UserMistake(f"--task: {unknown[0]} is not in the zoo; `gipo list zoo` shows all")
    if tasks or everything:
        return [entry for entry in zoo if everything or entry["task"] in tasks]
    return [
        entry for entry in zoo
        if entry["goal"] is not None and ((entry["measured"] or {}).get("cpu_seconds") or 1e9) <= QUICK_SECONDS
    ]


def seeds_of(text: str) -> list[int]:
    """1-5 or 1,3,7."""
    try:
        first, _, last = text.partition("-")
        return list(range(int(first), int(last) + 1)) if last else [int(seed) for seed in text.split(",")]
    except ValueError:
        raise UserMistake(f"--seeds: {text} is not accepted: wanted 1-5 or 1,3,7") from None


def program_for(entry: Record, binary: Path) -> Path | None:
    """What can train the entry: for the backend torch a program that was built with it; none where there is none."""
    if entry["needs"] != "torch":
        return binary
    asked = ["train", "--zoo", entry["task"], "--dry-run"]
    candidates = [binary, *(path for path in [ROOT / "build" / "torch" / "gipo"] if path.is_file())]
    return next((path for path in candidates if not subprocess.run([path, *asked], capture_output=True).returncode), None)


def is_done(folder: Path) -> bool:
    return (folder / "summary.json").is_file() and read_summary(folder)["ended"] in ENDED_WELL


def train(binary: Path, task: str, seed: int, out: Path) -> Record:
    """A run's summary, with its processor time in `cpu_seconds`. What is there is not made again."""
    folder, noted = out / f"{task}-{seed}", out / f"{task}-{seed}.cpu_seconds"
    if not is_done(folder):
        words = [binary, "train", "--zoo", task, "--seed", str(seed), "--name", folder.name, "--set", f"run.dir={out}"]
        before = _children_seconds()
        subprocess.run([*words, "--overwrite"], check=True, stdout=subprocess.DEVNULL)
        noted.write_text(f"{_children_seconds() - before:.1f}\n")
    return read_summary(folder) | {"cpu_seconds": float(noted.read_text()) if noted.is_file() else None}


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(entry: Record, summaries: Sequence[Record]) -> tuple[str, bool]:
    """A row of the table, and whether every run reached the goal."""
    returns = [summary["eval_return"]["mean"] for summary in summaries]
    seconds = [summary["cpu_seconds"] for summary in summaries if summary["cpu_seconds"]]
    good = entry["goal"] is None or min(returns) >= entry["goal"]
    row = ROW.format(
        entry["task"], len(returns), f"{statistics.mean(returns):.4g}", f"{min(returns):.4g}",
        "-" if entry["goal"] is None else f"{entry['goal']:g}",
        f"{statistics.mean(seconds):.0f}" if seconds else "-",
        "no goal" if entry["goal"] is None else "reached" if good else "MISSED",
    )
    return row, good


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make zoo", description=__doc__.splitlines()[0])
    parser.add_argument("--task", action="append", default=[], help="a task of the zoo; may be repeated")
    parser.add_argument("--all", action="store_true", help="all tasks, not only the quick ones")
    parser.add_argument("--seeds", default="1", help="1-5 or 1,3,7; default 1")
    parser.add_argument("--out", type=Path, default=Path("runs/zoo"), help="folder of the runs; default runs/zoo")
    given = parser.parse_args(arguments)
    try:
        binary, seeds = find_binary(), seeds_of(given.seeds)
        wanted = chosen(entries(binary), given.task, given.all)
        given.out.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("GIPO_PYTHON", sys.executable)
        print(ROW.format("task", "seeds", "greedy", "worst", "goal", "cpu s", ""), flush=True)
        missed = []
        for entry in wanted:
            needs = entry["needs"]
            if needs and importlib.util.find_spec(MODULES[needs]) is None:
                print(f"{entry['task']:<28} left out: scripts/setup.sh --{needs} installs what it needs", flush=True)
                continue
            program = program_for(entry, binary)
            if program is None:
                print(f"{entry['task']:<28} left out: it needs a program with libtorch (docs/images.md)", flush=True)
                continue
            row, good = check(entry, [train(program, entry["task"], seed, given.out) for seed in seeds])
            print(row, flush=True)
            missed += [] if good else [entry["task"]]
    except UserMistake as mistake:
        print(f"zoo: {mistake}", file=sys.stderr)
        return USER_MISTAKE
    except subprocess.CalledProcessError as error:
        print(f"zoo: `{' '.join(map(str, error.cmd))}` ended with {error.returncode}", file=sys.stderr)
        return MISSED
    except KeyboardInterrupt:
        return INTERRUPTED
    if missed:
        print(f"zoo: goal missed: {', '.join(missed)}", file=sys.stderr)
    return MISSED if missed else DONE


if __name__ == "__main__":
    sys.exit(main())
