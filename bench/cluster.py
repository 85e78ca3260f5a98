"""Environment steps per second with remote actors, beside those of the same async run in one process.

    python bench/cluster.py [--binary build/cluster/gipo] [--repeat 3] [--namespaces] [--certs]

Learner and actors share the cores of this machine in both cases. With --namespaces the learner is in a network namespace
of its own, behind a veth pair (needs root). Prints a row for each task as JSON. The two are run in turn, and medians are
compared: other work on the machine disturbs both alike.
"""

import argparse
import contextlib
import json
import re
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TASKS = {
    "CartPole-v1": ["classic/stale", "--set", "learner.updates=10000"],
    "HalfCheetah-v5": ["mujoco/stale", "--set", "env.id=HalfCheetah-v5", "--set", "learner.updates=2000"],
}
COMMON = ["--set", "run.mode=async", "--set", "checkpoint.every_updates=0", "--set", "eval.episodes=1"]


def times(run):
    """When each step of TensorBoard's event file was written, in seconds."""
    data, at, found = next(run.glob("events.out.tfevents.*")).read_bytes(), 0, {}
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        event = data[at + 12 : at + 12 + size]
        at += size + 16
        (seconds,) = struct.unpack_from("<d", event, 1)
        step, shift, i = 0, 0, 10
        while len(event) > 10 and event[9] == 0x10:
            step |= (event[i] & 0x7F) << shift
            shift, i = shift + 7, i + 1
            if event[i - 1] < 0x80:
                break
        found.setdefault(step, seconds)
    return found


def pace(run):
    """Environment steps per second between the first and the last line of the metrics."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    when = times(run)
    seconds = when[last["update"]] - when[first["update"]]
    return (last["env_steps"] - first["env_steps"]) / seconds, last["old_frac"]


def in_process(binary, task, folder):
    subprocess.run([binary, "train", *TASKS[task], *COMMON, "--name", "local", "--overwrite", "--quiet"], cwd=folder,
                   check=True, capture_output=True)
    return pace(folder / "runs/local")


def remote(binary, task, folder, namespaces, certs):
    inside = ["ip", "netns", "exec", "gipo-learner"] if namespaces else []
    host = "10.213.0.1" if namespaces else "127.0.0.1"
    learner_certs = ["--certs", "certs/learner"] if certs else []
    log = (folder / "learner.log").open("w")
    learner = subprocess.Popen([*inside, binary, "learn", *TASKS[task], *COMMON, "--name", "remote", "--overwrite",
                                "--listen", f"{host}:0", *learner_certs], cwd=folder, stdout=log, stderr=log)
    text = lambda: (folder / "learner.log").read_text()
    while "listening on" not in text():
        assert learner.poll() is None, text()
        time.sleep(0.05)
    address = re.search(r"listening on (\S+)", text())[1]
    while " actors x" not in text():
        time.sleep(0.05)
    places = int(re.search(r"(\d+) actors x", text())[1])
    actors = [
        subprocess.Popen([binary, "actor", address, "--quiet", *(["--certs", f"certs/a{i}"] if certs else [])], cwd=folder)
        for i in range(places)
    ]
    for process in [learner, *actors]:
        assert process.wait() == 0, text()
    return pace(folder / "runs/remote")


@contextlib.contextmanager
def veth_pair():
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    ip("netns", "add", "gipo-learner")
    try:
        ip("link", "add", "gipo0", "type", "veth", "peer", "name", "gipo1", "netns", "gipo-learner")
        ip("addr", "add", "10.213.0.2/24", "dev", "gipo0")
        ip("link", "set", "gipo0", "up")
        for words in (["addr", "add", "10.213.0.1/24", "dev", "gipo1"], ["link", "set", "gipo1", "up"],
                      ["link", "set", "lo", "up"]):
            ip("-n", "gipo-learner", *words)
        yield
    finally:
        ip("netns", "del", "gipo-learner")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build/cluster/gipo")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--task", choices=TASKS, action="append")
    parser.add_argument("--namespaces", action="store_true", help="two network namespaces; implies --certs")
    parser.add_argument("--certs", action="store_true", help="mTLS")
    arguments = parser.parse_args()
    binary = arguments.binary.resolve()
    certs = arguments.certs or arguments.namespaces
    with tempfile.TemporaryDirectory() as name, veth_pair() if arguments.namespaces else contextlib.nullcontext():
        folder = Path(name)
        if certs:
            names = [word for i in range(16) for word in ("--actor", f"a{i}")]
            subprocess.run([binary, "certs", "certs", "--host", "10.213.0.1", *names], cwd=folder, check=True,
                           capture_output=True)
        for task in arguments.task or TASKS:
            pairs = [(in_process(binary, task, folder), remote(binary, task, folder, arguments.namespaces, certs))
                     for _ in range(arguments.repeat)]
            local, far = (statistics.median(pair[i][0] for pair in pairs) for i in (0, 1))
            row = {"task": task, "certs": certs, "namespaces": arguments.namespaces, "in_process": round(local),
                   "remote": round(far), "ratio": round(far / local, 3),
                   "old_frac_difference": round(statistics.median(p[1][1] - p[0][1] for p in pairs), 4)}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
