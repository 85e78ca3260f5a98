"""Draws docs/centre.png: how a log ratio is split at pi_prox, and what GIPO makes of it about either centre."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import gipo

SIGMA, MOST = 0.25, 2.0
SAMPLES = {-1.5: "tab:purple", 0.0: "tab:blue", 1.0: "tab:green"}  # b: how far the recent policy is from the sample


def arrow(axes, start, end, height, colour, text):
    axes.annotate("", (end, height), (start, height), arrowprops={"arrowstyle": "->", "color": colour, "lw": 2})
    axes.text((start + end) / 2, height + 0.07, text, ha="center", color=colour, fontsize=9)


def main():
    figure, (split, behaviour, proximal) = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")
    split.set_title("One ratio, two questions")
    for x, name in ((0.0, "log $\\mu$\nwho chose it"), (1.0, "log $\\pi_{prox}$\nof late"), (1.35, "log $\\pi$\nnow")):
        split.plot([x, x], [0, 0.85], color="0.6", lw=1)
        split.text(x, -0.05, name, ha="center", va="top", fontsize=9)
    arrow(split, 0, 1.0, 0.3, "tab:green", "b: age\nimportance, cut at c")
    arrow(split, 1.0, 1.35, 0.3, "tab:red", "lp: this step\ntrust")
    arrow(split, 0, 1.35, 0.72, "0.3", "centre = behaviour asks about the sum")
    split.set(xlim=(-0.35, 1.7), ylim=(-0.35, 1.0))
    split.axis("off")

    lr = np.linspace(-3, 3, 601)
    one_sided = gipo.surrogate("gipo", sigma=SIGMA, pull_back="both")
    for axes, sign in ((behaviour, 1.0),):
        axes.plot(lr, gipo.surrogate("gipo", sigma=SIGMA).multiplier(lr, sign), color="0.2")
        axes.set_title("centre = behaviour")
    for b, colour in SAMPLES.items():
        m = min(np.exp(b), MOST) * one_sided.multiplier(lr - b, 1.0)
        proximal.plot(lr, m, color=colour, label=f"b = {b:g}")
        behaviour.axvline(b, color=colour, lw=1, ls=":")
        proximal.axvline(b, color=colour, lw=1, ls=":")
    proximal.set_title(f"centre = proximal, c = {MOST:g}")
    proximal.legend(title="$\\log\\,\\pi_{prox} / \\mu$", frameon=False, fontsize=8)
    for axes in (behaviour, proximal):
        axes.set(xlabel="$\\log\\,\\pi / \\mu$", ylim=(0, 2.3))
    behaviour.set_ylabel(f"multiplier m, A > 0, $\\sigma$ = {SIGMA}")
    figure.savefig(Path(__file__).resolve().parent.parent / "docs" / "centre.png", dpi=110)


if __name__ == "__main__":
    main()
