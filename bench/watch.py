"""What `gipo watch` takes from the training that it watches: updates per second of one async run, watched and left alone in turn.

    .venv/bin/python bench/watch.py [--binary build/release/gipo] [--pairs 6] [--seconds 15]

The page is open in a headless Chromium on the same machine, which has nothing else to do. One JSON object on stdout.
"""

import argparse
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from browser import Browser  # noqa: E402

RUN = ["classic/stale", "--name", "watched", "--quiet", "--set", "run.mode=async", "--set", "learner.updates=10000000"]


def rate(metrics, seconds):
    """Updates per second, from line to line: lines are written in lots."""
    seen, size, until = [], metrics.stat().st_size, time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.005)
        if metrics.stat().st_size != size:
            now, size = time.monotonic(), metrics.stat().st_size
            with open(metrics, "rb") as file:
                file.seek(max(0, size - 20_000))
                text = file.read()
            seen.append((now, json.loads(text[: text.rindex(b"\n")].rsplit(b"\n", 1)[-1])["update"]))
    (begin, first), (end, last) = seen[0], seen[-1]
    return (last - first) / (end - begin)


@contextlib.contextmanager
def watching(binary, folder):
    server = subprocess.Popen([binary, "watch", "runs/watched", "--port", "0", "--no-browser"], cwd=folder,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    url = server.stdout.readline().split()[0]
    try:
        with Browser(folder / "profile") as page:
            page.open(url)
            page.wait_for("page.polls > 2")
            time.sleep(3)  # what it does at first is over
            yield
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "build/release/gipo")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=15)
    arguments = parser.parse_args()
    binary = arguments.binary.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = subprocess.Popen([binary, "train", *RUN], cwd=folder, stdout=subprocess.DEVNULL)
        try:
            time.sleep(10)
            metrics, ratios, alone = folder / "runs/watched/metrics.jsonl", [], []
            for pair in range(arguments.pairs):
                rates = {}
                for watched in (False, True) if pair % 2 == 0 else (True, False):
                    with watching(binary, folder) if watched else contextlib.nullcontext():
                        rates[watched] = rate(metrics, arguments.seconds)
                ratios.append(rates[True] / rates[False])
                alone.append(rates[False])
                print(f"watch: {rates[False]:.0f} updates/s alone, {ratios[-1]:.3f} of it watched", file=sys.stderr)
        finally:
            run.send_signal(signal.SIGINT)
            run.wait()
    print(json.dumps({"updates_per_second": round(statistics.median(alone)), "watched": round(statistics.median(ratios), 3),
                      "from": round(min(ratios), 3), "to": round(max(ratios), 3)}))  # fmt: skip


if __name__ == "__main__":
    main()
