"""Steps per second of gipo.make_vec beside gymnasium.make_vec (sync), on the same work in this process, in turn.

    PYTHONPATH=python .venv/bin/python bench/peers/vector_envs.py --envs 8
"""

import argparse
import statistics
import time

import gymnasium

import gipo

TASKS = ("CartPole-v1", "Pendulum-v1", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5")


def steps_per_second(env, actions, seconds):
    env.reset(seed=1)
    end, begin, steps = time.perf_counter() + seconds, time.perf_counter(), 0
    while time.perf_counter() < end:
        for action in actions:
            env.step(action)
        steps += len(actions) * env.num_envs
    return steps / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    print(f"{'task':16}{'gipo':>12}{'gymnasium':>12}{'ratio':>8}   {given.envs} environments, one thread, steps/s")
    for task in TASKS:
        ours, theirs = gipo.make_vec(task, given.envs), gymnasium.make_vec(task, given.envs, "sync")
        ours.action_space.seed(1)
        actions = [ours.action_space.sample() for _ in range(50)]
        rates = [[steps_per_second(env, actions, given.seconds) for env in (ours, theirs)] for _ in range(given.rounds)]
        a, b = (statistics.median(column) for column in zip(*rates))
        print(f"{task:16}{a:12,.0f}{b:12,.0f}{statistics.median(x / y for x, y in rates):8.1f}")


if __name__ == "__main__":
    main()
