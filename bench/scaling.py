"""Draws what `gipo bench scaling` measures: what an update, a step and a sample cost as their numbers grow.

    python bench/scaling.py OUT.png      (`make build` first)
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from gipo.figures import BLUE, REFERENCE, STYLE, VERMILLION, plt  # noqa: E402
from gipo.runs import find_binary  # noqa: E402

# What is varied: title, label of the other axis.
PANELS = {
    "batch": ("update, 64x64", "us per update"),
    "width": ("update, batch 256", "us per update"),
    "environments": ("actor, CartPole", "ns per env step"),
    "capacity": ("replay, batch 512", "ns per transition"),
}


def main(out: str) -> None:
    printed = subprocess.run([find_binary(), "bench", "scaling", "--json"], check=True, stdout=subprocess.PIPE).stdout
    rows = json.loads(printed)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(PANELS), figsize=(11, 2.7), layout="constrained")
        for axis, (name, (title, label)) in zip(axes, PANELS.items()):
            points = [(int(row["name"].split()[1]), row) for row in rows if row["name"].startswith(name + " ")]
            x, y = [number for number, _ in points], [row["value"] for _, row in points]
            axis.loglog(x, y, color=BLUE, marker="o", markersize=3)
            if label.startswith("us"):  # the work grows with the batch, and with nearly the square of the width
                power = 1 if name == "batch" else 2
                work = [y[-1] * (n / x[-1]) ** power for n in x]
                axis.loglog(x, work, color=REFERENCE, linestyle=":")
                axis.text(x[1], work[1], "   as the work", color=REFERENCE, fontsize=7, va="top")
                share = axis.twinx()
                share.plot(x, [row["ratio"] for _, row in points], color=VERMILLION, linestyle="--")
                share.set_ylim(0, 1.05)
                share.set_ylabel("share of sgemm", color=VERMILLION)
                share.grid(False)
            else:
                axis.set_ylim(bottom=min(y) / 3, top=max(y) * 3)
            axis.set_title(title)
            axis.set_xlabel(name)
            axis.set_ylabel(label)
        figure.savefig(out, dpi=130)
    for row in rows:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        print(f"| {row['name']} | {row['value']:.4g} {row['unit']} | {ratio} |")


if __name__ == "__main__":
    main(sys.argv[1])
