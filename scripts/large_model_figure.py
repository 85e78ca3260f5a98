"""Draws docs/large-model.png: a cloned vision-language-action model, improved by reinforcement learning from stale replay.

    .venv/bin/python scripts/large_model_figure.py
"""

import csv
import json
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "vla_rl"
METHODS = {("gipo", 1e-4): ("GIPO about $\\pi_{prox}$", "tab:blue"), ("ppo", 3e-4): ("PPO 0.2", "tab:orange"),
           ("sapo", 3e-6): ("SAPO", "tab:green")}  # fmt: skip


def main() -> None:
    runs = json.loads((RESULTS / "results.json").read_text())
    clone = next(r for r in runs if r["method"] == "clone")
    curves = defaultdict(list)
    for row in csv.DictReader((RESULTS / "curves.csv").open()):
        curves[row["method"], float(row["policy_lr"]), int(row["seed"])].append((int(row["env_steps"]), float(row["success"])))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", width_ratios=(2, 1), sharey=True)
    for k, (method, (name, colour)) in enumerate(METHODS.items()):
        seeds = [points for key, points in curves.items() if key[:2] == method]
        for i, points in enumerate(seeds):
            left.plot(*zip(*points), color=colour, alpha=0.8, linewidth=1.4, label=name if i == 0 else None)
        greedy = [r["greedy_success"] for r in runs if (r["method"], r.get("policy_lr")) == method]
        right.bar(k, sum(greedy) / len(greedy), color=colour, alpha=0.5)
        right.plot([k] * len(greedy), greedy, "o", color=colour)
    left.axhline(clone["sampled_success"], color="0.4", linestyle="--", label="the clone")
    right.axhline(clone["greedy_success"], color="0.4", linestyle="--")
    left.set(xlabel="env steps (chunks of 5 actions)", ylabel="success", ylim=(0, 1.02), title="actions drawn: last 100 episodes")
    right.set(title="most likely actions: 100 episodes", xticks=range(len(METHODS)), xticklabels=["GIPO", "PPO", "SAPO"])
    left.legend(loc="lower right", frameon=False)
    figure.savefig(ROOT / "docs" / "large-model.png", dpi=130)


if __name__ == "__main__":
    main()
