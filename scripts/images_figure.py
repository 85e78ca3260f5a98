"""Draws docs/images.png: returns on MinAtar's games, from stale and fresh data, and on Pong.

    .venv/bin/python scripts/images_figure.py [RUNS]

RUNS: the runs of suites/minatar.toml (results/minatar/runs), from whose logs results/minatar/curves.csv is made first.
"""

import csv
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = Path(__file__).resolve().parent.parent / "results"
CURVES = RESULTS / "minatar" / "curves.csv"
POINTS = 20  # as many lines as the shortest log has
STUDENT = {3: 4.303, 5: 2.776}  # of two sides, 95%, by the number of seeds
COLOURS = {"stale": "tab:blue", "fresh": "tab:orange", "AC($\\lambda$)": "0.5"}


def make_curves(runs: Path) -> None:
    with CURVES.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(["task", "regime", "seed", "env_steps", "return"])
        for run in json.loads((runs.parent / "results.json").read_text()):
            lines = (runs / run["name"] / "metrics.jsonl").read_text().splitlines()
            for k in range(1, POINTS + 1):
                row = json.loads(lines[len(lines) * k // POINTS - 1])
                if row["return_mean"] is not None:
                    table.writerow([run["task"], run["regime"], run["seed"], row["env_steps"], round(row["return_mean"], 3)])


def curves() -> dict[tuple[str, str], dict[int, list[float]]]:
    """By game and method: the returns of all seeds after so many frames."""
    found: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader(CURVES.open()):
        found[row["task"], row["regime"]][int(row["env_steps"])].append(float(row["return"]))
    for line in (RESULTS / "minatar" / "ac_lambda.jsonl").read_text().splitlines():
        row = json.loads(line)
        game = row["game"].title().replace("_", "")
        if row["return"] is not None:
            found[game, "AC($\\lambda$)"][row["frames"]].append(row["return"])
    return found


def main() -> None:
    if len(sys.argv) > 1:
        make_curves(Path(sys.argv[1]))
    figure, axes = plt.subplots(2, 3, figsize=(11, 5.6), layout="constrained")
    found = curves()
    for ax, game in zip(axes.flat, ("Breakout", "Asterix", "Freeway", "SpaceInvaders", "Seaquest")):
        for method, colour in COLOURS.items():
            full = max(len(v) for v in found[game, method].values())
            points = sorted((x, v) for x, v in found[game, method].items() if len(v) == full)
            x = [p[0] / 1000 for p in points]
            mean = [statistics.fmean(p[1]) for p in points]
            half = [STUDENT[full] * statistics.stdev(p[1]) / full**0.5 for p in points]
            ax.plot(x, mean, color=colour, label=method)
            ax.fill_between(x, [m - h for m, h in zip(mean, half)], [m + h for m, h in zip(mean, half)], color=colour,
                            alpha=0.2, lw=0)  # fmt: skip
        ax.set(title=game, xlabel="thousand frames", ylabel="return", ylim=(0, None))
    axes.flat[0].legend(frameon=False)
    pong = list(csv.DictReader((RESULTS / "pong" / "curve.csv").open()))
    ax = axes.flat[5]
    ax.plot([int(r["env_steps"]) / 1000 for r in pong], [float(r["return"]) for r in pong], color="tab:blue")
    ax.set(title="Atari: Pong, one run on a card", xlabel="thousand env steps", ylabel="return", ylim=(-21.5, 21.5))
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(RESULTS.parent / "docs" / "images.png", dpi=110)


if __name__ == "__main__":
    main()
