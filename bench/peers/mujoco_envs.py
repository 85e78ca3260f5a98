"""Environment steps per second of the MuJoCo tasks: ours, EnvPool's and Gymnasium's, one thread and two, in one run.

    make bench
    .venv/bin/python -m pip install envpool==1.2.5
    .venv/bin/python bench/peers/mujoco_envs.py [--build build/bench] [--seconds 1] [--rounds 5] [--cpu] [--json]

Ours and EnvPool step 16 environments; Gymnasium has one environment per process, and its second "thread" is a second
process. The three take turns, round by round, and the medians are compared, so that a noisy machine slows all alike.
Where other work keeps the processors busy, who gets more of them decides: --cpu then compares steps per second of
processor time, all threads together.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from multiprocessing import Pool
from pathlib import Path

import numpy as np

TASKS = ("HalfCheetah Ant Hopper Walker2d Humanoid HumanoidStandup InvertedPendulum InvertedDoublePendulum Reacher "
         "Pusher").split()
ENVS = 16


def ours(build, task, threads, seconds):
    words = [build / "bench" / "env_steps", f"{task}-v5", str(ENVS), str(threads), str(seconds)]
    return np.array(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[:2], dtype=float)


class Clocks:
    """Steps per second since its making: of the clock, and of processor time."""

    def __init__(self):
        self.begin = self.now()

    def now(self):
        return np.array([time.perf_counter(), time.process_time()])

    def running(self, seconds):
        return time.perf_counter() - self.begin[0] < seconds

    def rates(self, steps):
        return steps / (self.now() - self.begin)


def envpool_steps(task, threads, seconds):
    import envpool

    pool = envpool.make_gymnasium(f"{task}-v5", num_envs=ENVS, batch_size=ENVS, num_threads=threads, seed=1)
    pool.reset()
    rng = np.random.default_rng(1)
    space = pool.action_space
    actions = rng.uniform(space.low, space.high, (101, ENVS, *space.shape)).astype(space.dtype)
    steps, clocks = 0, Clocks()
    while clocks.running(seconds):
        for _ in range(10):
            pool.step(actions[(steps // ENVS) % 101])
            steps += ENVS
    result = clocks.rates(steps)
    pool.close()
    return result


def gymnasium_steps(task, seconds):
    import gymnasium as gym

    env = gym.make(f"{task}-v5", disable_env_checker=True)
    env.reset(seed=1)
    rng = np.random.default_rng(1)
    space = env.action_space
    actions = rng.uniform(space.low, space.high, (1009, *space.shape)).astype(np.float32)
    steps, clocks = 0, Clocks()
    while clocks.running(seconds):
        for _ in range(10):
            _, _, terminated, truncated, _ = env.step(actions[steps % 1009])
            steps += 1
            if terminated or truncated:
                env.reset()
    return clocks.rates(steps)


def measure(build, task, threads, seconds, workers, cpu):
    processes = np.array(workers.starmap(gymnasium_steps, [(task, seconds)] * threads, chunksize=1))
    return {
        "gipo": ours(build, task, threads, seconds)[cpu],
        "envpool": workers.apply(envpool_steps, (task, threads, seconds))[cpu],
        "gymnasium": processes[:, 1].mean() if cpu else processes[:, 0].sum(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build/bench"))
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--cpu", action="store_true", help="steps per second of processor time")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    arguments = parser.parse_args()

    rows = []
    with Pool(2) as workers:
        for task in arguments.tasks:
            for threads in (1, 2):
                rounds = [measure(arguments.build, task, threads, arguments.seconds, workers, int(arguments.cpu))
                          for _ in range(arguments.rounds)]
                median = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
                best = max(median["envpool"], median["gymnasium"])
                rows.append({"name": f"{task}-v5", "threads": threads, **median, "ratio": median["gipo"] / best})
                if not arguments.json:
                    print("{name:<26} {threads} threads  gipo {gipo:>8.0f}  envpool {envpool:>8.0f}  "
                          "gymnasium {gymnasium:>8.0f}  of the better {ratio:.2f}".format(**rows[-1]), flush=True)
    if arguments.json:
        json.dump(rows, sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()
