"""Environment steps per second with remote actors, beside those of the same async run in one process.

    python bench/cluster.py [--binary build/cluster/gipo] [--repeat 3] [--namespaces] [--certs] [--streams]

Learner and actors share the cores of this machine in both cases. With --namespaces the learner is in a network namespace
of its own, behind a veth pair (needs root). Prints a row for each task as JSON. The two are run in turn, and medians are
compared: other work on the machine disturbs both alike.

With --streams it measures the service without learning instead: segments of four actors to a learner that only keeps them, beside four
bare gRPC streams of messages as large; and weights of 100 MB to 16 actors, beside as many bare streams.
"""

import argparse
import contextlib
import json
import re
import shutil
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


# What is sent: segments of 64 steps of HalfCheetah, of 64 frames of 84x84x3; weights of a policy with 25 million numbers.
STREAMS = {
    "64 HalfCheetah steps": ["mujoco/stale", "env.id=HalfCheetah-v5", "env.count=4", "replay.segment_length=64",
                             "staleness.actors=4"],
    "64 frames of 84x84x3": ["classic/stale", "env.id=python:frames:Frames", "env.count=4", "replay.segment_length=64",
                             "staleness.actors=4", "replay.capacity=4000", "staleness.regime=custom", "staleness.env_steps_per_update=4",
                             "env.normalise_observations=false", "policy.hidden=[16]"],
}
HUGE = ["classic/stale", "policy.init=uniform", "policy.hidden=[4990, 4990]", "policy.critic_hidden=[16]", "staleness.actors=16", "env.count=1"]
FRAMES = """
import gymnasium, numpy as np
class Frames(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros((84, 84, 3), np.uint8), {}
    def step(self, action):
        return np.zeros((84, 84, 3), np.uint8), 0.0, False, False, {}
"""


class Service:
    """A program that listens until it is left."""

    def __init__(self, words, folder, namespaces):
        inside = ["ip", "netns", "exec", "gipo-learner"] if namespaces else []
        self.process = subprocess.Popen([*inside, *map(str, words)], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def __enter__(self):
        return self.process.stdout.readline().strip()

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def say(words, folder):
    done = subprocess.run([*map(str, words)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def streams(load, folder, namespaces, certs, repeat, seconds=5):
    """Each beside what gRPC makes of as many bytes."""
    (folder / "frames.py").write_text(FRAMES)
    host, own, theirs = ("10.213.0.1" if namespaces else "127.0.0.1"), *(("certs/learner", "certs") if certs else ("-", "-"))
    shared = {"certs": certs, "namespaces": namespaces}
    serve = lambda config: Service([load, "serve", f"{host}:0", own, *config, "run.dir=serve"], folder, namespaces)
    bare = lambda: Service([load, "bare-serve", f"{host}:0", own], folder, namespaces)
    for name, config in STREAMS.items():
        rows = []
        for _ in range(repeat):
            shutil.rmtree(folder / "serve", ignore_errors=True)
            with serve(config) as address:
                ours = say([load, "send", address, theirs, 4, seconds], folder)
            with bare() as address:
                rows.append((ours, say([load, "bare-send", address, theirs, 4, seconds, ours["bytes"]], folder)))
        mine, other = (statistics.median(row[i]["megabytes_per_second"] for row in rows) for i in (0, 1))
        yield {"stream": name, "bytes": rows[0][0]["bytes"], "megabytes_per_second": mine, "bare": other,
               "ratio": round(mine / other, 3)} | shared
    rows = []
    for _ in range(repeat):
        shutil.rmtree(folder / "serve", ignore_errors=True)
        with serve(HUGE) as address:
            ours = say([load, "join", address, theirs, 16], folder)
        with bare() as address:
            rows.append((ours, say([load, "bare-join", address, theirs, 16, int(ours["bytes"])], folder)))
    mine, other = (statistics.median(row[i]["seconds"] for row in rows) for i in (0, 1))
    yield {"weights": "to 16 actors", "bytes": rows[0][0]["bytes"], "seconds": mine, "bare_seconds": other,
           "ratio": round(mine / other, 2)} | shared


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
    parser.add_argument("--streams", action="store_true", help="the service without learning, beside bare gRPC")
    arguments = parser.parse_args()
    binary = arguments.binary.resolve()
    certs = arguments.certs or arguments.namespaces
    with tempfile.TemporaryDirectory() as name, veth_pair() if arguments.namespaces else contextlib.nullcontext():
        folder = Path(name)
        if certs:
            names = [word for i in range(16) for word in ("--actor", f"a{i}")]
            subprocess.run([binary, "certs", "certs", "--host", "10.213.0.1", "--host", "127.0.0.1", *names], cwd=folder, check=True,
                           capture_output=True)
        if arguments.streams:
            for row in streams(binary.parent / "tests/remote_load", folder, arguments.namespaces, certs, arguments.repeat):
                print(json.dumps(row), flush=True)
            return
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
