"""Figures of training runs.

Methods differ by colour and by line style, so that a figure survives colour blindness and a black-and-white printer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gipo.runs import Record, is_number, read_jsonl, read_summary

# The colours of Okabe and Ito, which people with any common colour blindness can tell apart.
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
LINES = [(BLUE, "-"), (GREEN, "--"), (VERMILLION, "-."), (PURPLE, ":"), (ORANGE, (0, (5, 1, 1, 1))), (SKY, (0, (1, 1)))]
REFERENCE = "0.45"  # grey of what is drawn for comparison

GRID_POINTS = 200
# Standard deviations of the smoothing, as fractions of the run's env steps: episodes are few, logged updates many.
EPISODE_SMOOTHING, METRIC_SMOOTHING = 0.02, 0.01

STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.92",
    "legend.frameon": False,
    "legend.handlelength": 3.2,  # long enough to show the line style
    "lines.linewidth": 1.6,
    "svg.hashsalt": "gipo",  # the same runs give the same file
}


@dataclass(frozen=True)
class RunData:
    """What a figure needs of one run folder, read once."""

    summary: Record
    metrics: list[Record]
    episodes: list[Record]
    faults: tuple[str, ...] = ()  # files and lines that were left out because they are damaged

    @classmethod
    def read(cls, folder: Path) -> RunData:
        faults: list[str] = []
        logs = []
        for name, fault_of in (("metrics.jsonl", metrics_fault), ("episodes.jsonl", episode_fault)):
            try:
                logs.append(read_jsonl(folder / name, faults, fault_of))
            except FileNotFoundError:
                logs.append([])
                faults.append(f"{folder / name}: missing")
        return cls(read_summary(folder), *logs, tuple(faults))


def metrics_fault(record: Record) -> str:
    """What keeps a line of metrics.jsonl from being drawn, or nothing."""
    if not is_number(record.get("env_steps")):
        return "env_steps is no number"
    if bad := [key for key, value in record.items() if not (value is None or is_number(value) or isinstance(value, list))]:
        return f"{bad[0]} is no number"
    for key in ("contribution_by_age", "log_ratio_by_age"):
        rows = record.get(key)
        whole = isinstance(rows, list) and len(rows) == 8 and all(isinstance(r, list) and len(r) == 8 for r in rows)
        if not whole or not all(is_number(n) for row in rows for n in row):
            return f"{key} is no table of 8 x 8 numbers"
    return ""


def episode_fault(record: Record) -> str:
    """The same of a line of episodes.jsonl."""
    if not is_number(record.get("env_steps")):
        return "env_steps is no number"
    value = record.get("return", "missing")
    return "" if value is None or is_number(value) else "return is no number"


Group = Mapping[str, Sequence[RunData]]  # the runs of each method, one per seed


def column(records: Sequence[Record], key: str) -> np.ndarray:
    """The values under one name, [records]; those that were not finite are NaN."""
    return np.array([np.nan if record.get(key) is None else record[key] for record in records], dtype=float)


def smooth(x: np.ndarray, y: np.ndarray, grid: np.ndarray, width: float) -> np.ndarray:
    """Mean of y at every grid point, weighted by a Gaussian of standard deviation `width` in x; [grid].

    By x and not by index: episodes come at uneven intervals, and a window of a hundred episodes would span most of a
    run once they are long. NaN outside the points, and where none lies within three widths.
    """
    known = np.isfinite(y)
    if not known.any():
        return np.full(grid.shape, np.nan)
    x, y = x[known], y[known]
    distance = (grid[:, None] - x) / width  # [grid, points]
    weights = np.where(np.abs(distance) <= 3, np.exp(-0.5 * distance**2), 0.0)
    total = weights.sum(axis=1)
    inside = (grid >= x.min()) & (grid <= x.max()) & (total > 0)
    return np.where(inside, weights @ y / np.where(inside, total, 1.0), np.nan)


def env_step_grid(group: Group) -> np.ndarray:
    """The common axis of all runs, as far as every one of them came."""
    return np.linspace(0, min(run.summary["env_steps"] for runs in group.values() for run in runs), GRID_POINTS)


def furthest_grid(group: Group) -> np.ndarray:
    """An axis as long as the longest run: one that was solved ends before the others."""
    return np.linspace(0, max(run.summary["env_steps"] for runs in group.values() for run in runs), GRID_POINTS)


def metric_curve(run: RunData, key: str, grid: np.ndarray) -> np.ndarray:
    """One diagnostic of one run, smoothed; [grid]."""
    return smooth(column(run.metrics, "env_steps"), column(run.metrics, key), grid, METRIC_SMOOTHING * grid[-1])


def return_curve(run: RunData, grid: np.ndarray) -> np.ndarray:
    """The return of one run's training episodes, smoothed; [grid]."""
    return smooth(column(run.episodes, "env_steps"), column(run.episodes, "return"), grid, EPISODE_SMOOTHING * grid[-1])


def draw_curve(ax: Axes, grid: np.ndarray, curves: np.ndarray, label: str, index: int) -> None:
    """Mean of the curves [seeds, grid] as a line in the method's style, their range from min to max as a band."""
    color, line = LINES[index % len(LINES)]
    whole = np.isfinite(curves).all(axis=0)  # a mean over fewer seeds would jump where one drops out
    grid, curves = grid[whole], curves[:, whole]
    if grid.size == 0:
        return
    if len(curves) > 1:
        ax.fill_between(grid, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.15, linewidth=0)
    # Later methods lie above earlier ones and are not solid, so that equal curves all show.
    ax.plot(grid, curves.mean(axis=0), color=color, linestyle=line, label=label, zorder=3 + index, clip_on=False)


def learning_curves(ax: Axes, group: Group) -> None:
    """Return of the training episodes against env steps, one line per method."""
    grid = env_step_grid(group)
    for index, (label, runs) in enumerate(group.items()):
        draw_curve(ax, grid, np.array([return_curve(run, grid) for run in runs]), label, index)
    env_steps_axis(ax, grid)
    ax.set_ylabel("episode return")


def save(figure: Figure, path: Path, dpi: int = 150) -> list[Path]:
    """Writes the figure as PNG and SVG under the path's name and returns both paths."""
    paths = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    figure.savefig(paths[0], dpi=dpi)
    with plt.rc_context(STYLE):
        figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


def old_data_figure(tasks: Mapping[str, Group], title: str, subtitle: str, source: str) -> Figure:
    """Learning curves of the same methods on every task, side by side."""
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, len(tasks), figsize=(9.6, 4.6))
        figure.subplots_adjust(left=0.075, right=0.985, top=0.76, bottom=0.17, wspace=0.2)
        for ax, (task, group) in zip(panels, tasks.items()):
            learning_curves(ax, group)
            ax.set_title(task)
            if ax is not panels[0]:
                ax.set_ylabel("")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="upper right", bbox_to_anchor=(0.99, 0.995),
                      fontsize=10, ncols=len(next(iter(tasks.values()))))
        figure.text(0.012, 0.93, title, fontsize=13, fontweight="bold")
        figure.text(0.012, 0.865, subtitle, fontsize=9, color="0.25")
        figure.text(0.012, 0.022, source, fontsize=7.5, color="0.35", family="monospace")
        return figure


def run_figure(run: RunData, title: str) -> Figure:
    """One run: the return of its training episodes, and beside it what its old data did."""
    group = {title: [run]}
    with plt.rc_context(STYLE):
        figure, (returns, fractions) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        learning_curves(returns, group)
        returns.set_title(f"{title}: training return")
        grid = env_step_grid(group)
        labels = {"share_old": "ShareOld: old data's part of the update", "old_frac": "OldFrac: part of the samples",
                  "dead_frac": "DeadFrac: no gradient left"}
        for index, (key, label) in enumerate(labels.items()):
            draw_curve(fractions, grid, metric_curve(run, key, grid)[None], label, index)
        env_steps_axis(fractions, grid)
        fractions.set_title("Old samples")
        fractions.set_ylabel("fraction")
        fractions.set_ylim(0, 1)
        figure.legend(*fractions.get_legend_handles_labels(), loc="outside lower right", ncols=len(labels))
    plt.close(figure)  # whoever holds it shows it; pyplot would show it a second time
    return figure


def env_steps_axis(ax: Axes, grid: np.ndarray) -> None:
    ax.set_xlabel("env steps")
    ax.set_xlim(0, grid[-1])
    ax.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1000:g}k" if steps else "0")
