"""The demo: three objectives learn two tasks from old data; a table and a figure show how they differ.

    python -m gipo.demo            (`make demo` sets up and builds first)
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gipo.progress import ProgressLine
from gipo.runs import ROOT, Run, RunFailed, RunSpec, UserMistake, config_updates, find_binary, from_root, run_all

CONFIG = ROOT / "configs" / "classic" / "stale.toml"
DONE, FAILED, USER_MISTAKE, INTERRUPTED = 0, 1, 2, 130

TASKS = ["CartPole-v1", "Pendulum-v1"]


@dataclass(frozen=True)
class Method:
    key: str  # in the names of its runs
    settings: dict[str, object]


# The config as it is, and what others would do with the same data; all else is the same for all.
BEHAVIOUR = {"surrogate.centre": "behaviour", "surrogate.pull_back": "damped", "learner.proximal_coef": 0}
METHODS = {
    "gipo's default": Method("default", {}),
    "GIPO 0.5 (paper)": Method("gipo", {"surrogate.name": "gipo", "surrogate.sigma": 0.5, **BEHAVIOUR}),
    "PPO 0.2": Method("ppo", {"surrogate.name": "ppo", "surrogate.epsilon": 0.2, **BEHAVIOUR}),
}
SEEDS = 3
MIN_UPDATES = 100  # less leaves too few logged updates to average over

RETURNS = {"training return": "mean of the last 100 episodes", "greedy evaluation": "most likely actions"}
# Names under `window` of summary.json, which holds means over the last 20% of env steps.
DIAGNOSTICS = {
    "old_frac": "samples that are old",
    "old_gap_p95/updates": "age of the old ones, P95",
    "d95": "|log ratio|, P95",
    "near_zero_frac": "samples with hardly a gradient",
    "dead_frac": "samples a clip set to zero",
    "share_old": "part of the update from old",
    "ess_old_norm": "effective part of the old",
}


def run_name(task: str, method: Method, seed: int) -> str:
    return f"{task}-{method.key}-{seed}"


def method_runs(out: Path, seeds: int, updates: int) -> list[RunSpec]:
    """Everything with the first seed, then with the second: what finishes first already compares the methods."""
    return [
        RunSpec(run_name(task, method, seed), CONFIG, out / "runs", seed, updates,
                {"env.id": task, **method.settings})
        for seed in range(1, seeds + 1)
        for task in TASKS
        for method in METHODS.values()
    ]


def by_method(runs: Sequence[Run], task: str) -> dict[str, list[Run]]:
    """The runs of a task."""
    return {
        label: [run for run in runs if run.spec.name == run_name(task, method, run.spec.seed)]
        for label, method in METHODS.items()
    }


def measures(run: Run) -> dict[str, float | None]:
    """One run's column of the table, in the table's order."""
    s = run.summary
    values = dict(zip(RETURNS, (s["final_return"]["mean"], s["eval_return"]["mean"])))
    for name in DIAGNOSTICS:
        key, _, divisor = name.partition("/")
        value = s["window"].get(key)
        values[name] = value / s[divisor] if divisor and value is not None else value
    return values


def cell(values: Sequence[float | None], digits: int) -> str:
    """Mean over seeds, and their standard deviation where there is more than one."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    mean = f"{statistics.mean(known):.{digits}f}"
    return mean if len(known) == 1 else f"{mean} +- {statistics.stdev(known):.{digits}f}"


def table(task: str, groups: dict[str, list[Run]]) -> str:
    """One row per measure, one column per method."""
    columns = [[measures(run) for run in runs] for runs in groups.values()]
    seeds = len(columns[0])
    head = f"{task}, " + ("one seed" if seeds == 1 else f"mean +- deviation of {seeds} seeds")
    lines = [f"{head:<52}" + "".join(f"{label:>18}" for label in groups)]
    for name, meaning in (RETURNS | DIAGNOSTICS).items():
        digits = 1 if name in RETURNS else 3
        cells = [cell([run[name] for run in runs], digits) for runs in columns]
        lines.append(f"{name:<20} {meaning:<31}" + "".join(f"{text:>18}" for text in cells))
    return "\n".join(lines)


def draw(runs: Sequence[Run], out: Path, command: str) -> list[Path]:
    # Drawing is slow to import, and asking for --help should not wait for it.
    import matplotlib

    matplotlib.use("Agg")  # no display is needed
    from gipo import figures

    tasks = {
        task: {label: [figures.RunData.read(run.spec.folder) for run in group] for label, group in
               by_method(runs, task).items()}
        for task in TASKS
    }
    first = runs[0].summary
    seeds = sorted({run.spec.seed for run in runs})
    lines = f"Lines: mean of {len(seeds)} seeds; bands: min to max" if len(seeds) > 1 else "One seed"
    old = first["window"].get("old_frac") or 0
    figure = figures.old_data_figure(
        tasks,
        title="The same old data, three objectives",
        subtitle=f"{100 * old:.0f}% of the samples in an update are {first['staleness']['t_old']} or more updates old. "
                 f"{lines}; smoothed.",
        source=f"{command}: gipo train {from_root(CONFIG)} --set env.id={'|'.join(TASKS)}",
    )
    return figures.save(figure, out / "demo")


def next_steps(out: Path) -> str:
    binary, runs = from_root(find_binary()), from_root(out / "runs")
    steps = {
        f"{binary} eval {runs}/{run_name(TASKS[-1], METHODS[next(iter(METHODS))], 1)}": "play 100 episodes with a trained policy",
        f"{binary} train {from_root(CONFIG)} --set env.id=Acrobot-v1": "another task",
        f".venv/bin/tensorboard --logdir {runs}": "every diagnostic of every run",
        "docs/quickstart.md": "read on",
    }
    return "\n".join([f"What next, from {ROOT}:", *(f"  {command:<76}  {what}" for command, what in steps.items())])


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    def at_least(least: int):
        def integer(text: str) -> int:
            if not text.isascii() or not text.isdigit() or int(text) < least:
                raise argparse.ArgumentTypeError(f"{text!r} is not accepted: wanted a whole number from {least} on")
            return int(text)

        return integer

    parser = argparse.ArgumentParser(
        prog="python -m gipo.demo", description="Three objectives learn two tasks from the same old data.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=ROOT / "demo", help="folder for the runs, the table and the figure")
    parser.add_argument("--seeds", type=at_least(1), default=SEEDS, metavar="N", help="runs per method, seeds 1 to N")
    parser.add_argument("--updates", type=at_least(MIN_UPDATES), default=config_updates(CONFIG), metavar="N", help="updates of a run")
    parser.add_argument("--jobs", type=at_least(1), default=len(os.sched_getaffinity(0)), metavar="N",
                        help="runs at a time")
    return parser.parse_args(arguments)


def make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "table.txt").touch()
    except OSError as error:
        raise UserMistake(f"--out {out}: cannot write there: {error.strerror}") from error


def demo(arguments: argparse.Namespace) -> None:
    binary, out = find_binary(), arguments.out.resolve()
    make_folder(out)
    specs = method_runs(out, arguments.seeds, arguments.updates)
    print(f"{', '.join(METHODS)} on {' and '.join(TASKS)}: {arguments.seeds} runs of {arguments.updates} updates "
          f"each, {arguments.jobs} at a time", flush=True)
    progress = ProgressLine(len(specs))
    try:
        runs = run_all(specs, binary, arguments.jobs, progress.tick, progress.done)
    finally:
        progress.close()

    text = "\n\n".join(table(task, by_method(runs, task)) for task in TASKS)
    (out / "table.txt").write_text(text + "\n")
    print(f"\n{text}\n")
    usual = (arguments.seeds, arguments.updates) == (SEEDS, config_updates(CONFIG))
    command = "make demo" if usual else f"gipo.demo --seeds {arguments.seeds} --updates {arguments.updates}"
    pictures = draw(runs, out, command)
    print(f"Figure: {pictures[0]} and {pictures[1].name}; table: table.txt; runs: runs/ beside them.")
    print(next_steps(out))


def main(arguments: Sequence[str] | None = None) -> int:
    # Ended from outside, the demo ends its runs as well.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        demo(parse(arguments))
    except UserMistake as error:
        print(f"demo: {error}", file=sys.stderr)
        return USER_MISTAKE
    except RunFailed as error:
        print(f"demo: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("demo: interrupted; the runs were stopped", file=sys.stderr)
        return INTERRUPTED
    return DONE


if __name__ == "__main__":
    sys.exit(main())
