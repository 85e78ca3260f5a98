"""Runs the peers and gipo on the same work, one after the other, says each row on stderr once it is measured, and prints
one table: at the end, or of what there is after Ctrl-C.

    python bench/peers/run.py [--only NAME ...] [--quick] [--json]      (`make peers` installs and builds first)

What cannot be measured (an unknown name, a peer that is not installed or fails) is said on stderr; the rest goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from pathlib import Path

from rows import FULL, GROUPS, QUICK, Measure, Row

DONE, USER_MISTAKE, INTERRUPTED = 0, 2, 130


def machine() -> dict[str, object]:
    """The processor's name as Linux has it, or the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "system": platform.system(), "architecture": platform.machine(),
        "processor": next(iter(names), platform.processor() or platform.machine()), "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def figure(value: float | None) -> str:
    if value is None:
        return "missing"
    if math.isinf(value):
        return "not reached"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cells(row: Row) -> list[str]:
    return [
        row.name, row.peer, row.unit, figure(row.peer_value), figure(row.gipo_value),
        "-" if row.ratio is None else f"{row.ratio:.2f}", f">= {row.wanted:.3g}" if row.wanted else "-", row.note,
    ]


def show(row: Row) -> None:
    """One row as soon as it is measured; all of them stand in the table at the end."""
    name, peer, unit, theirs, ours, ratio, *_ = cells(row)
    print(f"peers: {name}: {peer} {theirs}, gipo {ours} {unit}, ratio {ratio}", file=sys.stderr, flush=True)


def table(rows: list[Row]) -> str:
    lines = [["what", "peer", "unit", "peer's", "gipo's", "ratio", "wanted", "note"], *map(cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = [
        "  ".join(cell.rjust(width) if 3 <= column <= 6 else cell.ljust(width)
                  for column, (cell, width) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    ]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def as_json(rows: list[Row], where: dict[str, object], quick: bool, interrupted: bool) -> str:
    def number(value: float | None) -> float | str | None:
        return "not reached" if value is not None and math.isinf(value) else value

    return json.dumps({
        "machine": where, "quick": quick, "interrupted": interrupted,
        "rows": [
            {
                "name": row.name, "peer": row.peer, "unit": row.unit, "peer_value": number(row.peer_value),
                "gipo_value": number(row.gipo_value), "ratio": row.ratio, "wanted": row.wanted, "note": row.note,
            }
            for row in rows
        ],
    }, indent=1)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="gipo beside its peers on the same work")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"may be repeated: {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="short measurements, one seed: to see that all runs")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    wanted = options.only or list(GROUPS)
    unknown = [name for name in wanted if name not in GROUPS]
    for name in unknown:
        print(f"peers: unknown name {name}; known: {', '.join(GROUPS)}", file=sys.stderr)

    where = machine()  # before the load is our own
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="gipo-peers-") as folder:
        measure = Measure(QUICK if options.quick else FULL, Path(folder), show)
        try:
            for name in wanted:
                if name in GROUPS:
                    print(f"peers: {name}: {GROUPS[name].__doc__}", file=sys.stderr, flush=True)
                    GROUPS[name](measure)
        except KeyboardInterrupt:
            interrupted = True
            print("peers: interrupted; what was measured:", file=sys.stderr)
    if options.json:
        print(as_json(measure.rows, where, options.quick, interrupted))
    elif measure.rows:
        print(", ".join(f"{key} {value}" for key, value in where.items()) + (", --quick" if options.quick else ""))
        print(table(measure.rows))
    return INTERRUPTED if interrupted else USER_MISTAKE if unknown else DONE


if __name__ == "__main__":
    sys.exit(main())
