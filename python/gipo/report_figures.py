"""The figures of a report. Methods differ by colour, line style and marker, for colour-blind readers and for print."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gipo.figures import (
    BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, env_steps_axis, furthest_grid, metric_curve,
    return_curve,
)
from gipo.report_data import Suite, gipo, steps_to_threshold
from gipo.runs import Record

COLORS = [BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, "#000000"]
DASHES = ["-", "--", "-.", ":"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "h", "p", "d", "8"]
HATCHES = ["", "///", "..."]
CURVES = 5  # methods in one panel; more could not be told apart


def style(index: int) -> dict[str, object]:
    """Colour, dash and marker of a method: no two methods of a suite share all three."""
    return {"color": COLORS[index % len(COLORS)], "linestyle": DASHES[index % len(DASHES)],
            "marker": MARKERS[index % len(MARKERS)]}  # fmt: skip


def panels(rows: int, columns: int, width: float = 4.0, height: float = 2.6) -> tuple[Figure, np.ndarray]:
    return plt.subplots(rows, columns, figsize=(max(6.4, width * columns), 0.6 + height * rows), squeeze=False,
                        layout="constrained")  # fmt: skip


def legend(figure: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    columns = min(4, len(labels), int(figure.get_figwidth() // 2))  # 2 inches hold the longest usual name
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8)


def band(curves: np.ndarray) -> np.ndarray:
    """95% percentile bootstrap interval of the mean over seeds, point by point; [2, grid]."""
    draws = np.random.default_rng(1).integers(0, len(curves), (1000, len(curves)))
    return np.percentile(curves[draws].mean(axis=1), [2.5, 97.5], axis=0)


def weights(suite: Suite) -> Figure:
    """Multiplier against ratio, for either sign of the advantage."""
    figure, axes = panels(1, 2, height=3.4)
    names = {}
    for method in suite.methods:  # methods that share a surrogate share a curve
        options = dict(method["surrogate"])
        text = ",".join([options.pop("name"), *(f"{k}={v}" for k, v in options.items())])
        names.setdefault(text, []).append(method["name"])
    result = gipo("study", "multipliers", *names)
    for ax, sign in zip(axes[0], ("positive", "negative")):
        rows = [row for row in result["rows"] if row["advantage"] == sign]
        for index, row in enumerate(rows):
            ax.plot(np.exp(result["log_ratio"]), row["multiplier"], label=", ".join(names[row["surrogate"]]),
                    markevery=(3 * index, 40), markersize=4, **style(index))  # fmt: skip
        ax.set_xscale("log")
        ax.set_ylim(-0.05, 2.5)
        ax.set_xlabel("ratio rho")
        ax.set_ylabel("multiplier m")
        ax.set_title("A > 0" if sign == "positive" else "A < 0")
    legend(figure, axes[0][0])
    return figure


def learning_curves(suite: Suite, methods: Sequence[str]) -> Figure:
    """Training return with intervals: a row per task, a column per regime; tasks side by side where there is one."""
    if len(suite.regimes) > 1:
        figure, axes = panels(len(suite.tasks), len(suite.regimes))
    else:
        figure, axes = panels(-(-len(suite.tasks) // 2), 2)
        axes = axes.reshape(-1, 1)
        for ax in axes.flat[len(suite.tasks):]:
            ax.set_visible(False)
    for line, task in zip(axes, suite.task_names()):
        for ax, regime in zip(line, suite.regimes):
            group = {m: [suite.run(r) for r in suite.select(task=task, method=m, regime=regime)] for m in methods}
            group = {m: [r for r in runs if r] for m, runs in group.items() if any(runs)}
            if not group:
                ax.set_visible(False)
                continue
            grid = furthest_grid(group)
            for index, name in enumerate(methods):
                if name not in group:
                    continue
                curves = np.array([return_curve(run, grid) for run in group[name]])
                whole = np.isfinite(curves).all(axis=0)
                look = style(index)
                if whole.sum() and len(curves) > 1:
                    ax.fill_between(grid[whole], *band(curves[:, whole]), color=look["color"], alpha=0.15, linewidth=0)
                ax.plot(grid[whole], curves[:, whole].mean(axis=0), label=name, markevery=(8 * index, 50),
                        markersize=4, **look)  # fmt: skip
            env_steps_axis(ax, grid)
            ax.set_title(f"{task}, {regime}")
            ax.set_ylabel("return")
    legend(figure, axes[0][0])
    return figure


def staleness(suite: Suite) -> Figure:
    """How old the data is, over training: means over all runs of a regime."""
    keys = {"gap_mean": "mean gap, updates", "old_frac": "OldFrac", "old_gap_p95": "OldGapP95, updates",
            "age_mean": "mean age, env steps"}  # fmt: skip
    figure, axes = panels(2, 2, width=4.6)
    for ax, (key, title) in zip(axes.flat, keys.items()):
        for index, regime in enumerate(suite.regimes):
            runs = [run for run in (suite.run(r) for r in suite.select(regime=regime)) if run]
            if not runs:
                continue
            grid = furthest_grid({"": runs})
            curves = np.array([metric_curve(run, key, grid) for run in runs])
            known = np.isfinite(curves).any(axis=0)
            ax.plot(grid[known], np.nanmean(curves[:, known], axis=0), label=regime, markevery=(8 * index, 50), markersize=4, **style(index))
            ax.set_xlabel("env steps")
        ax.set_title(title)
        ax.set_ylim(bottom=0)
    legend(figure, axes[0][0])
    return figure


def window_mean(rows: Sequence[Record], key: str) -> float:
    values = [row["window"].get(key) for row in rows]
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else float("nan")


def fractions(suite: Suite) -> Figure:
    """Near-zero, dead and suppressed samples of each method."""
    keys = {"near_zero_frac": "NearZeroFrac", "dead_frac": "DeadFrac", "suppressed_frac": "SuppressedFrac"}
    methods = suite.method_names()
    figure, axes = panels(1, len(suite.regimes), width=4.4, height=0.34 * len(methods) + 1.2)
    for ax, regime in zip(axes[0], suite.regimes):
        for index, (key, label) in enumerate(keys.items()):
            values = [window_mean(suite.select(regime=regime, method=m), key) for m in methods]
            ax.barh(np.arange(len(methods)) + 0.27 * (index - 1), values, 0.25, label=label, color=COLORS[index],
                    hatch=HATCHES[index], edgecolor="white", linewidth=0.5)  # fmt: skip
        ax.set_yticks(range(len(methods)), methods)
        ax.invert_yaxis()
        ax.set_xlabel("fraction of samples, last 20% of env steps")
        ax.set_title(regime)
    legend(figure, axes[0][0])
    return figure


def scatter(suite: Suite, x: str, x_label: str, ys: dict[str, str], log: bool) -> Figure:
    """One point per run."""
    figure, axes = panels(1, len(ys), height=3.2)
    for ax, (y, y_label) in zip(axes[0], ys.items()):
        for index, method in enumerate(suite.method_names()):
            rows = [r for r in suite.select(method=method) if None not in (r["window"].get(x), r["window"].get(y))]
            look = style(index)
            ax.scatter([r["window"][x] for r in rows], [r["window"][y] for r in rows], s=16, label=method,
                       marker=look["marker"], color=look["color"], alpha=0.8, linewidth=0)  # fmt: skip
        if log:
            ax.set_xscale("symlog", linthresh=1e-3)
        ax.set_xlabel(x_label)
        ax.set_ylabel(y_label)
    legend(figure, axes[0][0])
    return figure


def old_data(suite: Suite) -> Figure:
    ys = {"share_old": "ShareOld, part of the update", "ess_old_norm": "ESS of old data, normalised"}
    return scatter(suite, "kl", "KL(mu, pi), last 20% of env steps", ys, log=True)


def gap_tail(suite: Suite) -> Figure:
    """Per run the tail of |log rho| against the gap; where logs are there, the tail by age as well."""
    by_age = {m: [] for m in suite.method_names()}
    for row in suite.rows:
        run = suite.run(row)
        last = [r for r in run.metrics if r["env_steps"] >= 0.8 * run.metrics[-1]["env_steps"]] if run and run.metrics else []
        if last:
            counts = np.sum([r["log_ratio_by_age"] for r in last], axis=0, dtype=float)  # [age, size]
            total = counts.sum(axis=1)
            by_age[row["method"]].append(np.where(total > 0, counts[:, 5:].sum(axis=1) / np.maximum(total, 1), np.nan))
    figure, axes = panels(1, 2, height=3.2)
    for index, method in enumerate(suite.method_names()):
        look = style(index)
        rows = [r for r in suite.select(method=method) if None not in (r["window"].get("gap_mean"), r["window"].get("d95"))]
        axes[0][0].scatter([r["window"]["gap_mean"] for r in rows], [r["window"]["d95"] for r in rows], s=16,
                           label=method, marker=look["marker"], color=look["color"], alpha=0.8, linewidth=0)  # fmt: skip
        if by_age[method]:
            ages = (np.arange(8) + 0.5) / 8
            curves = np.array(by_age[method])
            known = np.isfinite(curves).any(axis=0)
            axes[0][1].plot(ages[known], np.nanmean(curves[:, known], axis=0), markersize=4, **look)
    axes[0][0].set_xlabel("mean version gap of the run, updates")
    axes[0][0].set_ylabel("D95: 95th percentile of |log rho|")
    axes[0][0].set_yscale("log", nonpositive="mask")
    axes[0][1].set_xlabel("version gap / window")
    axes[0][1].set_ylabel("samples with |log rho| > 1")
    axes[0][1].set_xlim(0, 1)
    legend(figure, axes[0][0])
    return figure


def plain_sigma(method: Record) -> float | None:
    """The sigma of a method that is GIPO and nothing else."""
    s = method["surrogate"]
    plain = s["name"] == "gipo" and s.get("kernel") == "gaussian" and s.get("pull_back") == "damped"
    plain = plain and s.get("centre", "behaviour") == "behaviour"
    return s["sigma"] if plain and "sigma_pos" not in s and method["proximal_coef"] == 0 else None


def sensitivity(suite: Suite, aggregates: dict[tuple[str, str], Record]) -> Figure | None:
    """IQM of plain GIPO against sigma."""
    sigmas = {m["name"]: plain_sigma(m) for m in suite.methods if plain_sigma(m) is not None}
    if len(sigmas) < 2:
        return None
    figure, axes = panels(1, 2, height=2.8)
    for ax, kind in zip(axes[0], ("train", "greedy")):
        for index, regime in enumerate(suite.regimes):
            ranks = aggregates.get((regime, kind), {}).get("ranks", [])
            rows = sorted((sigmas[r["method"]], r["iqm"]) for r in ranks if r["method"] in sigmas)
            if not rows:
                continue
            x = [sigma * 1.02**index for sigma, _ in rows]
            y = [iqm["value"] for _, iqm in rows]
            error = np.abs([[v - iqm["low"] for v, (_, iqm) in zip(y, rows)], [iqm["high"] - v for v, (_, iqm) in zip(y, rows)]])
            ax.errorbar(x, y, error, capsize=3, markersize=4, label=regime, **style(index))
        ax.set_xscale("log")
        ax.set_xticks(sorted(set(sigmas.values())), [f"{s:g}" for s in sorted(set(sigmas.values()))], minor=False)
        ax.minorticks_off()
        ax.set_xlabel("sigma")
        ax.set_ylabel("IQM of normalised scores")
        ax.set_title("training return" if kind == "train" else "greedy evaluation")
    legend(figure, axes[0][0])
    return figure


def iqm_intervals(suite: Suite, aggregates: dict[tuple[str, str], Record]) -> Figure:
    """IQM with intervals, methods from best to worst by training return of the first regime."""
    order = [r["method"] for r in next(iter(aggregates.values()))["ranks"]]
    figure, axes = panels(1, len(suite.regimes), width=4.4, height=0.3 * len(order) + 1.0)
    for ax, regime in zip(axes[0], suite.regimes):
        for index, kind in enumerate(("train", "greedy")):
            ranks = {r["method"]: r["iqm"] for r in aggregates.get((regime, kind), {}).get("ranks", [])}
            for place, method in enumerate(order):
                if method in ranks:
                    iqm, y = ranks[method], place + 0.18 * (2 * index - 1)
                    ax.plot([iqm["low"], iqm["high"]], [y, y], color=COLORS[index], linewidth=4, alpha=0.35,
                            solid_capstyle="butt")  # fmt: skip
                    ax.plot(iqm["value"], y, MARKERS[index], color=COLORS[index], markersize=5,
                            label=("training return", "greedy evaluation")[index] if place == 0 else None)  # fmt: skip
        ax.set_yticks(range(len(order)), order)
        ax.set_ylim(len(order) - 0.5, -0.5)
        ax.set_xlabel("IQM of normalised scores, 95% interval")
        ax.set_title(regime)
    legend(figure, axes[0][0])
    return figure


def profiles(suite: Suite, aggregates: dict[tuple[str, str], Record]) -> Figure:
    """Fraction of runs above each normalised training score."""
    figure, axes = panels(1, len(suite.regimes), height=3.2)
    for ax, regime in zip(axes[0], suite.regimes):
        profile = aggregates.get((regime, "train"), {}).get("profile")
        if not profile:
            ax.set_visible(False)
            continue
        for index, row in enumerate(profile["rows"]):
            look = style(index)
            ax.plot(profile["taus"], row["value"], label=row["method"], markevery=(3 * index, 25), markersize=4, **look)
            ax.fill_between(profile["taus"], row["low"], row["high"], color=look["color"], alpha=0.07, linewidth=0)
        ax.set_xlabel("normalised score tau")
        ax.set_ylabel("fraction of runs above tau")
        ax.set_title(regime)
        ax.set_ylim(0, 1.02)
    legend(figure, axes[0][0])
    return figure


def reuse(suite: Suite) -> Figure:
    """Env steps to each task's threshold, by regime; runs that never reached it stand at the top edge."""
    figure, axes = panels(-(-len(suite.tasks) // 2), min(2, len(suite.tasks)), width=4.6, height=2.9)
    for ax, task in zip(axes.flat, suite.tasks):
        longest = max(row["env_steps"] for row in suite.select(task=task["name"]))
        for index, method in enumerate(suite.method_names()):
            medians = []
            for regime in suite.regimes:
                steps = [steps_to_threshold(suite, r) for r in suite.select(task=task["name"], method=method, regime=regime)]
                medians.append(np.median([longest * 1.05 if s is None else s for s in steps]) if steps else np.nan)
            ax.plot(np.arange(len(suite.regimes)) + 0.03 * index, medians, markersize=4, label=method, **style(index))
        ax.axhline(longest * 1.05, color="0.6", linewidth=0.8, label="not reached")
        ax.set_xticks(range(len(suite.regimes)), suite.regimes, rotation=30 if len(suite.regimes) > 2 else 0,
                      ha="right" if len(suite.regimes) > 2 else "center", fontsize=7)  # fmt: skip
        ax.set_ylim(bottom=0)
        ax.set_ylabel("env steps, median over seeds")
        ax.set_title(f"{task['name']}: return {task['threshold']:g}")
    for ax in axes.flat[len(suite.tasks):]:
        ax.set_visible(False)
    legend(figure, axes[0][0])
    return figure


