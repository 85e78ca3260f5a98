"""Environments of Python packages: gipo's workers beside Gymnasium's vector environments and a bare EnvPool, in one run.

    make bench
    .venv/bin/python -m pip install envpool==1.2.5
    .venv/bin/python bench/peers/bridge.py [--build build/bench] [--seconds 1] [--rounds 9] [--only NAME] [--json]

CartPole-v1 with 8 and 64 environments on two cores: AsyncVectorEnv has one process per environment, SyncVectorEnv one in
all, gipo two workers and the program that wakes them. Meta-World door-open with 16 environments: EnvPool's own loop of
send and recv, with two threads, and gipo's worker around the same. Actions are drawn beforehand. The sides take turns,
round by round; of each the best 5 ms count, so that other work on the machine disturbs least.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

CORES = 2
WINDOW = 0.005  # seconds
DOOR = "MetaWorld/DoorOpen-v3"
WANTED = {"AsyncVectorEnv": 5.0, "SyncVectorEnv": 1.0, "EnvPool": 0.9}


def rate(step, count, seconds):
    """Environment steps per second of step(), which takes one in each of `count` environments: the best window."""
    begin = now = time.perf_counter()
    best = 0
    while now - begin < seconds:
        window, steps = now, 0
        while now - window < WINDOW:
            step()
            steps += count
            now = time.perf_counter()
        best = max(best, steps / (now - window))
    return best


def vector_env(kind, count, seconds):
    import gymnasium

    make = [lambda: gymnasium.make("CartPole-v1", disable_env_checker=True)] * count
    env = getattr(gymnasium.vector, kind)(make)
    env.reset(seed=1)
    actions = iter_forever(np.random.default_rng(1).integers(0, 2, (101, count)))
    result = rate(lambda: env.step(next(actions)), count, seconds)
    env.close()
    return result


def bare_pool(count, seconds):
    import envpool

    pool = envpool.make(DOOR, env_type="gymnasium", num_envs=count, num_threads=CORES, seed=1)
    pool.reset()
    space = pool.action_space
    drawn = np.random.default_rng(1).uniform(space.low, space.high, (101, count, *space.shape))
    actions = iter_forever(drawn.astype(space.dtype))

    def step():
        pool.send(next(actions))
        pool.recv()

    return rate(step, count, seconds)


def iter_forever(rows):
    while True:
        yield from rows


def ours(build, task, count, seconds):
    words = [build / "bench" / "env_steps", task, str(count), str(CORES), str(seconds)]
    environment = os.environ | {"GIPO_PYTHON": sys.executable}
    return float(subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout.split()[2])


def peer(name, *arguments):
    """In a process of its own, so that no side inherits the other's threads."""
    words = [sys.executable, __file__, "--peer", name, *map(str, arguments)]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def compare(name, task, count, peers, arguments):
    best = {}
    for _ in range(arguments.rounds):
        sides = {side: lambda call=call: peer(*call, count, arguments.seconds) for side, call in peers.items()}
        sides["gipo"] = lambda: ours(arguments.build, task, count, arguments.seconds)
        for side, measure in sides.items():
            best[side] = max(best.get(side, 0), measure())
    return [{"name": name, "environments": count, "peer": side, "peer_value": best[side], "gipo_value": best["gipo"],
             "unit": "env steps/s", "ratio": best["gipo"] / best[side], "wanted": WANTED[side]} for side in peers]


def main():
    if sys.argv[1:2] == ["--peer"]:
        kind, count, seconds = sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
        print(bare_pool(count, seconds) if kind == "EnvPool" else vector_env(kind, count, seconds))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build/bench"))
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=["cartpole", "door"], help="one of the two")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])

    rows = []
    if arguments.only != "door":
        peers = {kind: (kind,) for kind in ("AsyncVectorEnv", "SyncVectorEnv")}
        for count in (8, 64):
            rows += compare("CartPole-v1", "gymnasium:CartPole-v1", count, peers, arguments)
    if arguments.only != "cartpole":
        rows += compare("door-open", f"envpool:{DOOR}", 16, {"EnvPool": ("EnvPool",)}, arguments)
    if arguments.json:
        json.dump(rows, sys.stdout, indent=2)
        print()
        return
    for row in rows:
        print("{name:<12} {environments:>2} environments  {peer:<14} {peer_value:>8.0f}  gipo {gipo_value:>8.0f} {unit}  "
              "ratio {ratio:.2f}, wanted {wanted}".format(**row))


if __name__ == "__main__":
    main()
