"""Classic environments stepped by Gymnasium or EnvPool on one thread, with random actions drawn beforehand. Prints one
JSON object.

    peer_envs.py gymnasium|envpool ENV COUNT SECONDS
"""

import importlib.metadata
import json
import statistics
import sys
import time

STEPS = 128  # of every environment in a timed block


def median_rate(block, count, seconds):
    block()
    rates, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(rates) < 3:
        begin = time.perf_counter()
        block()
        rates.append(STEPS * count / (time.perf_counter() - begin))
    return statistics.median(rates)


def gymnasium_loop(name, count):
    """Plain environments in a Python loop."""
    import gymnasium

    envs = [gymnasium.make(name, disable_env_checker=True) for _ in range(count)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    envs[0].action_space.seed(0)
    actions = [[envs[0].action_space.sample() for _ in envs] for _ in range(STEPS)]

    def block():
        for row in actions:
            for env, action in zip(envs, row):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()

    return block


def gymnasium_vector(name, count):
    import gymnasium

    env = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(name, disable_env_checker=True)] * count, copy=False)
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(STEPS)]

    def block():
        for row in actions:
            env.step(row)

    return block


def envpool_pool(name, count):
    """One worker thread; the caller waits while it works."""
    import envpool
    import numpy

    env = envpool.make(name, env_type="gymnasium", num_envs=count, num_threads=1, seed=0)
    env.reset()
    env.action_space.seed(0)
    actions = [numpy.array([env.action_space.sample() for _ in range(count)]) for _ in range(STEPS)]

    def block():
        for row in actions:
            env.step(row)

    return block


VARIANTS = {"gymnasium": {"loop": gymnasium_loop, "SyncVectorEnv": gymnasium_vector}, "envpool": {"step": envpool_pool}}


def main():
    library, name, count, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    variants = VARIANTS[library]
    rates = {
        variant: median_rate(make(name, count), count, seconds / len(variants)) for variant, make in variants.items()
    }
    best = max(rates, key=rates.get)
    version = importlib.metadata.version(library)
    print(json.dumps({"value": rates[best], "version": version, "settings": best}))


if __name__ == "__main__":
    main()
