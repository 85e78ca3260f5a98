"""The report of a suite: one HTML page that needs no network, its figures as PNG and SVG, its tables as CSV and LaTeX.

    gipo report results/NAME...     (which runs this)
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from gipo import report_figures as figures
from gipo import study
from gipo.figures import STYLE, save
from gipo.report_data import RETURNS, THRESHOLD_EPISODES, Suite, aggregate, gipo, score, steps_to_threshold
from gipo.report_page import Picture, Table, page
from gipo.runs import Record, UserMistake


SHOWN_FAULTS = 20  # damaged lines and files that are named on stderr


def draw(suite: Suite, aggregates: dict[tuple[str, str], Record], command: str) -> list[Picture]:
    source = f"{suite.data(suite.rows)}; {command}"
    pictures: list[Picture] = []

    def add(name: str, title: str, make: Callable[[], Figure | None], data: str = source) -> None:
        with plt.rc_context(STYLE):
            figure = make()
        if figure is not None:
            figure.text(0.004, 0.002, data, fontsize=5.5, color="0.4", va="bottom")
            room = 0.16 / figure.get_figheight()  # for that line, in inches
            figure.get_layout_engine().set(rect=(0, room, 1, 1 - room))
            pictures.append(Picture(name, title, data, figure))

    if aggregates:
        intervals = "95% stratified bootstrap intervals, gipo aggregate"
        add("iqm", "Aggregate IQM with intervals", lambda: figures.iqm_intervals(suite, aggregates), f"{source}; {intervals}")
        add("profiles", "Performance profiles", lambda: figures.profiles(suite, aggregates), f"{source}; {intervals}")
        add("sensitivity", "Sensitivity to sigma", lambda: figures.sensitivity(suite, aggregates), f"{source}; {intervals}")
    if suite.has_logs():
        methods = suite.method_names()
        parts = [methods[i : i + figures.CURVES] for i in range(0, len(methods), figures.CURVES)]
        for number, part in enumerate(parts, 1):
            add(f"learning_curves_{number}", f"Learning curves: {', '.join(part)}",
                lambda part=part: figures.learning_curves(suite, part),
                f"{suite.data([r for r in suite.rows if r['method'] in part])}; mean and 95% bootstrap interval over "
                f"seeds; {command}")  # fmt: skip
        add("staleness", "Staleness over training", lambda: figures.staleness(suite))
        if all(task["threshold"] is not None for task in suite.tasks):
            add("thresholds", "Env steps to a threshold", lambda: figures.reuse(suite),
                f"{source}; first time the mean of {THRESHOLD_EPISODES} episodes is there")  # fmt: skip
    add("fractions", "Samples that hardly teach, by method", lambda: figures.fractions(suite))
    add("old_data", "What old data contributes, against KL: one point per run", lambda: figures.old_data(suite))
    add("gap_tail", "Version gap against the tail of |log rho|", lambda: figures.gap_tail(suite))
    add("weights", "Gradient weight against the ratio", lambda: figures.weights(suite),
        "exact, gipo study multipliers with the surrogates of this suite")  # fmt: skip
    add("bias_variance", "Bias and variance on the 2x2 grid",
        lambda: study.bias_variance_figure(gipo("study", "gridworld")), "exact, gipo study gridworld")  # fmt: skip
    return pictures


def in_file_name(text: str, kept: str = "") -> str:
    return "".join(c if c.isalnum() or c in kept else "_" for c in text)


def mean_std(values: Sequence[float], digits: int = 2) -> str:
    if not values:
        return "-"
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


def estimate(e: Record) -> str:
    return f"{e['value']:.4f} [{e['low']:.4f}, {e['high']:.4f}]"


def make_tables(suite: Suite, aggregates: dict[tuple[str, str], Record]) -> list[Table]:
    tables = regime_tables(suite, aggregates) if len(suite.regimes) > 1 else []
    for regime in suite.regimes:
        rows = suite.select(regime=regime)
        source, slug = suite.data(rows), in_file_name(regime).strip("_") or "all"
        methods = suite.method_names(rows)
        for kind, title in RETURNS.items():
            if result := aggregates.get((regime, kind)):
                ranks = [[str(r["rank"]), r["method"], *(estimate(r[k]) for k in ("iqm", "median", "mean", "optimality_gap"))]
                         for r in result["ranks"]]  # fmt: skip
                tables.append(Table(f"ranks_{slug}_{kind}", f"{regime}: ranks by IQM, {title}",
                                    f"{source}; normalised by {result['normalise']}; {result['repetitions']} repetitions",
                                    [["rank", "algorithm", "IQM", "median", "mean", "optimality gap"], *ranks]))  # fmt: skip
                tables.append(improvement_table(result, f"{regime}: probability of improvement, {title}",
                                                f"improvement_{slug}_{kind}", source))  # fmt: skip
            body = [[m, *(mean_std([s for r in suite.select(regime=regime, method=m, task=t)
                                    if (s := score(r, kind)) is not None]) for t in suite.task_names())]
                    for m in methods]  # fmt: skip
            tables.append(Table(f"returns_{slug}_{kind}", f"{regime}: {title}, mean ± standard deviation", source,
                                [["method", *suite.task_names()], *body]))  # fmt: skip
        keys = {"old_frac": "OldFrac", "old_gap_p95": "OldGapP95", "d95": "D95", "dead_frac": "DeadFrac",
                "near_zero_frac": "NearZeroFrac", "suppressed_frac": "SuppressedFrac", "share_old": "ShareOld",
                "ess_old_norm": "ESS old", "kl": "KL"}  # fmt: skip
        body = [[m, *(f"{figures.window_mean(suite.select(regime=regime, method=m), k):.4g}" for k in keys)] for m in methods]
        tables.append(Table(f"diagnostics_{slug}", f"{regime}: diagnostics, means over the last 20% of env steps", source,
                            [["method", *keys.values()], *body]))  # fmt: skip
        if suite.has_logs() and all(task["threshold"] is not None for task in suite.tasks):
            tables.append(threshold_table(suite, regime, slug))
    return tables


def improvement_table(result: Record, title: str, name: str, source: str) -> Table:
    """P(row beats column) for every pair, methods from the best IQM to the worst."""
    order = [r["method"] for r in result["ranks"]]
    pairs = {(p["x"], p["y"]): p for p in result["improvement"]}

    def cell(x: str, y: str) -> str:
        if x == y:
            return ""
        p = pairs.get((x, y)) or {k: 1 - pairs[y, x][other] for k, other in (("value", "value"), ("low", "high"), ("high", "low"))}
        return f"{p['value']:.2f} [{p['low']:.2f}, {p['high']:.2f}]"

    return Table(name, title, source, [["P(row beats column)", *order], *([x, *(cell(x, y) for y in order)] for x in order)])


def regime_tables(suite: Suite, aggregates: dict[tuple[str, str], Record]) -> list[Table]:
    """Where regimes are settings to choose from, this is the table to choose by."""
    tables = []
    for kind, title in RETURNS.items():
        means = {(r["method"], regime): r["mean"]["value"] for (regime, k), result in aggregates.items() if k == kind
                 for r in result["ranks"]}  # fmt: skip
        body = [[m, *(f"{means[m, r]:.4f}" if (m, r) in means else "-" for r in suite.regimes)] for m in suite.method_names()]
        if means:
            tables.append(Table(f"regimes_{kind}", f"Mean normalised score by regime, {title}", suite.data(suite.rows),
                                [["method", *suite.regimes], *body]))  # fmt: skip
    return tables


def threshold_table(suite: Suite, regime: str, slug: str) -> Table:
    def cell(method: str, task: str) -> str:
        steps = [steps_to_threshold(suite, r) for r in suite.select(regime=regime, method=method, task=task)]
        if not steps:
            return "-"
        # The median counts a run that never got there as beyond every step.
        middle = statistics.median_high([float("inf") if s is None else s for s in steps])
        text = "not reached" if middle == float("inf") else f"{middle:.0f}"
        return f"{text} ({sum(s is not None for s in steps)}/{len(steps)})"

    rows = suite.select(regime=regime)
    head = ["method", *(f"{task['name']}: {task['threshold']:g}" for task in suite.tasks)]
    body = [[m, *(cell(m, t) for t in suite.task_names())] for m in suite.method_names(rows)]
    return Table(f"thresholds_{slug}", f"{regime}: env steps to a threshold, median over seeds (runs that reached it)",
                 suite.data(rows), [head, *body])  # fmt: skip


def latex(table: Table) -> str:
    def escape(text: str) -> str:
        for character in "&%$#_":
            text = text.replace(character, f"\\{character}")
        return text.replace("±", r"$\pm$")

    lines = [" & ".join(map(escape, row)) + r" \\" for row in table.rows]
    return "\n".join([f"% {table.title}; {table.data}", r"\begin{tabular}{l" + "r" * (len(table.rows[0]) - 1) + "}",
                      r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}", ""])  # fmt: skip


def write(out: Path, suite: Suite, pictures: list[Picture], tables: list[Table]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    images = {}
    for picture in pictures:
        png, _ = save(picture.figure, out / picture.name, dpi=140)
        images[picture.name] = png.read_bytes()
    for table in tables:
        with (out / f"{table.name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(table.rows)
        (out / f"{table.name}.tex").write_text(latex(table))
    (out / "index.html").write_text(page(suite, pictures, images, tables))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gipo report")
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--task", action="append", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    part = "".join(f"-{in_file_name(task, '-._+')}" for task in options.task)
    out = options.out or options.folders[0] / f"report{part}"
    command = " ".join(["gipo report", *map(str, options.folders), *(f"--task {task}" for task in options.task)])
    try:
        suite = Suite.read(options.folders, options.task)
        aggregates = {(regime, kind): result for regime in suite.regimes for kind in RETURNS
                      if (result := aggregate(suite, regime, kind))}  # fmt: skip
        tables = make_tables(suite, aggregates)
        write(out, suite, draw(suite, aggregates, command), tables)
    except UserMistake as error:
        print(f"gipo: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"gipo: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    faults = suite.faults()
    for fault in faults[:SHOWN_FAULTS]:
        print(f"gipo: warning: {fault}: left out", file=sys.stderr)
    if len(faults) > SHOWN_FAULTS:
        print(f"gipo: warning: and {len(faults) - SHOWN_FAULTS} more; --json has all", file=sys.stderr)
    if options.json:
        rows = {t.name: [dict(zip(t.rows[0], row)) for row in t.rows[1:]] for t in tables}
        print(json.dumps({"out": str(out), "missing": suite.missing, "damaged": faults, "tables": rows}, indent=2, ensure_ascii=False))
    else:
        print(f"{out}/index.html: {len(suite.rows)} runs" + (f", {len(suite.missing)} missing" if suite.missing else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
