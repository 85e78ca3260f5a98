"""Runs of a suite on a Ray cluster, for `gipo suite --ray`, which starts this and speaks to it in lines of JSON.

    in:   {"start": 1, "words": ["train", ...], "output": "results/x/output/run.txt"}, {"interrupt": 1}, {"kill": 1}
    out:  {"room": 8} first, or {"mistake": "..."}; then {"ended": 1, "code": 0}, with "why" where it could not be started

A code below 0 is a run that was killed, or whose node was lost. The end of the input ends all runs.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import Any

from gipo import ray_nodes
from gipo.ray import connect, program
from gipo.runs import UserMistake

LOOK_SECONDS = 0.05


def say(**record: Any) -> None:
    print(json.dumps(record), flush=True)


def read_lines(lines: queue.Queue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        lines.put(json.loads(line))
    lines.put(None)


def outcome(ray: Any, task: Any) -> dict[str, Any]:
    try:
        return {"code": ray.get(task)}
    except ray.exceptions.RayTaskError as error:
        return {"code": 1, "why": str(error.cause)}
    except ray.exceptions.RayError:  # cancelled, or its node was lost: the suite takes it up again, or ends
        return {"code": -1}


def main() -> int:
    try:
        ray = connect(1)
    except UserMistake as error:
        say(mistake=str(error))
        return 2
    except ConnectionError as error:
        say(mistake=f"RAY_ADDRESS={os.environ.get('RAY_ADDRESS')}: no Ray cluster answers there: {error}")
        return 2
    say(room=max(1, int(ray.cluster_resources().get("CPU", 1))))
    start = ray.remote(ray_nodes.run_of_suite).options(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")
    lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=read_lines, args=(lines,), daemon=True).start()
    tasks: dict[int, Any] = {}
    while True:
        try:
            line = lines.get(timeout=LOOK_SECONDS)
            if line is None:
                return 0
            if "start" in line:
                mark = str(Path(line["output"]).parents[1] / "suite.json")
                tasks[line["start"]] = start.remote(program(), line["words"], os.getcwd(), line["output"], mark)
            for word in ("interrupt", "kill"):
                if word in line and line[word] in tasks:
                    ray.cancel(tasks[line[word]], force=word == "kill")
        except queue.Empty:
            pass
        done, _ = ray.wait(list(tasks.values()), num_returns=len(tasks), timeout=0) if tasks else ([], [])
        for run in [run for run, task in tasks.items() if task in done]:
            say(ended=run, **outcome(ray, tasks.pop(run)))


if __name__ == "__main__":
    sys.exit(main())
