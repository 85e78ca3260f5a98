"""The comparison on Classic Control: every method on four tasks from the same replay, several seeds each.

    python -m gipo.classic stale     10 seeds, writes results/classic_stale.{json,md}
    python -m gipo.classic fresh      5 seeds, writes results/classic_fresh.{json,md}

All methods share one config file; only what METHODS names differs, and nothing is tuned per task.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from gipo.progress import ProgressLine
from gipo.runs import ROOT, Record, Run, RunFailed, RunSpec, UserMistake, config_updates, find_binary, run_all

TASKS = ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0"]
Settings = dict[str, object]


def method(name: str, **options: object) -> Settings:
    """Settings of a surrogate; the proximal term is off unless given."""
    coef = options.pop("proximal_coef", 0)
    return {"surrogate.name": name, "learner.proximal_coef": coef} | {f"surrogate.{k}": v for k, v in options.items()}


METHODS: dict[str, dict[str, Settings]] = {
    "stale": {
        "GIPO 0.25 + proximal": method("gipo", sigma=0.25, proximal_coef=0.3),
        "GIPO 0.5, one-sided": method("gipo", sigma=0.5, pull_back="both"),
        "GIPO 0.25": method("gipo", sigma=0.25),
        "GIPO 0.5": method("gipo", sigma=0.5),
        "PPO 0.2": method("ppo", epsilon=0.2),
        "PPO 0.5": method("ppo", epsilon=0.5),
        "PPO 0.9": method("ppo", epsilon=0.9),
        "SAPO": method("sapo"),
        "no-clip": method("no_clip"),
    },
    "fresh": {"GIPO 0.5": method("gipo", sigma=0.5), "PPO 0.2": method("ppo", epsilon=0.2)},
}
SEEDS = {"stale": 10, "fresh": 5}

# 97.5% points of Student's t for n - 1 degrees of freedom: a 95% interval of the mean over n seeds.
T_975 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


def specs(regime: str, seeds: int, runs: Path) -> list[RunSpec]:
    config = ROOT / "configs" / "classic" / f"{regime}.toml"
    updates = config_updates(config)
    return [
        RunSpec(f"{task}-{label.replace(' ', '_').replace(',', '')}-{seed}", config, runs, seed, updates,
                settings | {"env.id": task, "log.every_updates": 20, "log.tensorboard": "false"})
        for seed in range(1, seeds + 1)
        for task in TASKS
        for label, settings in METHODS[regime].items()
    ]


def row(run: Run, label: str) -> Record:
    """What is kept of one run."""
    s = run.summary
    window = s["window"]
    kept = ("old_frac", "d95", "dead_frac", "near_zero_frac", "suppressed_frac", "share_old", "ess_old_norm", "entropy")
    return {
        "task": s["env"], "method": label, "seed": s["seed"], "env_steps": s["env_steps"], "updates": s["updates"],
        "train": s["final_return"]["mean"], "greedy": s["eval_return"]["mean"],
        "old_gap_p95_over_updates": window["old_gap_p95"] / s["updates"], **{k: window.get(k) for k in kept},
    }


def interval(values: Sequence[float], digits: int = 1) -> str:
    """Mean and 95% t-interval over seeds."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    half = T_975[len(values)] * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def tables(regime: str, rows: list[Record]) -> str:
    """Returns per task, training and greedy, and the measured regime, as Markdown."""
    def pick(key: str, **where: str) -> list[float]:
        return [r[key] for r in rows if all(r[k] == v for k, v in where.items())]

    seeds = len({r["seed"] for r in rows})
    steps = sorted({r["env_steps"] for r in rows})
    parts = [f"{seeds} seeds, {rows[0]['updates']} updates, {steps[-1]} env steps; mean ± half of a 95% t-interval over "
             "seeds."]
    for key, title in (("train", "Training return, mean of the last 100 episodes"),
                       ("greedy", "Greedy evaluation, 20 episodes, after the last update")):
        parts += ["", f"**{title}**", "", "| method | " + " | ".join(TASKS) + " |", "|---|" + "---|" * len(TASKS)]
        for label in METHODS[regime]:
            cells = [interval(pick(key, method=label, task=task)) for task in TASKS]
            parts.append(f"| {label} | " + " | ".join(cells) + " |")
    parts += ["", "**The regime and the data, means over the last 20% of env steps, all tasks**", "",
              "| method | OldFrac | OldGapP95 / updates | D95 | DeadFrac | NearZeroFrac | ShareOld | ESS_old, normalised |",
              "|---|---|---|---|---|---|---|---|"]
    for label in METHODS[regime]:
        cells = [f"{statistics.mean(pick(key, method=label)):.3f}" for key in (
            "old_frac", "old_gap_p95_over_updates", "d95", "dead_frac", "near_zero_frac", "share_old", "ess_old_norm")]
        parts.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gipo.classic", description=__doc__.splitlines()[0])
    parser.add_argument("regime", choices=sorted(METHODS))
    parser.add_argument("--seeds", type=int, choices=range(1, 11), metavar="1..10", help="seeds 1 to N")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="folder for the tables")
    parser.add_argument("--keep-runs", action="store_true", help="keep the run folders under OUT/runs")
    options = parser.parse_args(arguments)
    todo = specs(options.regime, options.seeds or SEEDS[options.regime], options.out / "runs")
    try:
        progress = ProgressLine(len(todo))
        runs = run_all(todo, find_binary(), max(1, options.jobs), progress.tick, progress.done)
        progress.close()
    except UserMistake as error:
        print(f"gipo.classic: {error}", file=sys.stderr)
        return 2
    except RunFailed as error:
        print(f"gipo.classic: {error}", file=sys.stderr)
        return 1
    labels = list(METHODS[options.regime])
    rows = [row(run, labels[i % len(labels)]) for i, run in enumerate(runs)]
    text = tables(options.regime, rows)
    options.out.mkdir(parents=True, exist_ok=True)
    rounded = [{k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in r.items()} for r in rows]
    lines = ",\n".join(json.dumps(r) for r in rounded)
    (options.out / f"classic_{options.regime}.json").write_text(f"[\n{lines}\n]\n")
    (options.out / f"classic_{options.regime}.md").write_text(text)
    if not options.keep_runs:
        shutil.rmtree(options.out / "runs")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
