"""What few env steps teach: curves of configs/mujoco/reuse.toml beside those of Stable-Baselines3's SAC, on both clocks.

    .venv/bin/python bench/peers/few_steps.py curve ENV SEED [KEY=VALUE...]    gipo's, in the format of peer_sac.py
    .venv/bin/python bench/peers/few_steps.py figure FOLDER      from FOLDER/SIDE-ENV-SEED.jsonl: curves.png, and a table

SIDE: gipo; lasting, which is gipo with policy.noise_correlation=0.3; sac.

Both sides have one thread, and seconds are processor time of the training alone. gipo's are those of a second run, which
evaluates only at its end, spread evenly over the env steps: its updates are all alike.
"""

from __future__ import annotations

import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
from gipo import figures  # noqa: E402
from gipo.runs import find_binary, read_jsonl  # noqa: E402

STEPS, EVERY, EPISODES, STEPS_PER_UPDATE = 100_000, 5_000, 5, 2  # the first three as in peer_sac.py
SIDES = {"gipo": "gipo, mujoco/reuse", "lasting": "the same, lasting noise 0.3", "sac": "SAC (Stable-Baselines3)"}
Curve = list[dict[str, Any]]


def train(folder: str, env: str, seed: int, *options: str) -> tuple[Path, float]:
    """The run folder and the processor seconds of a run."""
    settings = [f"env.id={env}", f"learner.env_steps={STEPS}", "run.threads=1", "log.tensorboard=false", *options]
    command = [find_binary(), "train", "mujoco/reuse", "--seed", str(seed), "--name", "run",
               "--overwrite", "--quiet", *(word for setting in settings for word in ("--set", setting))]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Path(folder) / "runs" / "run", after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def curve(env: str, seed: int, options: Sequence[str]) -> Curve:
    with tempfile.TemporaryDirectory() as folder:
        seconds = train(folder, env, seed, "eval.episodes=1", *options)[1]
        evaluations = f"eval.episodes={EPISODES}", f"eval.every_updates={EVERY // STEPS_PER_UPDATE}"
        run, _ = train(folder, env, seed, *evaluations, *options)
        episodes, lines, before = read_jsonl(run / "episodes.jsonl", []), [], 0
        for evaluation in read_jsonl(run / "evaluations.jsonl", []):
            steps = evaluation["env_steps"]
            ended = [e["return"] for e in episodes if before < e["env_steps"] <= steps]
            lines.append({"env_steps": steps, "seconds": seconds * steps / STEPS,
                          "training": statistics.fmean(ended) if ended else None, "greedy": evaluation["mean"]})  # fmt: skip
            before = steps
    return lines


def read(folder: Path) -> dict[str, dict[str, list[Curve]]]:
    """Curves by task and side."""
    found: dict[str, dict[str, list[Curve]]] = {}
    for path in sorted(folder.glob("*-*-*.jsonl")):
        side, task = path.stem.split("-", 1)
        found.setdefault(task.rsplit("-", 1)[0], {}).setdefault(side, []).append(read_jsonl(path, []))
    return found


def draw(tasks: dict[str, dict[str, list[Curve]]], path: Path) -> None:
    with plt.rc_context(figures.STYLE):
        figure, axes = plt.subplots(2, len(tasks), figsize=(3.6 * len(tasks), 5.4), squeeze=False, layout="constrained")
        for column, (env, sides) in zip(axes.T, tasks.items(), strict=True):
            for index, (side, label) in enumerate(SIDES.items()):
                curves = sides.get(side, [])
                if not curves:
                    continue
                steps = np.linspace(EVERY, STEPS, STEPS // EVERY)
                greedy = np.array([np.interp(steps, *zip(*((p["env_steps"], p["greedy"]) for p in c))) for c in curves])
                seconds = np.mean([np.interp(steps, *zip(*((p["env_steps"], p["seconds"]) for p in c))) for c in curves], 0)
                label = f"{label}, {len(curves)} seed{'s' * (len(curves) > 1)}"
                figures.draw_curve(column[0], steps, greedy, label, index)
                figures.draw_curve(column[1], seconds, greedy, label, index)
            column[0].set_title(env)
            column[0].set_xlabel("env steps")
            column[1].set_xlabel("processor seconds")
            column[1].set_xscale("log")
        for row in axes:
            row[0].set_ylabel("greedy return, 5 episodes")
        axes[0][0].legend(loc="upper left")
        figure.savefig(path, dpi=150)


def table(tasks: dict[str, dict[str, list[Curve]]]) -> str:
    rows = [f"| after {STEPS:,} env steps | greedy return, by seed | processor seconds |", "|---|---|---|"]
    for env, sides in tasks.items():
        for side, curves in sides.items():
            last = [c[-1] for c in curves if c[-1]["env_steps"] >= STEPS]
            returns = ", ".join(f"{point['greedy']:,.0f}" for point in last)
            mean = statistics.fmean(point["greedy"] for point in last) if last else math.nan
            seconds = statistics.fmean(point["seconds"] for point in last) if last else math.nan
            rows.append(f"| {env}, {SIDES[side]} | {mean:,.0f} ({returns}) | {seconds:,.0f} |")
    return "\n".join(rows)


def main() -> None:
    match sys.argv[1:]:
        case ["curve", env, seed, *options]:
            for line in curve(env, int(seed), options):
                print(json.dumps(line), flush=True)
        case ["figure", folder]:
            tasks = read(Path(folder))
            draw(tasks, Path(folder) / "curves.png")
            print(table(tasks))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
