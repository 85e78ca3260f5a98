"""The bias-variance figure of the exact grid study: reads the JSON of `gipo study gridworld --json`.

    gipo study gridworld --figure bias-variance.png      (which runs this)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from gipo.figures import BLUE, GREEN, ORANGE, STYLE, VERMILLION

# Shape, colour and name: any one of them tells the surrogates apart.
MARKERS = {
    "no_clip": ("D", ORANGE, "no-clip"),
    "ppo": ("s", VERMILLION, "PPO"),
    "sapo": ("^", GREEN, "SAPO"),
    "gipo": ("o", BLUE, "GIPO"),
}


def in_words(parameters: dict[str, float]) -> str:
    return ", ".join(f"{value:g}" for value in parameters.values())


def bias_variance_figure(study: dict, state: str = "S0", component: str = "right") -> Figure:
    """Variance against bias for each behaviour; GIPO's points joined in the order of sigma."""
    names = [b["name"] for b in study["behaviours"]]
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(lines, columns, figsize=(3.4 * columns, 0.75 + 3.0 * lines), squeeze=False,
                                    layout="constrained")
        for ax in axes.flat[len(names):]:
            ax.set_visible(False)
        for ax, behaviour in zip(axes.flat, study["behaviours"]):
            rows = [r for r in study["rows"] if r["behaviour"] == behaviour["name"]
                    and (r["state"], r["component"]) == (state, component)]
            for surrogate, (marker, color, label) in MARKERS.items():
                own = [r for r in rows if r["surrogate"] == surrogate]
                if not own:
                    continue
                x, y = (np.array([r[key] for r in own]) for key in ("bias", "variance"))
                ax.plot(x, y, marker=marker, color=color, linestyle="--" if surrogate == "gipo" else "none",
                        label=label, markersize=5.5, linewidth=1, clip_on=False, zorder=3)
                for index, (row, bias, variance) in enumerate(zip(own, x, y)):
                    # Points of different surrogates may coincide: each writes to its own side.
                    offset, side = {"ppo": ((-5, 5), "right"), "sapo": ((6, -9 - 8 * index), "left")}.get(
                        surrogate, ((5, 3), "left"))
                    ax.annotate(in_words(row["parameters"]), (bias, variance), offset, textcoords="offset points",
                                fontsize=6.5, color=color, ha=side, annotation_clip=False)
            ax.set_title(f"{behaviour['name']}" if behaviour["name"] == behaviour["mixture"]
                         else f"{behaviour['name']}: {behaviour['mixture']}", fontsize=8.5)
            ax.set_xlabel("bias")
            ax.set_ylabel("variance")
            ax.set_xlim(left=0)
            ax.set_ylim(bottom=0)
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=len(labels))
        figure.suptitle(f"2x2 grid, theta_{component} at {state}, discount {study['discount']:g}: exact, nothing is sampled",
                        x=0.01, ha="left", fontsize=9)
    return figure


def main(arguments: Sequence[str]) -> int:
    path = Path(arguments[0])
    if path.suffix not in (".png", ".svg", ".pdf"):
        print(f"gipo: --figure {path}: wanted a name that ends in .png, .svg or .pdf", file=sys.stderr)
        return 2
    figure = bias_variance_figure(json.load(sys.stdin))
    try:
        with plt.rc_context(STYLE):
            figure.savefig(path, dpi=150)
    except OSError as error:
        print(f"gipo: --figure {path}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
